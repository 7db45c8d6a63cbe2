"""One async face over the kinds of database handle that users bring."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import UTC
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import pymongo
from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo import CursorType, ReadPreference
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import ConnectionFailure, InvalidOperation, OperationFailure
from pymongo.read_concern import ReadConcern

from monque_core.display import brief_message
from monque_core.errors import MonqueConnectionError
from monque_core.store.cancellation import WAIT_FOR_IS_FRAGILE, cancelled_in_turn
from monque_core.store.connectivity import Connectivity
from monque_core.threads import ThreadPool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

    from bson.raw_bson import RawBSONDocument
    from pymongo.asynchronous.collection import AsyncCollection
    from pymongo.collection import Collection as BlockingCollection
    from pymongo.errors import PyMongoError

Document: TypeAlias = dict[str, Any]
Update: TypeAlias = Document | list[Document]
Session: TypeAlias = AsyncClientSession | ClientSession
R = TypeVar("R")
_BATCH_SIZE = 5000
_UNAUTHORIZED = 13
_COLLECTION_EXISTS = 48
# Not primary any more, shutting down, interrupted by either.
_GOING_AWAY_CODES = frozenset({91, 189, 10058, 10107, 11600, 11602, 13435, 13436})


class Driver:
    """The database monque works on, driven on the event loop, from threads, or in place.

    In place, a call blocks whoever makes it and nothing is ever waited for: a coroutine that only
    speaks to MongoDB then runs to its end without an event loop.
    """

    def __init__(self, database: object, *, in_place: bool = False) -> None:
        native = _unwrap(database)
        if in_place and not isinstance(native, Database):
            raise TypeError(
                "a blocking PyMongo Database or a Motor database is needed without asyncio: an "
                "AsyncDatabase belongs to its own event loop, so take Monque for it"
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
        """Give a collection that reads from the primary and speaks aware datetimes.

        It is of this database unless another of the same deployment is named.
        """
        return Collection(self, name, database)

    async def command(self, command: str) -> Document:
        """Run a database command."""
        reply: Document = await self.call(self.native.command, command, codec_options=self.codec)
        return reply

    async def ping(self, seconds: float) -> None:
        """Raise an error unless MongoDB answers within so many seconds."""
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
        """Call a driver method wherever it may be called, and keep track of the connection."""
        if session is not None:
            keywords["session"] = session
        return await self._keep_connectivity(self._call(method, arguments, keywords), session)

    async def read(self, cursor: Any, session: Session | None = None) -> list[Document]:
        """Read everything a cursor has."""
        documents: list[Document] = await self._keep_connectivity(
            self._call(cursor.to_list, (), {}), session
        )
        return documents

    async def meanwhile(self, reply: Coroutine[Any, Any, object], work: Callable[[], R]) -> R:
        """Wait for a reply, and do something while MongoDB is at it."""
        if self._in_place:
            await reply
            return work()
        waiting = asyncio.create_task(reply)
        try:
            # One turn, in which the request is sent.
            await asyncio.sleep(0)
            result = work()
            await waiting
        finally:
            if not waiting.done():
                waiting.cancel()
                await asyncio.wait([waiting])
        return result

    async def next_change(self, stream: Any) -> Document | None:
        """Wait for a change, for which MongoDB may take its time."""
        asked_at = time.monotonic()
        change: Document | None = await self._notice_outage(
            self._call(stream.try_next, (), {}), None
        )
        if change is not None or stream.alive:
            # Else it is the driver alone that has spoken, of a stream that was closed under it.
            self.connectivity.made(asked_at, at_leisure=True)
        return change

    async def close(self, stream: Any) -> None:
        """Close a change stream, of which the driver swallows every fault."""
        await self._call(stream.close, (), {})

    async def _keep_connectivity(self, reply: Awaitable[R], session: Session | None) -> R:
        """Wait for a reply, and take note whether MongoDB could be reached."""
        asked_at = time.monotonic()
        result = await self._notice_outage(reply, session)
        self.connectivity.made(asked_at)
        return result

    async def _notice_outage(self, reply: Awaitable[R], session: Session | None) -> R:
        """Wait for a reply, and take note if MongoDB could not be reached."""
        try:
            return await reply
        except (ConnectionFailure, InvalidOperation, OperationFailure, RuntimeError) as error:
            if not _is_outage(error):
                raise
            self.connectivity.lost()
            if session is not None:
                # The caller's transaction needs the driver's labels to know what to repeat.
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
        """Tell the client's own limit on one reply, in seconds."""
        options = self.native.client.options
        limits = [options.timeout, options.pool_options.socket_timeout]
        return min((limit for limit in limits if limit), default=None)

    async def dismiss_threads(self) -> None:
        """End the threads of a blocking handle; later calls make new ones."""
        await self._threads.dismiss(patience=1.0)


