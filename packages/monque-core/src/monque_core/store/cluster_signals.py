"""Signals between instances: a small capped collection that every running instance tails.

A tailing cursor costs the server nothing while the collection is silent, where a change stream
makes it examine every write. Signals are hints: whoever misses one learns the same from the meta
collection, or by looking at the queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from bson import ObjectId
from pymongo.errors import OperationFailure

from monque_core.store.change_stream import ChangeStream, await_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monque_core.store.driver import Collection, Document

SignalKind: TypeAlias = Literal["wake", "invite", "vacancy", "listeners"]
_SIZE_BYTES: Final = 1024 * 1024
_MOST_SIGNALS: Final = 5000
_TAIL_SECONDS: Final = 60.0
_PERMANENT: Final = frozenset({2, 13, 20, 59, 72, 73, 115, 166, 303})
"""Error codes of servers and users without tailing cursors, such as 2 where the collection exists
and is not capped, and 13 where it may not be written to."""


class SignalsUnavailableError(Exception):
    """This server or user will never have signals."""


@dataclass(frozen=True, slots=True)
class Signal:
    """A message to some instances, or to all."""

    kind: SignalKind
    sender: str
    pool: str
    names: tuple[str, ...]


class ClusterSignals:
    """Where signals are sent and received."""

    def __init__(
        self, collection: Collection, *, blocking: bool, socket_timeout: float | None
    ) -> None:
        self._collection = collection
        self._blocking = blocking
        seconds = await_seconds(blocking=blocking, socket_timeout=socket_timeout)
        if not blocking and socket_timeout is None:
            seconds = _TAIL_SECONDS
        self._await_ms = int(1000 * seconds)

    async def send(
        self,
        kind: SignalKind,
        *,
        sender: str,
        pool: str,
        to: Sequence[str] | None = None,
        names: Sequence[str] = (),
    ) -> None:
        """Send a signal to these instances; without `to`, to all."""
        signal: Document = {"kind": kind, "from": sender, "pool": pool, "names": list(names)}
        if to is not None:
            signal["to"] = list(to)
        await self._put(signal)

    async def open(self, instance_id: str) -> SignalTail:
        """Return a cursor on the signals to an instance that are sent from now on."""
        try:
            # The server closes a tailing cursor on an empty collection at once.
            first = await self._put({"kind": "open", "from": instance_id, "to": []})
            addressed = {"at": {"$gte": first["at"]}, "to": {"$in": [instance_id, None]}}
            native = await self._collection.tail(addressed, self._await_ms)
        except OperationFailure as error:
            _raise_permanent(error)
            raise
        return SignalTail(self._collection, native, blocking=self._blocking)

    async def _put(self, signal: Document) -> Document:
        """Insert a signal with the time of the server, and return it."""
        # An upsert would create a collection that was dropped, but not as a capped one.
        await self._collection.create_capped(_SIZE_BYTES, _MOST_SIGNALS)
        values = {field: {"$literal": value} for field, value in signal.items()}
        stored = await self._collection.find_one_and_update(
            {"_id": ObjectId()}, [{"$set": {**values, "at": "$$NOW"}}], upsert=True
        )
        assert stored is not None
        return stored


class SignalTail(ChangeStream):
    """An open cursor on the signals to one instance."""

    async def next(self) -> Signal | None:
        """Wait for a signal; None if there was none for a while, or one that is not known here.

        Raise `EOFError` when the server has closed the cursor, `SignalsUnavailableError` when it
        will never have one.
        """
        try:
            document = await self._next_event()
        except OperationFailure as error:
            _raise_permanent(error)
            raise
        return None if document is None else _read(document)


def _raise_permanent(error: OperationFailure) -> None:
    if error.code in _PERMANENT:
        raise SignalsUnavailableError(str(error)) from error


def _read(document: Document) -> Signal | None:
    kind, sender, pool = document.get("kind"), document.get("from"), document.get("pool")
    names: Any = document.get("names")
    if kind not in get_args(SignalKind) or not isinstance(names, list):
        return None
    if not isinstance(sender, str) or not isinstance(pool, str):
        return None
    return Signal(document["kind"], sender, pool, tuple(n for n in names if isinstance(n, str)))
