"""Stopping while jobs are running."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from monque_core import Monque, ShutdownTimeoutError
from monque_core.events import JobErrored
from tests.support.happenings import Happenings
from tests.support.leftovers import Leftovers
from tests.support.polling import NO_POLLS, QUICK_POLLS
from tests.support.stored import count_by_status, jobs_in, stored, stored_jobs
from tests.support.tally import Tally
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job
    from tests.conftest import AnyDatabase


@pytest.mark.parametrize("timeout", [-1, "soon", float("nan"), True])
async def test_a_bad_timeout_is_refused_and_stops_nothing(
    db: AsyncDatabase[dict[str, Any]], timeout: Any
) -> None:
    async with Monque(db) as monque:
        with pytest.raises(ValueError, match=r"timeout="):
            await monque.stop(timeout)
        assert monque.is_running


async def test_stop_waits_for_running_jobs_and_claims_no_more(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
) -> None:
    leftovers = Leftovers()
    monque = Monque(any_db, **NO_POLLS)
    starts = Tally[str]()
    may_end = threading.Event()

    @monque.worker("coroutine", concurrency=1)
    async def wait_on_the_loop(job: Job[int]) -> None:
        starts.add(f"{job.name} {job.data}")
        await eventually(may_end.is_set)

    @monque.worker("function", concurrency=1)
    def wait_in_a_thread(job: Job[int]) -> None:
        starts.add(f"{job.name} {job.data}")
        may_end.wait(120)

    for name in ("coroutine", "function"):
        await monque.enqueue_many(name, range(3))
    await monque.start()
    await starts.reach(2)
    stopping = asyncio.create_task(monque.stop())
    await asyncio.sleep(0.1)
    await monque.enqueue("coroutine", 99)
    assert not stopping.done()
    may_end.set()
    await stopping

    assert sorted(starts) == ["coroutine 0", "function 0"]
    assert await count_by_status(db) == {"completed": 2, "pending": 5}
    assert not await jobs_in(db).count_documents({"status": "pending", "claims": {"$gt": 0}})
    assert not leftovers.tasks
    assert not leftovers.threads


async def test_three_concurrent_stops_wait_for_the_same_stop(any_db: AnyDatabase) -> None:
    leftovers = Leftovers()
    monque = Monque(any_db, **NO_POLLS)
    ends = Tally[str]()
    started, may_end = asyncio.Event(), asyncio.Event()

    @monque.worker("waiting")
    async def wait(job: Job[None]) -> None:
        started.set()
        await may_end.wait()
        ends.add("job")

    async def stop() -> None:
        await monque.stop()
        ends.add("stop")

    happenings = Happenings(monque)
    await monque.enqueue("waiting", None)
    await monque.start()
    await happenings.reach("changestream:connected")
    await asyncio.wait_for(started.wait(), 120)
    stops = [asyncio.create_task(stop()) for _ in range(3)]
    await asyncio.sleep(0.1)
    assert not ends
    may_end.set()
    await asyncio.gather(*stops)

    assert ends == ["job", "stop", "stop", "stop"]
    assert happenings.names.count("job:complete") == 1
    assert happenings.names.count("changestream:closed") == 1
    assert not leftovers.tasks
    assert not leftovers.threads


async def test_a_stop_without_a_waiting_caller_continues(db: AsyncDatabase[dict[str, Any]]) -> None:
    leftovers = Leftovers()
    monque = Monque(db, **NO_POLLS)
    started, may_end = asyncio.Event(), asyncio.Event()

    @monque.worker("waiting")
    async def wait(job: Job[None]) -> None:
        started.set()
        await may_end.wait()

    job = await monque.enqueue("waiting", None)
    await monque.start()
    await asyncio.wait_for(started.wait(), 120)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(monque.stop(), 0.05)
    may_end.set()
    await monque.stop()

    assert (await stored(db, job)).status == "completed"
    assert not monque.is_running
    assert not leftovers.tasks


async def test_coroutines_that_outlast_the_timeout_are_cancelled_and_released(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
) -> None:
    leftovers = Leftovers()
    monque = Monque(any_db, **NO_POLLS)
    starts, cancelled = Tally[Any](), Tally[Any]()

    @monque.worker("endless", concurrency=3)
    async def wait(job: Job[int]) -> None:
        starts.add(job.id)
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.add(job.id)
            raise

    happenings = Happenings(monque)
    jobs = await monque.enqueue_many("endless", range(3))
    await monque.start()
    await starts.reach(3)
    await monque.stop(timeout=0.1)

    ids = {job.id for job in jobs}
    assert set(cancelled) == ids
    ((name, told),) = [one for one in happenings.all if one[0] in ("job:error", "job:fail")]
    assert name == "job:error"
    assert told == JobErrored(told.error, None)
    assert isinstance(told.error, ShutdownTimeoutError)
    assert {job.id for job in told.error.incomplete_jobs} == ids
    for after in await stored_jobs(db):
        assert after.status == "pending"
        assert (after.fail_count, after.claims, after.fail_reason) == (0, 0, None)
        assert (after.claimed_by, after.locked_at, after.last_heartbeat) == (None, None, None)
    assert not leftovers.tasks
    assert not leftovers.threads


async def test_shutdown_timeout_is_the_default_of_stop(db: AsyncDatabase[dict[str, Any]]) -> None:
    monque = Monque(db, shutdown_timeout=0.1, **NO_POLLS)
    started = asyncio.Event()

    @monque.worker("endless")
    async def wait(job: Job[None]) -> None:
        started.set()
        await asyncio.sleep(3600)

    happenings = Happenings(monque)
    await monque.enqueue("endless", None)
    async with monque:
        await asyncio.wait_for(started.wait(), 120)

    (told,) = happenings.of("job:error")
    assert isinstance(told.error, ShutdownTimeoutError)
    assert await count_by_status(db) == {"pending": 1}


async def test_a_coroutine_that_succeeds_despite_its_cancellation_is_completed(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque = Monque(db, **NO_POLLS)
    started = asyncio.Event()

    @monque.worker("finishing")
    async def finish(job: Job[None]) -> None:
        started.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await asyncio.sleep(0.05)

    job = await monque.enqueue("finishing", None)
    await monque.start()
    await asyncio.wait_for(started.wait(), 120)
    await monque.stop(timeout=0.1)

    assert (await stored(db, job)).status == "completed"


async def test_a_thread_that_outlasts_the_timeout_is_left_and_so_is_its_job(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
) -> None:
    leftovers = Leftovers()
    monque = Monque(any_db, **NO_POLLS)
    starts, ends = Tally[threading.Thread](), Tally[int]()
    may_end = threading.Event()

    @monque.worker("blocking")
    def block(job: Job[None]) -> None:
        starts.add(threading.current_thread())
        may_end.wait(120)
        ends.add(1)

    happenings = Happenings(monque)
    job = await monque.enqueue("blocking", None)
    await monque.start()
    await starts.reach(1)
    await monque.stop(timeout=0.1)
    left = await stored(db, job)
    threads = leftovers.threads
    may_end.set()
    await ends.reach(1)
    await eventually(lambda: not leftovers.threads)

    (told,) = happenings.of("job:error")
    assert [one.id for one in told.error.incomplete_jobs] == [job.id]
    assert left.status == "processing"
    assert left.claimed_by == monque.scheduler_instance_id
    assert threads == list(starts)
    assert threads[0].daemon
    assert not leftovers.tasks
    # Its outcome comes too late to be written: the job runs again on another instance.
    assert await stored(db, job) == left
    assert not happenings.of("job:complete")


async def test_a_job_left_by_a_stop_runs_again_elsewhere(db: AsyncDatabase[dict[str, Any]]) -> None:
    leftovers = Leftovers()
    monque = Monque(db, heartbeat_interval=0.1, **NO_POLLS)
    successor = Monque(db, heartbeat_interval=0.1, **NO_POLLS)
    starts, runs = Tally[int](), Tally[int]()
    may_end = threading.Event()

    @monque.worker("blocking")
    def block(job: Job[None]) -> None:
        starts.add(job.claims)
        may_end.wait(120)

    @successor.worker("blocking")
    async def succeed(job: Job[None]) -> None:
        runs.add(job.claims)

    await monque.enqueue("blocking", None)
    await monque.start()
    await starts.reach(1)
    await monque.stop(timeout=0)
    async with successor:
        await runs.reach(1)
    may_end.set()
    await eventually(lambda: not leftovers.threads)

    assert runs == [2]
    assert await count_by_status(db) == {"completed": 1}


async def test_jobs_are_kept_alive_while_stop_waits_for_them(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(any_db, heartbeat_interval=0.2, **NO_POLLS)
    other = Monque(any_db, heartbeat_interval=0.2, **QUICK_POLLS)
    starts, may_end = Tally[str](), asyncio.Event()

    async def wait(job: Job[None]) -> None:
        starts.add(str(job.claimed_by))
        await may_end.wait()

    monque.worker("long", wait)
    happenings = Happenings(other)
    job = await monque.enqueue("long", None)
    await monque.start()
    await starts.reach(1)
    other.worker("long", wait)
    async with other:
        stopping = asyncio.create_task(monque.stop())
        heartbeats = {(await stored(db, job)).last_heartbeat}

        async def has_beaten_often() -> bool:
            heartbeats.add((await stored(db, job)).last_heartbeat)
            return len(heartbeats) > 6

        # More than the three heartbeats after which a silent instance counts as dead.
        await eventually(has_beaten_often)
        assert not stopping.done()
        may_end.set()
        await stopping

    assert starts == [monque.scheduler_instance_id]
    assert not happenings.of("stale:recovered")
    assert (await stored(db, job)).status == "completed"


async def test_a_stop_with_timeout_zero_leaves_no_claim_behind(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(any_db, heartbeat_interval=600, **NO_POLLS)
    starts = Tally[int]()

    @monque.worker("busy", concurrency=5)
    async def note(job: Job[int]) -> None:
        starts.add(job.data)
        await asyncio.sleep(0.001)

    await monque.enqueue_many("busy", range(2000))
    for life in range(1, 9):
        before = len(starts)
        await monque.start()
        await starts.reach(before + 5 * life)
        await monque.stop(timeout=0)
        left = await jobs_in(db).find({"status": "processing"}).to_list()
        assert not left, f"{len(left)} claims nobody runs"

    pending = await stored_jobs(db, status="pending")
    assert pending
    assert all(job.claims == job.fail_count == 0 for job in pending)


async def test_stop_within_a_handler_takes_as_long_as_its_timeout_and_no_longer(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
) -> None:
    leftovers = Leftovers()
    monque = Monque(any_db, **NO_POLLS)
    runs, outcomes = Tally[str](), Tally[str]()

    @monque.worker("suicidal")
    async def stop(job: Job[None]) -> None:
        runs.add("stopping")
        try:
            await monque.stop(timeout=0.2)
        except asyncio.CancelledError:
            outcomes.add("cancelled")
            raise

    job = await monque.enqueue("suicidal", None)
    await monque.start()
    await runs.reach(1)
    # Without the timeout, each of the two would wait for the other.
    await monque.stop()

    assert outcomes == ["cancelled"]
    assert not monque.is_running
    after = await stored(db, job)
    assert (after.status, after.fail_count, after.claims) == ("pending", 0, 0)
    assert not leftovers.tasks


async def test_a_stop_begun_by_a_handler_that_does_not_wait_for_it_is_a_normal_stop(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque = Monque(db, **NO_POLLS)
    stops = Tally[asyncio.Task[None]]()

    @monque.worker("last")
    async def begin_to_stop(job: Job[None]) -> None:
        stops.add(asyncio.create_task(monque.stop()))

    job = await monque.enqueue("last", None)
    await monque.start()
    await stops.reach(1)
    await asyncio.wait_for(stops[0], 120)

    assert not monque.is_running
    assert (await stored(db, job)).status == "completed"