class Collection:
    """The collection methods monque uses, awaitable for every kind of handle."""

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
        # Both kinds have the same methods; only what they return differs.
        self.native: Any = native

    async def find(
        self,
        filter: Mapping[str, object],
        *,
        session: Session | None = None,
        majority: bool = False,
        **options: object,
    ) -> list[Document]:
        """Read all matching documents, in one reply unless there are very many.

        With `majority`, only what no failover can take back.
        """
        # The server's first batch is 101 documents; a second round trip costs more than they do.
        options.setdefault("batch_size", options.get("limit") or _BATCH_SIZE)
        native = of_majority(self.native) if majority else self.native
        return await self._driver.read(native.find(filter, session=session, **options), session)

    async def find_one(
        self, filter: Mapping[str, object], *, session: Session | None = None, **options: Any
    ) -> Document | None:
        """Read one matching document."""
        found = await self.find(filter, session=session, limit=1, **options)
        return found[0] if found else None

    async def aggregate(
        self, pipeline: Sequence[Mapping[str, object]], **options: Any
    ) -> list[Document]:
        """Read everything a pipeline yields."""
        options.setdefault("batchSize", _BATCH_SIZE)
        cursor = await self._driver.call(self.native.aggregate, pipeline, **options)
        return await self._driver.read(cursor)

    async def distinct(self, key: str, filter: Mapping[str, object]) -> list[object]:
        """Read the distinct values of a field."""
        values: list[object] = await self._call("distinct", key, filter)
        return values

    async def count(self, filter: Mapping[str, object]) -> int:
        """Count the matching documents."""
        return int(await self._call("count_documents", filter))

    async def estimate(self) -> int:
        """Return about how many documents there are, which takes no time."""
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
        """Insert documents in order, up to the first that is refused or all but those refused."""
        await self._call("insert_many", documents, session=session, ordered=ordered)

    async def update_one(
        self, filter: Mapping[str, object], update: Update, session: Session | None = None
    ) -> int:
        """Update one document and tell how many matched."""
        result = await self._call("update_one", filter, update, session=session)
        return int(result.matched_count)

    async def update_many(self, filter: Mapping[str, object], update: Update) -> int:
        """Update all matching documents and tell how many matched."""
        result = await self._call("update_many", filter, update)
        return int(result.matched_count)

    async def find_one_and_update(
        self,
        filter: Mapping[str, object],
        update: Update,
        *,
        session: Session | None = None,
        **options: object,
    ) -> Document | None:
        """Update one document and give it as it is afterwards, unless another is asked for."""
        options.setdefault("return_document", True)
        found: Document | None = await self._call(
            "find_one_and_update", filter, update, session=session, **options
        )
        return found

    async def bulk_write(
        self, requests: Sequence[object], session: Session | None = None
    ) -> tuple[int, dict[int, Any]]:
        """Write unordered requests; tell how many matched, and the ids of upserts by position."""
        result = await self._call("bulk_write", requests, ordered=False, session=session)
        return int(result.matched_count), dict(result.upserted_ids or {})

    async def delete_one(self, filter: Mapping[str, object]) -> int:
        """Delete one document and tell how many were deleted."""
        result = await self._call("delete_one", filter)
        return int(result.deleted_count)

    async def delete_many(self, filter: Mapping[str, object]) -> int:
        """Delete all matching documents and tell how many were deleted."""
        result = await self._call("delete_many", filter)
        return int(result.deleted_count)

    async def create_indexes(self, indexes: Sequence[object]) -> None:
        """Create the indexes that are not there yet."""
        await self._call("create_indexes", indexes)

    async def watch(self, pipeline: Sequence[Mapping[str, object]], max_await_ms: int) -> Any:
        """Open a change stream; the driver's own object, of the handle's kind."""
        return await self._driver.call(
            # A change stream only ever tells of what a majority has.
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
            if error.code not in (_UNAUTHORIZED, _COLLECTION_EXISTS):
                raise

    async def tail(self, filter: Mapping[str, object], max_await_ms: int) -> Tail:
        """Open a cursor that waits for matching documents at the end of a capped collection."""
        native = self.native.find(filter, cursor_type=CursorType.TAILABLE_AWAIT)
        return Tail(native.max_await_time_ms(max_await_ms), is_blocking=self._driver.is_blocking)

    async def meanwhile(self, reply: Coroutine[Any, Any, object], work: Callable[[], R]) -> R:
        """Wait for a reply to one of these methods, and do something while MongoDB is at it."""
        return await self._driver.meanwhile(reply, work)

    async def next_change(self, stream: Any) -> Document | None:
        """Wait for a change in a stream of this collection."""
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


class Tail:
    """A tailing cursor of the driver's, with the methods of its change streams."""

    def __init__(self, native: Any, *, is_blocking: bool) -> None:
        self._native = native
        self._is_blocking = is_blocking

    @property
    def alive(self) -> bool:
        """Whether the server still has the cursor."""
        return bool(self._native.alive)

    def try_next(self) -> Any:
        """Return the next document, None if none came in time; awaitable unless blocking."""
        return next(self._native, None) if self._is_blocking else self._next()

    async def _next(self) -> Any:
        return await anext(self._native, None)

    def close(self) -> Any:
        """Close the cursor; awaitable unless blocking."""
        return self._native.close()


def of_majority(native: Any) -> Any:
    """Give a driver's collection that reads what a majority has."""
    return native.with_options(read_concern=ReadConcern("majority"))


def _is_outage(error: PyMongoError | RuntimeError) -> bool:
    """Tell whether MongoDB could not be reached, or the server is going away."""
    if isinstance(error, ConnectionFailure):
        return True
    if isinstance(error, RuntimeError):
        # Cancelled while it waited for a server; a broken lock is all that it tells of it.
        return "Lock is not acquired" in str(error)
    if isinstance(error, InvalidOperation):
        # The application closed its client under us, which the driver tells by words alone.
        return "after close" in str(error)
    details = getattr(error, "details", None) or {}
    reported = [details, *details.get("writeConcernErrors", [])]
    if concern := details.get("writeConcernError"):
        reported.append(concern)
    return any(report.get("code") in _GOING_AWAY_CODES for report in reported)


def _written(host: str, port: int | None) -> str:
    name = f"[{host}]" if ":" in host else host
    return name if port is None else f"{name}:{port}"


def native_session(session: object) -> Session | None:
    """Give PyMongo's session behind the one the caller has."""
    if session is None or isinstance(session, (AsyncClientSession, ClientSession)):
        return session
    delegate = getattr(session, "delegate", None)
    if isinstance(delegate, ClientSession):
        return delegate
    raise TypeError(
        f"session must be a PyMongo or Motor client session, not {type(session).__name__}"
    )


def _unwrap(database: object) -> AsyncDatabase[Document] | Database[Document]:
    if isinstance(database, (AsyncDatabase, Database)):
        return database
    with suppress(Exception):
        # Attribute access on a stranger may do anything: PyMongo's own objects invent children.
        if type(database).__module__.split(".")[0] == "motor":
            delegate = getattr(database, "delegate", None)
            if isinstance(delegate, Database):
                return delegate
    raise TypeError(
        "db must be a PyMongo AsyncDatabase, a PyMongo Database or a Motor database, "
        f"not {type(database).__module__}.{type(database).__qualname__}"
        + (
            "; call client['name'] or client.get_default_database() for a database"
            if "Client" in type(database).__name__
            else ""
        )
    )
