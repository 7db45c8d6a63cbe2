"""Reading source collections: their changes, their ids, and single documents."""

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
# The token is useless: no longer in the oplog, unreadable, or of another stream; or the event after
# it can never be read. Retrying does not help.
_HISTORY_LOST: Final = frozenset({136, 222, _FROM_AN_INVALIDATION, 280, 286, 10334})
_NON_RESUMABLE: Final = "NonResumableChangeStreamError"
# Transient: not ready, too slow, moved elsewhere. The token may still be good.
_PASSING: Final = frozenset(
    {6, 7, 43, 50, 63, 89, 133, 134, 150, 202, 234, 262, 290, 317, 9001, 13388}
)


class HistoryLostError(MonqueError):
    """The changes since the resume token are no longer available."""


@dataclass(frozen=True, slots=True)
class LastId:
    """The id after which a scan continues. Wrapped, because None is a valid id, too."""

    id: Any


@dataclass(frozen=True, slots=True)
class SourceChange:
    """A change of a document, or of a whole collection."""

    collection: str
    kind: ChangeKind
    """`replaced`: the collection was dropped or renamed, or another one got its name."""
    id: Any
    """The id of the document. None for a whole collection, but a document may have it, too."""
    at: datetime | None
    """The time of the change by the clock of the server."""
    cluster_time: Timestamp
    """The position in the order of all writes of the deployment."""


class SourceCollections:
    """Reads the collections that tasks watch, in any database of the deployment."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._await_seconds = await_seconds(
            blocking=driver.is_blocking, socket_timeout=driver.socket_timeout
        )

    async def open(
        self,
        database: str,
        collections: Sequence[str],
        token: Mapping[str, Any] | None = None,
        *,
        longest_wait: timedelta | None = None,
    ) -> SourceStream:
        """Open a change stream on collections of a database, from a resume token or from now.

        `longest_wait` shortens the wait of `next()` on a quiet stream. Raise `HistoryLostError` if
        the token is useless, and `ChangeStreamUnavailableError` if this server or user can have no
        change stream.
        """
        if token is not None and not (isinstance(token.get("resume"), dict) and token["resume"]):
            # PyMongo treats an empty token as none, and would start from now.
            raise HistoryLostError(f"{token!r}, stored for {database!r}, is not a resume token")
        seconds = self._await_seconds
        if longest_wait is not None:
            seconds = min(seconds, longest_wait.total_seconds())
        try:
            native = await self._watch(database, _with_event(collections, token), token, seconds)
        except OperationFailure as error:
            if token is None or error.code in _PASSING:
                raise
            if not _is_history_lost(error):
                # A bad token has many errors. If it works without a token, it was the token.
                fresh = await self._watch(database, collections, None, seconds)
                await self._driver.close(fresh)
            raise _history_lost(database, error) from error
        blocking = self._driver.is_blocking
        return SourceStream(self._driver, native, database, collections, token, blocking=blocking)

    async def ids_after(
        self, database: str, collection: str, after: LastId | None, limit: int
    ) -> list[Any]:
        """Return the ids after one in the order of the index, of any type."""
        chosen: Document = {}
        if after is not None:
            # {"$gt": …} compares within one type only; an expression compares all types.
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
        """Return a document as it is now, None if it is gone or does not match."""
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
            # A change stream requires it.
            read_concern=ReadConcern("majority"),
        )
        # Unlike resumeAfter, startAfter also continues after a dropped database.
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
        driver: Driver,
        native: Any,
        database: str,
        collections: Sequence[str],
        token: Mapping[str, Any] | None,
        *,
        blocking: bool,
    ) -> None:
        super().__init__(driver, native, blocking=blocking)
        self._database = database
        self._collections = tuple(collections)
        self._ready: deque[SourceChange] = deque()
        self._last: Document = {}
        self._token: Mapping[str, Any] = token or {}
        self._advance()

    @property
    def token(self) -> Mapping[str, Any]:
        """Return the token to resume with after all changes that `next()` has returned."""
        return self._token

    async def next(self) -> SourceChange | None:
        """Wait for a change and return it, None if there was none for a while.

        Raise `EOFError` if the server has ended the stream, as after the database was dropped, and
        `HistoryLostError` if it cannot be resumed. A cancelled call loses no change.
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
    """Return the collections to watch, including the one of the token's event.

    The server finds the position of a token by its event, which the filter must not hide.
    Otherwise, a task that is no longer declared would cost all others their history.
    """
    last = None if token is None else token.get("collection")
    if isinstance(last, str) and last not in collections:
        return [*collections, last]
    return collections


def _pipeline(collections: Sequence[str]) -> list[Document]:
    """Filter and project on the server, so that no document is sent to the leader."""
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
