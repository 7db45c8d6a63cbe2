"""Runs that take too long."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any

import pytest

from monque_core import Monque
from tests.support.happenings import Happenings
from tests.support.polling import NO_POLLS
from tests.support.stored import stored
from tests.support.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job
    from tests.conftest import AnyDatabase


@pytest.mark.parametrize(
    ("of_worker", "of_job", "limit"),
    [(0.05, None, "0:00:00.050000"), (3600, 0.05, "0:00:00.050000"), (None, 0.06, "0:00:00.06")],
    ids=["the worker's", "the job's over the worker's", "the job's alone"],
)
async def test_a_run_is_cancelled_at_its_timeout_and_fails_saying_so(
    any_db: AnyDatabase,
    db: AsyncDatabase[dict[str, Any]],
    of_worker: float | None,
    of_job: float | None,
    limit: str,
) -> None:
    monque = Monque(any_db, max_retries=1, **NO_POLLS)
    cancelled = Tally[bool]()

    @monque.worker("slow", timeout=of_worker)
    async def sleep(job: Job[None]) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.add(True)
            raise

    happenings = Happenings(monque)
    job = await monque.enqueue("slow", None, timeout=of_job)
    async with monque:
        (failure,) = await happenings.reach("job:fail")

    after = await stored(db, job)
    assert cancelled == [True]
    assert after.status == "failed"
    assert after.fail_count == 1
    assert str(after.fail_reason).startswith("TimeoutError: ")
    assert f"timeout of {limit}" in str(after.fail_reason)
    assert isinstance(failure.error, TimeoutError)


async def test_a_job_may_have_more_time_than_its_worker_gives_others(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque = Monque(db, max_retries=1, **NO_POLLS)

    @monque.worker("slow", timeout=0.05)
    async def sleep(job: Job[None]) -> None:
        await asyncio.sleep(0.3)

    happenings = Happenings(monque)
    patient = await monque.enqueue("slow", None, timeout=3600)
    async with monque:
        await happenings.reach("job:complete")

    assert (await stored(db, patient)).status == "completed"


async def ignore(job: Job[None]) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(3600)


async def go_on(job: Job[None]) -> None:
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        await asyncio.sleep(0.05)


async def fail_in_cleanup(job: Job[None]) -> None:
    try:
        await asyncio.sleep(3600)
    finally:
        raise ConnectionError("could not clean up")


@pytest.mark.parametrize("handler", [ignore, go_on, fail_in_cleanup])
async def test_a_timeout_is_a_failure_even_if_the_handler_suppresses_it(
    db: AsyncDatabase[dict[str, Any]], handler: Callable[[Job[None]], Any]
) -> None:
    monque = Monque(db, max_retries=1, **NO_POLLS)
    monque.worker("stubborn", handler, timeout=0.05)
    happenings = Happenings(monque)
    job = await monque.enqueue("stubborn", None)
    async with monque:
        await happenings.reach("job:fail")

    after = await stored(db, job)
    assert after.status == "failed"
    assert "timeout of 0:00:00.05" in str(after.fail_reason)


async def test_a_handler_s_own_timeout_error_is_an_ordinary_failure(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque = Monque(db, max_retries=1, **NO_POLLS)

    @monque.worker("impatient", timeout=3600)
    async def fetch(job: Job[None]) -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(3600)

    happenings = Happenings(monque)
    job = await monque.enqueue("impatient", None)
    async with monque:
        await happenings.reach("job:fail")

    assert (await stored(db, job)).fail_reason == "TimeoutError"


async def test_a_thread_past_its_timeout_keeps_slot_and_claim_until_it_returns(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(any_db, max_retries=1, heartbeat_interval=0.1, **NO_POLLS)
    starts = Tally[str]()
    may_return, returned = threading.Event(), Tally[str]()

    @monque.worker("blocking", concurrency=1)
    def block(job: Job[str]) -> None:
        starts.add(job.data)
        if job.data == "late":
            may_return.wait(120)
            returned.add(job.data)

    happenings = Happenings(monque)
    late = await monque.enqueue("blocking", "late", timeout=0.05)
    await monque.enqueue("blocking", "next")
    async with monque:
        await starts.reach(1)
        claimed = await stored(db, late)
        # Several heartbeats later, the timeout has passed and the thread still runs.
        await eventually_renewed(db, claimed, times=4)
        during = await stored(db, late)
        assert starts == ["late"]
        assert not happenings.of("job:fail")
        may_return.set()
        await starts.reach(2)
        await happenings.reach("job:fail")

    assert during.status == "processing"
    assert during.claim_token == claimed.claim_token
    after = await stored(db, late)
    assert after.status == "failed"
    assert "timeout of 0:00:00.05" in str(after.fail_reason)
    assert returned == ["late"]
    assert starts == ["late", "next"]


async def eventually_renewed(
    db: AsyncDatabase[dict[str, Any]], job: Job[Any], *, times: int
) -> None:
    """Wait until a job's heartbeat has moved this many times."""
    seen = {job.last_heartbeat}
    async with asyncio.timeout(120):
        while len(seen) <= times:
            await asyncio.sleep(0.02)
            seen.add((await stored(db, job)).last_heartbeat)
