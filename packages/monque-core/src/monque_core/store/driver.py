"""MongoDB through any kind of database handle, with one asynchronous interface.

Every command of monque goes through a `Driver`. It calls an `AsyncDatabase` on the event loop, and
a blocking `Database` in threads or in place. It turns an outage into `MonqueConnectionError` and
keeps the `Connectivity` up to date. A `Collection` has the operations that the rest of the store
uses.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import pymongo
from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo import CursorType, ReadPreference
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import ConnectionFailure, InvalidOperation, OperationFailure
from pymongo.read_concern import ReadConcern

from monque_core.display import brief_message
from monque_core.errors import MonqueConnectionError
from monque_core.store.cancellation import WAIT_FOR_IS_FRAGILE, cancelled_in_turn
from monque_core.store.change_stream import Tail
from monque_core.store.connectivity import Connectivity, is_outage
from monque_core.store.handles import unwrap_database
from monque_core.threads import ThreadPool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

    from bson.raw_bson import RawBSONDocument
    from pymongo.asynchronous.collection import AsyncCollection
    from pymongo.asynchronous.database import AsyncDatabase
    from pymongo.collection import Collection as BlockingCollection

Document: TypeAlias = dict[str, Any]
Update: TypeAlias = Document | list[Document]
Session: TypeAlias = AsyncClientSession | ClientSession
R = TypeVar("R")
_BATCH_SIZE = 5000
_MAY_NOT_OR_NEED_NOT_CREATE = (13, 48)


class Driver:
    """A database, called on the event loop, in threads, or in place.

    In place, each call blocks the calling thread. A coroutine that waits for nothing but MongoDB
    then runs to its end without an event loop.
    """

    def __init__(self, database: object, *, in_place: bool = False) -> None:
        native = unwrap_database(database)
        if in_place and not isinstance(native, Database):
            raise TypeError(
                "SyncMonque needs a blocking PyMongo Database or a Motor database: an "
                "AsyncDatabase belongs to its own event loop, use Monque with it"
            )
        self._in_place = in_place
        if not native.write_concern.acknowledged:
            raise ValueError(
                f"the database handle has write concern {native.write_concern.document}: "
                "monque must know what was written, so w=0 cannot be used"
            )
        self.native: AsyncDatabase[Document] | Database[Document] = native
        self.is_blocking = isinstance(native, Database)
        self.connectivity = Connectivity()
        self.codec: CodecOptions[Document] = native.codec_options.with_options(
            document_class=dict,
            tz_aware=True,
            tzinfo=UTC,
            datetime_conversion=DatetimeConversion.DATETIME_AUTO,
        )
        self._threads = ThreadPool("monque-mongo")

    def collection(self, name: str, database: str | None = None) -> Collection:
        """Return a collection that reads from the primary and returns aware datetimes.

        `database` is another database of the same deployment, by default this one.
        """
        return Collection(self, name, database)

    async def command(self, command: str) -> Document:
        """Run a database command, and return the reply."""
        reply: Document = await self.call(self.native.command, command, codec_options=self.codec)
        return reply

    async def ping(self, seconds: float) -> None:
        """Raise an error unless MongoDB answers within this many seconds."""
        native: Any = self.native

        def ask() -> None:
            with pymongo.timeout(seconds):
                native.command("ping")

        async def ask_on_loop() -> None:
            with pymongo.timeout(seconds):
                await native.command("ping")

        await self.call(ask if self.is_blocking else ask_on_loop)

    async def call(
        self,
        method: Callable[..., Any],
        *arguments: object,
        session: Session | None = None,
        **keywords: object,
    ) -> Any:  # the driver's own result, whose type its callers know
        """Call a method of PyMongo where it can be called, and record whether MongoDB answered."""
        if session is not None:
            keywords["session"] = session
        return await self._keep_connectivity(self._call(method, arguments, keywords), session)

    async def read(self, cursor: Any, session: Session | None = None) -> list[Document]:
        """Return all documents of a cursor."""
        documents: list[Document] = await self._keep_connectivity(
            self._call(cursor.to_list, (), {}), session
        )
        return documents

    async def meanwhile(self, reply: Coroutine[Any, Any, object], work: Callable[[], R]) -> R:
        """Wait for a reply, and call a function while MongoDB works; return what it returns."""
        if self._in_place:
            await reply
            return work()
        waiting = asyncio.create_task(reply)
        try:
            # One iteration of the event loop, in which the request is sent.
            await asyncio.sleep(0)
            result = work()
            await waiting
        finally:
            if not waiting.done():
                waiting.cancel()
                await asyncio.wait([waiting])
        return result

    async def next_change(self, stream: Any) -> Document | None:
        """Wait for the next change; None if the stream has none for now, or is closed."""
        asked_at = time.monotonic()
        change: Document | None = await self._notice_outage(
            self._call(stream.try_next, (), {}), None
        )
        if change is not None or stream.alive:
            # A closed stream returns None without asking MongoDB.
            self.connectivity.made(asked_at, at_leisure=True)
        return change

    async def close(self, stream: Any) -> None:
        """Close a change stream; PyMongo ignores every error of it."""
        await self._call(stream.close, (), {})

    async def _keep_connectivity(self, reply: Awaitable[R], session: Session | None) -> R:
        """Wait for a reply, and record whether MongoDB could be reached."""
        asked_at = time.monotonic()
        result = await self._notice_outage(reply, session)
        self.connectivity.made(asked_at)
        return result

    async def _notice_outage(self, reply: Awaitable[R], session: Session | None) -> R:
        """Wait for a reply, and record if MongoDB could not be reached."""
        try:
            return await reply
        except (ConnectionFailure, InvalidOperation, OperationFailure, RuntimeError) as error:
            if not is_outage(error):
                raise
            self.connectivity.lost()
            if session is not None:
                # The caller's transaction needs PyMongo's error labels to know what to retry.
                raise
            raise MonqueConnectionError(f"MongoDB cannot be reached: {error}") from error

    async def _call(
        self, method: Callable[..., Any], arguments: tuple[object, ...], keywords: dict[str, object]
    ) -> Any:
        if self._in_place:
            return method(*arguments, **keywords)
        if self.is_blocking:
            return await self._threads.submit(partial(method, *arguments, **keywords))
        call = method(*arguments, **keywords)
        return await (cancelled_in_turn(call) if WAIT_FOR_IS_FRAGILE else call)

    @property
    def address(self) -> str:
        """Return the servers and the database of the handle, without any credentials."""
        seen = self.native.client.topology_description.server_descriptions()
        return f"{','.join(sorted(_written(*address) for address in seen))}/{self.native.name}"

    @property
    def fault(self) -> str | None:
        """Return why the last attempt to reach a server failed, None if none did."""
        seen = self.native.client.topology_description.server_descriptions().values()
        faults = (brief_message(each.error) for each in seen if each.error)
        return next((fault.partition(" (configured timeouts:")[0] for fault in faults), None)

    @property
    def socket_timeout(self) -> float | None:
        """Return the client's own limit on one reply in seconds, None if it has none."""
        options = self.native.client.options
        limits = [options.timeout, options.pool_options.socket_timeout]
        return min((limit for limit in limits if limit), default=None)

    async def dismiss_threads(self) -> None:
        """End the threads of a blocking handle; later calls start new ones."""
        await self._threads.dismiss(patience=1.0)


