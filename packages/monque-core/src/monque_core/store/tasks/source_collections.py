"""The source collections: what changed in them, which documents they have, and each as it is."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from pymongo import ReadPreference
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern

from monque_core.errors import MonqueError
from monque_core.store.change_stream import ChangeStream, await_seconds, opened

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime, timedelta

    from bson import Timestamp

    from monque_core.store.driver import Document, Driver, Session

ChangeKind: TypeAlias = Literal["changed", "deleted", "replaced"]

_BATCH_SIZE = 1000
_DOCUMENT_EVENTS: Final = ("insert", "update", "replace", "delete")
_COLLECTION_EVENTS: Final = ("drop", "rename")
_DATABASE_EVENTS: Final = ("dropDatabase", "invalidate")
_FROM_AN_INVALIDATION = 260
# The token is of no use: not in the oplog any more, not readable, or not of this stream; or the
# event that follows it can never be read. Each time it would be the same again.
_HISTORY_LOST: Final = frozenset({136, 222, _FROM_AN_INVALIDATION, 280, 286, 10334})
_NON_RESUMABLE: Final = "NonResumableChangeStreamError"
# Not ready, too slow, moved elsewhere: the token may be as good as ever.
_PASSING: Final = frozenset(
    {6, 7, 43, 50, 63, 89, 133, 134, 150, 202, 234, 262, 290, 317, 9001, 13388}
)


class HistoryLostError(MonqueError):
    """What happened since the resume token cannot be had any more."""


@dataclass(frozen=True, slots=True)
class LastId:
    """The id after which a scan goes on; in a box, for None is an id, too."""

    id: Any


@dataclass(frozen=True, slots=True)
class SourceChange:
    """Something happened to a document, or to a collection as a whole."""

    collection: str
    kind: ChangeKind
    """`replaced`: the collection was dropped or renamed, or another one got its name."""
    id: Any
    """The document's; None where the collection is meant, but documents may have it, too."""
    at: datetime | None
    """When it happened, by the clock of the server that wrote it."""
    cluster_time: Timestamp
    """Its place in the order of all writes of the deployment."""


class SourceCollections:
    """The collections that tasks follow, in any database of the deployment."""

    def __init__(self, handle: Driver) -> None:
        self._driver = handle
        self._await_seconds = await_seconds(
            blocking=handle.is_blocking, socket_timeout=handle.socket_timeout
        )

    async def open(
        self,
        database: str,
        collections: Sequence[str],
        token: Mapping[str, Any] | None = None,
        *,
        longest_wait: timedelta | None = None,
    ) -> SourceStream:
        """Watch collections of a database, from a resume token on or from now on.

        `longest_wait` shortens the time after which a quiet stream says that there is nothing.
        Raise `HistoryLostError` if the token is of no use, and `ChangeStreamUnavailableError` if
        this server or user will never have a change stream.
        """
        if token is not None and not (isinstance(token.get("resume"), dict) and token["resume"]):
            # The driver takes an empty one for none at all, and would begin with what comes now.
            raise HistoryLostError(f"the resume token {token!r} of {database!r} is none")
        seconds = self._await_seconds
        if longest_wait is not None:
            seconds = min(seconds, longest_wait.total_seconds())
        try:
            native = await self._watch(database, _with_event(collections, token), token, seconds)
        except OperationFailure as error:
            if token is None or error.code in _PASSING:
                raise
            if not _is_history_lost(error):
                # Servers have many ways to refuse a token; without one, they have no such reason.
                fresh = await self._watch(database, collections, None, seconds)
                await self._driver.close(fresh)
            raise _history_lost(database, error) from error
        blocking = self._driver.is_blocking
        return SourceStream(self._driver, native, database, collections, token, blocking=blocking)

    async def ids_after(
        self, database: str, collection: str, after: LastId | None, limit: int
    ) -> list[Any]:
        """Read the ids that follow one in the order of the index, of whatever type they are."""
        chosen: Document = {}
        if after is not None:
            # A plain {"$gt": …} compares within one type; an expression has all of them in order.
            chosen = {"$expr": {"$gt": ["$_id", {"$literal": after.id}]}}
        found = await self._driver.collection(collection, database).find(
            chosen, projection={"_id": 1}, sort=[("_id", 1)], hint=[("_id", 1)], limit=limit
        )
        return [document["_id"] for document in found]

    async def document(
        self,
        database: str,
        collection: str,
        id: Any,
        filter: Mapping[str, Any],
        *,
        projection: Mapping[str, Any] | Sequence[str] | None = None,
        session: Session | None = None,
    ) -> Document | None:
        """Read a document as it is now, if it is there and matches."""
        return await self._driver.collection(collection, database).find_one(
            {"$and": [{"_id": {"$eq": id}}, filter]}, projection=projection, session=session
        )

    async def _watch(
        self,
        database: str,
        collections: Sequence[str],
        token: Mapping[str, Any] | None,
        seconds: float,
    ) -> Any:
        native = self._driver.native.client.get_database(
            database,
            codec_options=self._driver.codec,
            read_preference=ReadPreference.PRIMARY,
            # A change stream only ever tells of what a majority has.
            read_concern=ReadConcern("majority"),
        )
        # Unlike resumeAfter, startAfter also goes on after the end of a database.
        opening = self._driver.call(
            native.watch,
            _pipeline(collections),
            start_after=None if token is None else token["resume"],
            max_await_time_ms=max(1, int(seconds * 1000)),
            batch_size=_BATCH_SIZE,
        )
        return await opened(opening)


