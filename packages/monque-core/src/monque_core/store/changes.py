"""The change stream: which job became due, or will, and when."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pymongo.errors import OperationFailure, PyMongoError

from monque_core.jobs.job import JobStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monque_core.store.handle import Collection, Document

_AWAIT_SECONDS = 30.0
_BLOCKING_AWAIT_SECONDS = 0.5
_PATIENCE_SECONDS = 1.0
_NO_REPLICA_SET = 40573
_UNAUTHORIZED = 13


class ChangeStreamUnavailableError(Exception):
    """This server or user will never have a change stream."""


@dataclass(frozen=True, slots=True)
class Change:
    """A job was inserted, became pending, or was moved in time."""

    job_id: str
    name: str
    due_at: datetime
    is_insert: bool


class Changes:
    """Where change streams on the jobs collection are opened."""

    def __init__(
        self, collection: Collection, *, blocking: bool, socket_timeout: float | None
    ) -> None:
        self._collection = collection
        longest = _BLOCKING_AWAIT_SECONDS if blocking else _AWAIT_SECONDS
        # A reply that takes longer than the client's socket timeout would look like a lost stream.
        self._await_seconds = min(longest, socket_timeout / 2) if socket_timeout else longest
        self._blocking = blocking

    async def open(self, names: Sequence[str]) -> ChangeStream:
        """Start watching the jobs of these names; what happens from now on will be seen."""
        try:
            native = await self._collection.watch(_pipeline(names), int(self._await_seconds * 1000))
        except OperationFailure as error:
            if error.code in (_NO_REPLICA_SET, _UNAUTHORIZED):
                reason = (error.details or {}).get("errmsg") or str(error)
                raise ChangeStreamUnavailableError(str(reason)) from error
            raise
        return ChangeStream(self._collection, native, blocking=self._blocking)


class ChangeStream:
    """One open change stream."""

    def __init__(self, collection: Collection, native: Any, *, blocking: bool) -> None:
        self._collection = collection
        self._native = native
        self._blocking = blocking

    async def next(self) -> Change | None:
        """Wait for a change; None if there was none for a while.

        Raise `EOFError` when the server has ended the stream, as it does when the collection
        is dropped.
        """
        event = await self._try_next()
        if event is None:
            if not self._native.alive:
                raise EOFError("the server ended the change stream")
            return None
        due_at, name = event.get("nextRunAt"), event.get("name")
        if not isinstance(due_at, datetime) or not isinstance(name, str):
            return None
        is_insert = event["operationType"] == "insert"
        return Change(str(event["documentKey"]["_id"]), name, due_at, is_insert)

    async def _try_next(self) -> Document | None:
        reading = asyncio.ensure_future(self._collection.next_change(self._native))
        try:
            event: Document | None = await asyncio.shield(reading)
        except asyncio.CancelledError:
            await self._let_end(reading)
            raise
        return event

    async def _let_end(self, reading: asyncio.Future[Any]) -> None:
        """Wait for a reply that is due soon, however often we are cancelled, but not for ever.

        A thread cannot be called off, and the stream must not be closed under it; a coroutine of
        the driver's may have to be told more than once.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + _PATIENCE_SECONDS
        while not reading.done() and clock() < deadline:
            if not self._blocking:
                reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([reading], timeout=_PATIENCE_SECONDS / 10)
        if not reading.done():
            # The server is frozen: the thread stays until it answers, but nothing waits for it.
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([reading], timeout=_PATIENCE_SECONDS)

    async def close(self) -> None:
        """Stop watching; a server that does not answer is not waited for."""
        with contextlib.suppress(PyMongoError, TimeoutError):
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self._collection.close(self._native)


def _pipeline(names: Sequence[str]) -> list[Document]:
    """Filter on the server: foreign jobs and changes that make nothing due never reach us."""
    return [
        {
            "$match": {
                "$or": [
                    {"operationType": {"$in": ["insert", "replace"]}},
                    {
                        "operationType": "update",
                        "$or": [
                            {"updateDescription.updatedFields.status": JobStatus.PENDING},
                            {"updateDescription.updatedFields.nextRunAt": {"$exists": True}},
                        ],
                    },
                    {"operationType": {"$in": ["invalidate", "drop", "rename", "dropDatabase"]}},
                ]
            }
        },
        {
            "$match": {
                "$or": [
                    {
                        "fullDocument.name": {"$in": list(names)},
                        "fullDocument.status": JobStatus.PENDING,
                    },
                    {"operationType": {"$in": ["invalidate", "drop", "rename", "dropDatabase"]}},
                ]
            }
        },
        {
            "$project": {
                "operationType": 1,
                "documentKey": 1,
                "name": "$fullDocument.name",
                "nextRunAt": "$fullDocument.nextRunAt",
            }
        },
    ]