class Collection:
    """The collection methods that monque uses, awaitable for every kind of handle."""

    def __init__(self, handle: Driver, name: str, database: str | None = None) -> None:
        self.name = name
        self.database = handle.native.name if database is None else database
        self.codec = handle.codec
        self._driver = handle
        native: AsyncCollection[Document] | BlockingCollection[Document]
        native = handle.native.client.get_database(self.database).get_collection(
            name,
            codec_options=handle.codec,
            read_preference=ReadPreference.PRIMARY,
            write_concern=handle.native.write_concern,
            read_concern=ReadConcern("local"),
        )
        # Both kinds have the same methods, and return different types.
        self.native: Any = native

    async def find(
        self,
        filter: Mapping[str, object],
        *,
        session: Session | None = None,
        majority: bool = False,
        **options: object,
    ) -> list[Document]:
        """Return all matching documents, in one reply unless there are very many.

        With `majority`, only documents that no failover can roll back.
        """
        # The server's first batch is 101 documents; a second round trip costs more than they do.
        options.setdefault("batch_size", options.get("limit") or _BATCH_SIZE)
        native = of_majority(self.native) if majority else self.native
        return await self._driver.read(native.find(filter, session=session, **options), session)

    async def find_one(
        self, filter: Mapping[str, object], *, session: Session | None = None, **options: Any
    ) -> Document | None:
        """Return one matching document, None if there is none."""
        found = await self.find(filter, session=session, limit=1, **options)
        return found[0] if found else None

    async def aggregate(
        self, pipeline: Sequence[Mapping[str, object]], **options: Any
    ) -> list[Document]:
        """Return all documents of an aggregation pipeline."""
        options.setdefault("batchSize", _BATCH_SIZE)
        cursor = await self._driver.call(self.native.aggregate, pipeline, **options)
        return await self._driver.read(cursor)

    async def distinct(self, key: str, filter: Mapping[str, object]) -> list[object]:
        """Return the distinct values of a field."""
        values: list[object] = await self._call("distinct", key, filter)
        return values

    async def count(self, filter: Mapping[str, object]) -> int:
        """Return the number of matching documents."""
        return int(await self._call("count_documents", filter))

    async def estimate(self) -> int:
        """Return the estimated number of documents, from the metadata of the collection."""
        return int(await self._call("estimated_document_count"))

    async def insert_one(self, document: Document, session: Session | None = None) -> None:
        """Insert one document."""
        await self._call("insert_one", document, session=session)

    async def insert_many(
        self,
        documents: Sequence[Document | RawBSONDocument],
        session: Session | None = None,
        *,
        ordered: bool = True,
    ) -> None:
        """Insert documents; if ordered, stop at the first that MongoDB rejects."""
        await self._call("insert_many", documents, session=session, ordered=ordered)

    async def update_one(self, filter: Mapping[str, object], update: Update, **options: Any) -> int:
        """Update one document, and return how many matched."""
        result = await self._call("update_one", filter, update, **options)
        return int(result.matched_count)

    async def update_many(
        self, filter: Mapping[str, object], update: Update, **options: Any
    ) -> int:
        """Update all matching documents, and return how many matched."""
        result = await self._call("update_many", filter, update, **options)
        return int(result.matched_count)

    async def find_one_and_update(
        self,
        filter: Mapping[str, object],
        update: Update,
        *,
        session: Session | None = None,
        **options: object,
    ) -> Document | None:
        """Update one document, and return it as it is after the update; None if none matched."""
        options.setdefault("return_document", True)
        found: Document | None = await self._call(
            "find_one_and_update", filter, update, session=session, **options
        )
        return found

    async def bulk_write(
        self, requests: Sequence[object], session: Session | None = None
    ) -> tuple[int, dict[int, Any]]:
        """Write unordered requests; return how many matched, and the upserted ids by position."""
        result = await self._call("bulk_write", requests, ordered=False, session=session)
        return int(result.matched_count), dict(result.upserted_ids or {})

    async def delete_one(self, filter: Mapping[str, object]) -> int:
        """Delete one document, and return how many were deleted."""
        result = await self._call("delete_one", filter)
        return int(result.deleted_count)

    async def delete_many(self, filter: Mapping[str, object], **options: Any) -> int:
        """Delete all matching documents, and return how many were deleted."""
        result = await self._call("delete_many", filter, **options)
        return int(result.deleted_count)

    async def create_indexes(self, indexes: Sequence[object]) -> None:
        """Create the indexes that do not exist."""
        await self._call("create_indexes", indexes)

    async def watch(self, pipeline: Sequence[Mapping[str, object]], max_await_ms: int) -> Any:
        """Open a change stream, and return PyMongo's object, blocking or asynchronous."""
        return await self._driver.call(
            # A change stream reports only what a majority of the replica set has.
            of_majority(self.native).watch,
            pipeline,
            full_document="updateLookup",
            max_await_time_ms=max_await_ms,
        )

    async def create_capped(self, size: int, most: int) -> None:
        """Create this collection as a capped one, unless it exists or may not be created."""
        database = self._driver.native.client.get_database(self.database)
        try:
            await self._driver.call(
                database.create_collection,
                self.name,
                capped=True,
                size=size,
                max=most,
                check_exists=False,
            )
        except OperationFailure as error:
            if error.code not in _MAY_NOT_OR_NEED_NOT_CREATE:
                raise

    async def tail(self, filter: Mapping[str, object], max_await_ms: int) -> Tail:
        """Open a cursor that waits for matching documents at the end of a capped collection."""
        native = self.native.find(filter, cursor_type=CursorType.TAILABLE_AWAIT)
        return Tail(native.max_await_time_ms(max_await_ms), is_blocking=self._driver.is_blocking)

    async def meanwhile(self, reply: Coroutine[Any, Any, object], work: Callable[[], R]) -> R:
        """Wait for a reply to one of these methods, and call a function while MongoDB works."""
        return await self._driver.meanwhile(reply, work)

    async def next_change(self, stream: Any) -> Document | None:
        """Wait for the next change in a stream of this collection."""
        return await self._driver.next_change(stream)

    async def close(self, stream: Any) -> None:
        """Close a stream of this collection."""
        await self._driver.close(stream)

    async def _call(
        self,
        method: str,
        *arguments: object,
        session: Session | None = None,
        **keywords: object,
    ) -> Any:
        bound = getattr(self.native, method)
        return await self._driver.call(bound, *arguments, session=session, **keywords)


def of_majority(native: Any) -> Any:
    """Return a collection of PyMongo that reads with read concern "majority"."""
    return native.with_options(read_concern=ReadConcern("majority"))


def _written(host: str, port: int | None) -> str:
    name = f"[{host}]" if ":" in host else host
    return name if port is None else f"{name}:{port}"
