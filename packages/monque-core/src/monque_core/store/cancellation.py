"""Cancelling calls of the async driver without breaking its locks."""

from __future__ import annotations

import asyncio
import sys
import types
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

R = TypeVar("R")
_CLEAN_UP_SECONDS = 1.0
WAIT_FOR_IS_FRAGILE: Final = sys.version_info < (3, 12)
"""Whether this Python's `asyncio.wait_for` cannot be cancelled twice."""


@types.coroutine
def cancelled_in_turn(call: Coroutine[Any, Any, R]) -> Generator[Any, Any, R]:
    """Await a call of the driver; deliver one cancellation at a time.

    PyMongo waits for its conditions with `asyncio.wait_for`. Before Python 3.12, that waits in a
    task of its own, which takes back the lock of the condition when it is cancelled. A second
    cancellation abandons that task: "RuntimeError: Lock is not acquired" is raised, the lock stays
    taken forever, and every later call of the same client hangs.

    This drives the coroutine as a task does, and costs less than a task.
    """
    task = asyncio.current_task()
    assert task is not None
    cancellations = task.cancelling()
    error: BaseException | None = None
    while True:
        try:
            waiting = call.send(None) if error is None else call.throw(error)
        except StopIteration as done:
            result: R = done.value
            return result
        is_ending = isinstance(error, asyncio.CancelledError) and task.cancelling() > cancellations
        error = None
        if is_ending and waiting is not None:
            error = yield from _wait_until_done(waiting)
            continue
        try:
            yield waiting
        except GeneratorExit:
            call.close()
            raise
        except BaseException as thrown:  # noqa: BLE001  # the call decides what it means
            error = thrown


def _wait_until_done(
    waiting: asyncio.Future[Any],
) -> Generator[Any, Any, asyncio.CancelledError | None]:
    """Wait for a future, and return a cancellation that came in the meantime.

    After that one, wait a limited time: the driver may have swallowed the first cancellation and
    wait for the server.
    """
    repeated: asyncio.CancelledError | None = None
    while not waiting.done():
        seconds = None if repeated is None else _CLEAN_UP_SECONDS
        try:
            _, unfinished = yield from asyncio.wait([waiting], timeout=seconds).__await__()
        except asyncio.CancelledError as error:
            repeated = error
        else:
            if unfinished:
                break
    return repeated
