"""Reading change streams so that nobody who waits is kept waiting."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from pymongo.errors import OperationFailure, PyMongoError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from monque_core.store.driver import Collection, Document, Driver

_AWAIT_SECONDS = 30.0
_BLOCKING_AWAIT_SECONDS = 0.5
_PATIENCE_SECONDS = 1.0
_NO_REPLICA_SET = 40573
_UNAUTHORIZED = 13


class ChangeStreamUnavailableError(Exception):
    """This server or user will never have a change stream."""


def await_seconds(*, blocking: bool, socket_timeout: float | None) -> float:
    """Tell how long the server may wait for a change before it says that there was none."""
    longest = _BLOCKING_AWAIT_SECONDS if blocking else _AWAIT_SECONDS
    # A reply that takes longer than the client's socket timeout would look like a lost stream.
    return min(longest, socket_timeout / 2) if socket_timeout else longest


async def opened(opening: Awaitable[Any]) -> Any:
    """Wait for the driver's stream; say so if there will never be one."""
    try:
        return await opening
    except OperationFailure as error:
        if error.code in (_NO_REPLICA_SET, _UNAUTHORIZED):
            reason = (error.details or {}).get("errmsg") or str(error)
            raise ChangeStreamUnavailableError(str(reason)) from error
        raise


class ChangeStream:
    """One open change stream.

    Whoever waits for an event may be cancelled: the event is then given to the next who waits.
    """

    def __init__(self, reader: Driver | Collection, native: Any, *, blocking: bool) -> None:
        self._reader = reader
        self._native = native
        self._blocking = blocking
        self._reading: asyncio.Future[Document | None] | None = None

    async def _next_event(self) -> Document | None:
        """Wait for an event; None if there was none for a while.

        Raise `EOFError` when the server has ended the stream.
        """
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._reader.next_change(self._native))
            self._reading.add_done_callback(_take_note)
        reading = self._reading
        # A thread cannot be called off, and a coroutine of the driver's may have an event already.
        await asyncio.wait([reading])
        self._reading = None
        event = reading.result()
        if event is None and not self._native.alive:
            raise EOFError("the server ended the change stream")
        return event

    async def close(self) -> None:
        """Stop watching; a server that does not answer is not waited for."""
        task = asyncio.current_task()
        cancellations = 0 if task is None else task.cancelling()
        reading, self._reading = self._reading, None
        if reading is not None:
            await self._let_end(reading)
        with contextlib.suppress(PyMongoError, TimeoutError):
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self._reader.close(self._native)
        if task is not None and task.cancelling() > cancellations:
            # It was put off until the stream was closed, but not forgotten.
            raise asyncio.CancelledError

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


def _take_note(reading: asyncio.Future[Any]) -> None:
    """Keep asyncio from complaining of a fault that came when nobody waited any more."""
    if not reading.cancelled():
        reading.exception()
