"""Reading change streams: cancellable waits, and a bounded close."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from pymongo.errors import OperationFailure, PyMongoError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from monque_core.store.driver import Collection, Document, Driver

_AWAIT_SECONDS = 30.0
_BLOCKING_AWAIT_SECONDS = 0.5
_LONGEST_CLOSE_SECONDS = 1.0
_NO_REPLICA_SET = 40573
_UNAUTHORIZED = 13


class ChangeStreamUnavailableError(Exception):
    """This server or user cannot open a change stream."""


def await_seconds(*, blocking: bool, socket_timeout: float | None) -> float:
    """Return how long the server may wait for a change before it replies without one."""
    longest = _BLOCKING_AWAIT_SECONDS if blocking else _AWAIT_SECONDS
    # A reply that takes longer than the client's socket timeout would look like a lost stream.
    return min(longest, socket_timeout / 2) if socket_timeout else longest


def streams_lag(hello: Mapping[str, object]) -> bool:
    """Whether change streams may be seconds late: those of a sharded cluster wait for idle shards.

    `hello` is the server's reply to this command; a `mongos` announces itself in it.
    """
    return hello.get("msg") == "isdbgrid"


async def opened(opening: Awaitable[Any]) -> Any:
    """Return the opened stream; raise `ChangeStreamUnavailableError` if there cannot be one."""
    try:
        return await opening
    except OperationFailure as error:
        if error.code in (_NO_REPLICA_SET, _UNAUTHORIZED):
            reason = (error.details or {}).get("errmsg") or str(error)
            raise ChangeStreamUnavailableError(str(reason)) from error
        raise


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


class ChangeStream:
    """One open change stream.

    A wait for an event may be cancelled; the next wait then gets the event.
    """

    def __init__(self, reader: Driver | Collection, native: Any, *, blocking: bool) -> None:
        self._reader = reader
        self._native = native
        self._blocking = blocking
        self._reading: asyncio.Future[Document | None] | None = None

    async def _next_event(self) -> Document | None:
        """Return the next event, None if there was none for a while.

        Raise `EOFError` when the server has ended the stream.
        """
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._reader.next_change(self._native))
            self._reading.add_done_callback(_mark_retrieved)
        reading = self._reading
        # A cancelled wait does not end the read: threads cannot stop, and it may have an event.
        await asyncio.wait([reading])
        self._reading = None
        event = reading.result()
        if event is None and not self._native.alive:
            raise EOFError("the server ended the change stream")
        return event

    async def close(self) -> None:
        """Close the stream; do not wait for a server that does not answer."""
        task = asyncio.current_task()
        cancellations = 0 if task is None else task.cancelling()
        reading, self._reading = self._reading, None
        if reading is not None:
            await self._let_end(reading)
        with contextlib.suppress(PyMongoError, TimeoutError):
            async with asyncio.timeout(_LONGEST_CLOSE_SECONDS):
                await self._reader.close(self._native)
        if task is not None and task.cancelling() > cancellations:
            # The cancellation was deferred until the stream was closed.
            raise asyncio.CancelledError

    async def _let_end(self, reading: asyncio.Future[Any]) -> None:
        """Wait for the current read to end, for a limited time and despite cancellation.

        A thread cannot be cancelled, and the stream must not be closed while it reads. A coroutine
        of the driver may have to be cancelled more than once.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + _LONGEST_CLOSE_SECONDS
        while not reading.done() and clock() < deadline:
            if not self._blocking:
                reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([reading], timeout=_LONGEST_CLOSE_SECONDS / 10)
        if not reading.done():
            # The server is frozen: the thread stays until it answers, but nobody waits for it.
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([reading], timeout=_LONGEST_CLOSE_SECONDS)


def _mark_retrieved(reading: asyncio.Future[Any]) -> None:
    """Keep asyncio from logging an error that came when nobody waited any more."""
    if not reading.cancelled():
        reading.exception()