class SourceStream(ChangeStream):
    """One open change stream on the source collections of a database."""

    def __init__(
        self,
        handle: Driver,
        native: Any,
        database: str,
        collections: Sequence[str],
        token: Mapping[str, Any] | None,
        *,
        blocking: bool,
    ) -> None:
        super().__init__(handle, native, blocking=blocking)
        self._database = database
        self._collections = tuple(collections)
        self._ready: deque[SourceChange] = deque()
        self._last: Document = {}
        self._token: Mapping[str, Any] = token or {}
        self._advance()

    @property
    def token(self) -> Mapping[str, Any]:
        """Give the token to go on with after all that `next()` has given."""
        return self._token

    async def next(self) -> SourceChange | None:
        """Wait for a change; None if there was none for a while.

        Raise `EOFError` when the server has ended the stream, as it does when the database is
        dropped, and `HistoryLostError` when it cannot go on. No change is lost to a cancelled
        waiter.
        """
        event = None if self._ready else await self._event()
        if event is not None:
            self._last = event
            self._ready.extend(self._changes(event))
        change = self._ready.popleft() if self._ready else None
        if not self._ready:
            self._advance()
        return change

    def _advance(self) -> None:
        resume = self._native.resume_token
        if resume == self._token.get("resume"):
            return
        self._token = {"resume": resume}
        if resume == self._last.get("_id"):
            self._token = {"resume": resume, "collection": self._last.get("ns", {}).get("coll")}

    async def _event(self) -> Document | None:
        try:
            return await self._next_event()
        except OperationFailure as error:
            if _is_history_lost(error):
                raise _history_lost(self._database, error) from error
            raise

    def _changes(self, event: Document) -> list[SourceChange]:
        kind, at, time = event["operationType"], event.get("wallTime"), event["clusterTime"]
        if kind == "invalidate":
            return []
        if kind in _DOCUMENT_EVENTS:
            collection = event["ns"]["coll"]
            did: ChangeKind = "deleted" if kind == "delete" else "changed"
            is_watched = collection in self._collections
            id = event["documentKey"]["_id"]
            return [SourceChange(collection, did, id, at, time)] if is_watched else []
        touched = {event["ns"].get("coll"), event.get("to", {}).get("coll")}
        is_all = kind == "dropDatabase"
        return [
            SourceChange(collection, "replaced", None, at, time)
            for collection in self._collections
            if is_all or collection in touched
        ]


def _with_event(collections: Sequence[str], token: Mapping[str, Any] | None) -> Sequence[str]:
    """Watch the collection of the token's event, too.

    The server finds the place of a token by its event, which the filter must not hide: a task that
    is not declared any more would else cost all others their history.
    """
    last = None if token is None else token.get("collection")
    if isinstance(last, str) and last not in collections:
        return [*collections, last]
    return collections


def _pipeline(collections: Sequence[str]) -> list[Document]:
    """Filter and cut on the server: no document ever reaches the leader."""
    watched = {"$in": list(collections)}
    return [
        {
            "$match": {
                "$or": [
                    {"operationType": {"$in": list(_DOCUMENT_EVENTS)}, "ns.coll": watched},
                    {
                        "operationType": {"$in": list(_COLLECTION_EVENTS)},
                        "$or": [{"ns.coll": watched}, {"to.coll": watched}],
                    },
                    {"operationType": {"$in": list(_DATABASE_EVENTS)}},
                ]
            }
        },
        {
            "$project": {
                "operationType": 1,
                "ns": 1,
                "to": 1,
                "documentKey._id": 1,
                "clusterTime": 1,
                "wallTime": 1,
            }
        },
    ]


def _is_history_lost(error: OperationFailure) -> bool:
    return error.code in _HISTORY_LOST or error.has_error_label(_NON_RESUMABLE)


def _history_lost(database: str, error: OperationFailure) -> HistoryLostError:
    reason = (error.details or {}).get("errmsg") or str(error)
    return HistoryLostError(f"the changes of the database {database!r} cannot be resumed: {reason}")
