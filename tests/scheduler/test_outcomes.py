"""What follows the end of a run: completion, retry, failure, or the next tick."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from monque_core import Monque
from monque_core.jobs.outcome import UNREADABLE_PAUSE
from monque_core.testing import MovableClock
from tests.support.happenings import Happenings
from tests.support.polling import QUICK_POLLS
from tests.support.stored import jobs_in, stored, stored_jobs
from tests.support.tally import Tally

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job
    from tests.conftest import AnyDatabase

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.fixture
def clock() -> MovableClock:
    """Return a clock that stands still at 12:30."""
    return MovableClock(NOON + timedelta(seconds=30))


async def test_failures_are_retried_after_doubling_delays_up_to_the_cap(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]], clock: MovableClock
) -> None:
    monque = Monque(
        any_db,
        clock=clock,
        max_retries=7,
        base_retry_interval=1.5,
        max_backoff_delay=20,
        **QUICK_POLLS,
    )
    runs = Tally[datetime]()

    @monque.worker("failing")
    async def fail(job: Job[None]) -> None:
        runs.add(clock.now())
        raise ConnectionError(f"attempt {job.fail_count + 1}")

    happenings = Happenings(monque)
    delays: list[float] = []
    job = await monque.enqueue("failing", None)
    async with monque:
        for failures in range(1, 7):
            failure = (await happenings.reach("job:fail", failures))[-1]
            assert failure.will_retry
            after = await stored(db, job)
            assert failure.job == after
            assert (after.status, after.fail_count, after.claims) == ("pending", failures, failures)
            assert after.fail_reason == f"ConnectionError: attempt {failures}"
            delay = after.next_run_at - clock.now()
            delays.append(delay.total_seconds())
            clock.advance(delay - timedelta(seconds=0.5))
            await monque.run_until_idle()
            assert len(runs) == failures, "it ran before it was due"
            clock.advance(0.5)
        last = (await happenings.reach("job:fail", 7))[-1]

    after = await stored(db, job)
    assert delays == [3.0, 6.0, 12.0, 20.0, 20.0, 20.0]
    assert last.will_retry is False
    assert last.job == after
    assert (after.status, after.fail_count) == ("failed", 7)
    assert after.fail_reason == "ConnectionError: attempt 7"
    assert (after.claimed_by, after.locked_at) == (None, None)
    assert (after.last_heartbeat, after.heartbeat_interval) == (None, None)


async def test_jitter_spreads_the_delays_within_its_share(
    db: AsyncDatabase[dict[str, Any]], clock: MovableClock
) -> None:
    monque = Monque(db, clock=clock, base_retry_interval=50, retry_jitter=0.2, **QUICK_POLLS)

    @monque.worker("failing")
    async def fail(job: Job[int]) -> None:
        raise ValueError(job.data)

    happenings = Happenings(monque)
    await monque.enqueue_many("failing", range(40))
    async with monque:
        failures = await happenings.reach("job:fail", 40)

    delays = [(failure.job.next_run_at - clock.now()).total_seconds() for failure in failures]
    assert all(80 <= delay <= 120 for delay in delays)
    assert max(delays) - min(delays) > 10


@pytest.mark.parametrize(
    ("of_instance", "of_job", "runs_expected"), [(3, None, 3), (3, 1, 1), (2, 4, 4), (1, None, 1)]
)
async def test_max_retries_is_the_number_of_runs_and_the_job_s_own_counts_first(
    db: AsyncDatabase[dict[str, Any]], of_instance: int, of_job: int | None, runs_expected: int
) -> None:
    monque = Monque(db, max_retries=of_instance, base_retry_interval=0.001, **QUICK_POLLS)
    runs = Tally[int]()

    @monque.worker("failing")
    async def fail(job: Job[None]) -> None:
        runs.add(job.fail_count)
        raise ValueError

    happenings = Happenings(monque)
    job = await monque.enqueue("failing", None, max_retries=of_job)
    async with monque:
        failures = await happenings.reach("job:fail", runs_expected)
        await monque.run_until_idle()

    after = await stored(db, job)
    assert runs == list(range(runs_expected))
    assert [failure.will_retry for failure in failures] == [True] * (runs_expected - 1) + [False]
    assert (after.status, after.fail_count) == ("failed", runs_expected)


async def test_success_keeps_the_count_of_failures_and_drops_reason_and_claim(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(any_db, base_retry_interval=0.001, **QUICK_POLLS)

    @monque.worker("flaky")
    async def fail_twice(job: Job[None]) -> None:
        if job.fail_count < 2:
            raise ValueError("not yet")

    happenings = Happenings(monque)
    job = await monque.enqueue("flaky", None, unique_key="k", priority=2)
    async with monque:
        await happenings.reach("job:complete")

    document = await jobs_in(db).find_one({"_id": job.id})
    assert document is not None
    assert document.pop("updatedAt") >= job.updated_at
    assert document.pop("nextRunAt") > job.next_run_at
    assert document.pop("claimToken") is not None
    assert document.pop("claimedAt") >= job.created_at
    assert document == {
        "_id": job.id,
        "name": "flaky",
        "data": None,
        "status": "completed",
        "failCount": 2,
        "claims": 3,
        "createdAt": job.created_at,
        "uniqueKey": "k",
        "priority": 2,
    }


async def test_a_recurring_job_moves_to_its_next_tick_and_missed_ticks_collapse(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]], clock: MovableClock
) -> None:
    monque = Monque(any_db, clock=clock, **QUICK_POLLS)
    runs = Tally[datetime]()
    takes = [timedelta(seconds=1), timedelta(minutes=12), timedelta(minutes=5), timedelta(0)]

    @monque.worker("tick", concurrency=5)
    async def run(job: Job[str]) -> None:
        runs.add(clock.now())
        clock.advance(takes[len(runs) - 1])

    happenings = Happenings(monque)
    schedule = await monque.schedule("*/5 * * * *", "tick", "tock")
    assert schedule.next_run_at == NOON + timedelta(minutes=5)
    ticks = []
    async with monque:
        await monque.run_until_idle()
        assert not runs
        clock.set(schedule.next_run_at)
        for count in range(1, 5):
            completed = (await happenings.reach("job:complete", count))[-1]
            after = await stored(db, schedule)
            assert completed.job == after
            assert (after.status, after.fail_count, after.claims) == ("pending", 0, 0)
            assert after.claimed_by is None
            ticks.append(after.next_run_at)
            clock.set(max(clock.now(), after.next_run_at))

    minutes = [(tick - NOON) // timedelta(minutes=1) for tick in ticks]
    # One second after :05; from :10 to :22; from :25 to exactly :30; immediately.
    assert minutes == [10, 25, 35, 40]
    assert len(await stored_jobs(db)) == 1


async def test_a_failing_recurring_job_is_retried_before_its_next_tick(
    db: AsyncDatabase[dict[str, Any]], clock: MovableClock
) -> None:
    monque = Monque(db, clock=clock, base_retry_interval=10, **QUICK_POLLS)

    @monque.worker("tick")
    async def fail_once(job: Job[None]) -> None:
        if job.fail_count == 0:
            raise ValueError("once")

    happenings = Happenings(monque)
    schedule = await monque.schedule("0 * * * *", "tick", None, unique_key="k")
    clock.set(NOON + timedelta(hours=1))
    async with monque:
        await happenings.reach("job:fail")
        failed = await stored(db, schedule)
        clock.advance(20)
        await happenings.reach("job:complete")

    assert failed.status == "pending"
    assert failed.next_run_at == NOON + timedelta(hours=1, seconds=20)
    assert (failed.repeat_interval, failed.unique_key) == ("0 * * * *", "k")
    after = await stored(db, schedule)
    assert after.next_run_at == NOON + timedelta(hours=2)
    assert (after.fail_count, after.claims, after.fail_reason) == (0, 0, None)


async def test_a_recurring_job_out_of_retries_leaves_a_failed_one_behind_and_goes_on(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]], clock: MovableClock
) -> None:
    monque = Monque(any_db, clock=clock, base_retry_interval=1, max_retries=2, **QUICK_POLLS)
    runs = Tally[datetime]()

    @monque.worker("tick")
    async def fail_twice(job: Job[Any]) -> None:
        runs.add(clock.now())
        if len(runs) <= 2:
            raise ValueError(f"run {len(runs)}")

    happenings = Happenings(monque)
    schedule = await monque.schedule("0 * * * *", "tick", {"some": "data"}, unique_key="k")
    clock.set(NOON + timedelta(hours=1))
    async with monque:
        await happenings.reach("job:fail", 1)
        clock.advance(2)
        first, last = await happenings.reach("job:fail", 2)
        after_failure = await stored(db, schedule)
        clock.set(NOON + timedelta(hours=2))
        await happenings.reach("job:complete")

    assert (first.will_retry, last.will_retry) == (True, False)
    assert last.job == after_failure
    assert after_failure.status == "pending"
    assert after_failure.next_run_at == NOON + timedelta(hours=2)
    assert (after_failure.fail_count, after_failure.claims) == (0, 0)
    (occurrence,) = await stored_jobs(db, status="failed")
    assert occurrence.id != schedule.id
    assert (occurrence.name, occurrence.data) == ("tick", {"some": "data"})
    assert (occurrence.fail_reason, occurrence.fail_count) == ("ValueError: run 2", 2)
    assert occurrence.repeat_interval is occurrence.timezone is occurrence.unique_key is None
    assert (await stored(db, schedule)).next_run_at == NOON + timedelta(hours=3)
    assert len(runs) == 3
    assert len(await stored_jobs(db)) == 2


async def test_a_schedule_changed_during_its_run_continues_as_stored(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]], clock: MovableClock
) -> None:
    monque = Monque(any_db, clock=clock, **QUICK_POLLS)
    runs = Tally[str]()

    @monque.worker("tick")
    async def change(job: Job[str]) -> None:
        runs.add(job.data)
        if job.data == "old":
            await monque.schedule(
                "30 15 * * *", "tick", "new", unique_key="k", timezone="Europe/Berlin"
            )

    happenings = Happenings(monque)
    schedule = await monque.schedule("* * * * *", "tick", "old", unique_key="k")
    clock.set(schedule.next_run_at)
    async with monque:
        (completed,) = await happenings.reach("job:complete")
        after = await stored(db, schedule)
        clock.set(after.next_run_at)
        await runs.reach(2)

    assert after.next_run_at == NOON + timedelta(hours=2, minutes=30)
    assert (after.repeat_interval, after.timezone) == ("30 15 * * *", "Europe/Berlin")
    assert after.data == "new"
    assert completed.job == after
    assert runs == ["old", "new"]
    assert len(await stored_jobs(db)) == 1


async def test_a_schedule_changed_during_its_last_failing_run_continues_as_stored(
    db: AsyncDatabase[dict[str, Any]], clock: MovableClock
) -> None:
    monque = Monque(db, clock=clock, max_retries=1, **QUICK_POLLS)

    @monque.worker("tick")
    async def change_and_fail(job: Job[None]) -> None:
        await monque.schedule("0 18 * * *", "tick", None, unique_key="k")
        raise ValueError("too late")

    happenings = Happenings(monque)
    schedule = await monque.schedule("* * * * *", "tick", None, unique_key="k")
    clock.set(schedule.next_run_at)
    async with monque:
        await happenings.reach("job:fail")

    assert (await stored(db, schedule)).next_run_at == NOON + timedelta(hours=6)
    (occurrence,) = await stored_jobs(db, status="failed")
    assert occurrence.fail_reason == "ValueError: too late"


async def test_an_unreadable_schedule_is_left_alone_and_reported(
    db: AsyncDatabase[dict[str, Any]], clock: MovableClock
) -> None:
    monque = Monque(db, clock=clock, **QUICK_POLLS)
    runs = Tally[str]()

    @monque.worker("tick")
    async def tick(job: Job[str]) -> None:
        runs.add(job.data)

    happenings = Happenings(monque)
    schedule = await monque.schedule("* * * * *", "tick", "of Node", unique_key="k")
    await jobs_in(db).update_one({"_id": schedule.id}, {"$set": {"repeatInterval": "H * * * *"}})
    clock.set(schedule.next_run_at)
    await monque.enqueue("tick", "of Python")
    await monque.run_until_idle()

    after = await stored(db, schedule)
    (told,) = happenings.of("job:error")
    assert runs == ["of Python"]
    assert (after.status, after.repeat_interval) == ("pending", "H * * * *")
    assert (after.next_run_at, after.unique_key) == (schedule.next_run_at, "k")
    assert "'H' in the minute field" in str(told.error)
    assert happenings.of("job:fail") == []


async def test_a_schedule_that_becomes_unreadable_during_its_run_is_not_ended(
    db: AsyncDatabase[dict[str, Any]], clock: MovableClock
) -> None:
    monque = Monque(db, clock=clock, **QUICK_POLLS)

    @monque.worker("tick")
    async def change(job: Job[None]) -> None:
        await jobs_in(db).update_one({"_id": job.id}, {"$set": {"repeatInterval": "H * * * *"}})

    happenings = Happenings(monque)
    schedule = await monque.schedule("* * * * *", "tick", None, unique_key="k")
    clock.set(schedule.next_run_at)
    await monque.run_until_idle()

    after = await stored(db, schedule)
    (completed,) = happenings.of("job:complete")
    (told,) = happenings.of("job:error")
    assert completed.job == after
    assert (after.status, after.repeat_interval) == ("pending", "H * * * *")
    assert after.next_run_at == clock.now() + UNREADABLE_PAUSE
    assert "'H' in the minute field" in str(told.error)


async def test_a_job_unscheduled_during_its_run_finishes_and_does_not_come_back(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]], clock: MovableClock
) -> None:
    monque = Monque(any_db, clock=clock, **QUICK_POLLS)
    started, may_end = asyncio.Event(), asyncio.Event()

    @monque.worker("tick")
    async def run(job: Job[None]) -> None:
        started.set()
        await may_end.wait()

    happenings = Happenings(monque)
    schedule = await monque.schedule("* * * * *", "tick", None)
    clock.set(schedule.next_run_at)
    async with monque:
        await asyncio.wait_for(started.wait(), 120)
        removed = await monque.unschedule("tick")
        may_end.set()
        (completed,) = await happenings.reach("job:complete")
        clock.advance(timedelta(hours=1))
        await monque.run_until_idle()

    assert removed == 1
    (after,) = await stored_jobs(db)
    assert after.status == "completed"
    assert after.repeat_interval is None
    assert completed.job == after
    assert happenings.names.count("job:start") == 1


async def test_a_job_unscheduled_during_a_run_that_fails_for_good_is_failed(
    db: AsyncDatabase[dict[str, Any]], clock: MovableClock
) -> None:
    monque = Monque(db, clock=clock, max_retries=1, **QUICK_POLLS)

    @monque.worker("tick")
    async def run(job: Job[None]) -> None:
        await monque.unschedule("tick")
        raise ValueError("for good")

    happenings = Happenings(monque)
    schedule = await monque.schedule("* * * * *", "tick", None)
    clock.set(schedule.next_run_at)
    async with monque:
        await happenings.reach("job:fail")

    (after,) = await stored_jobs(db)
    assert after.id == schedule.id
    assert (after.status, after.fail_reason) == ("failed", "ValueError: for good")


async def test_a_recurring_job_is_never_in_flight_twice(
    db: AsyncDatabase[dict[str, Any]], clock: MovableClock
) -> None:
    instances = [Monque(db, clock=clock, **QUICK_POLLS) for _ in range(3)]
    runs = Tally[datetime]()
    at_work = 0

    async def run(job: Job[None]) -> None:
        nonlocal at_work
        at_work += 1
        assert at_work == 1
        clock.advance(timedelta(minutes=3))
        await asyncio.sleep(0.05)
        at_work -= 1
        runs.add(job.next_run_at)

    failures: list[object] = []
    for instance in instances:
        instance.worker("tick", run)
        instance.on("job:fail", failures.append)
        await instance.schedule("* * * * *", "tick", None)
    async with instances[0], instances[1], instances[2]:
        for count in range(1, 6):
            clock.advance(timedelta(minutes=1))
            await runs.reach(count)

    assert not failures
    assert len(set(runs)) == len(runs)
    assert len(await stored_jobs(db)) == 1
