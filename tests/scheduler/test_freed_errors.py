"""Exceptions of handlers are freed after settling, without the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from monque_core import Job, Monque
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo.asynchronous.database import AsyncDatabase


class HandlerError(Exception):
    """An exception whose lifetime the test can observe."""


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("kind", ["coroutine", "thread", "late coroutine"])
async def test_an_error_is_freed_with_its_run(
    db: AsyncDatabase[dict[str, Any]], no_collector: None, kind: str
) -> None:
    monque = Monque(db, base_retry_interval=3600)
    raised: list[weakref.ref[HandlerError]] = []
    failures: list[str] = []
    monque.on("job:fail", lambda event: failures.append(event.job.fail_reason))

    def fail() -> None:
        error = HandlerError("as told")
        raised.append(weakref.ref(error))
        try:
            raise error
        finally:
            del error

    async def fail_on_the_loop(job: Job[int]) -> None:
        if kind == "late coroutine":
            try:
                await asyncio.sleep(60)
            finally:
                fail()
        fail()

    def fail_in_a_thread(job: Job[int]) -> None:
        fail()

    monque.worker("work", fail_in_a_thread if kind == "thread" else fail_on_the_loop)
    timeout = 0.01 if kind == "late coroutine" else None
    async with monque:
        await monque.enqueue_many("work", range(20), timeout=timeout)
        await monque.run_until_idle()
        assert len(raised) == len(failures) == 20
        # A thread releases its last exception with a delay.
        await eventually(lambda: all(error() is None for error in raised))
