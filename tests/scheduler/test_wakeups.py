"""What wakes an instance up to look for due jobs."""

from __future__ import annotations

import asyncio
import random
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pymongo import AsyncMongoClient

from monque_core import Monque
from monque_core.store.queue import JobQueue
from monque_core.testing import MovableClock
from tests.support.commands import CommandLog, opens_stream
from tests.support.happenings import Happenings
from tests.support.polling import NO_POLLS
from tests.support.tally import Tally
from tests.support.waiting import eventually

if TYPE_CHECKING:
    import pytest
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job
    from tests.conftest import AnyDatabase

ON_TIME = timedelta(seconds=5)
"""The longest delay on a loaded machine; a poll would come after 30 s or an hour."""


async def test_jobs_start_when_they_become_due_and_no_poll_is_needed(any_db: AnyDatabase) -> None:
    monque = Monque(any_db, poll_interval=30, safety_poll_interval=30)
    starts = Tally[tuple[str, timedelta]]()

    @monque.worker("timed")
    async def note(job: Job[str]) -> None:
        starts.add((job.data, datetime.now(UTC) - job.next_run_at))

    elsewhere = Monque(any_db)
    await elsewhere.enqueue("timed", "stored before the start", delay=0.7)
    async with monque:
        await monque.enqueue("timed", "+1.0 s", delay=1.0)
        await elsewhere.enqueue("timed", "+2.5 s, from elsewhere", delay=2.5)
        await monque.enqueue("timed", "+2.5 s", delay=2.5)
        await starts.reach(4)
    await elsewhere.stop()

    assert {name for name, _ in starts} == {
        "stored before the start",
        "+1.0 s",
        "+2.5 s, from elsewhere",
        "+2.5 s",
    }
    for name, lateness in starts:
        assert timedelta(milliseconds=-20) <= lateness < ON_TIME, name


async def test_jobs_that_become_due_together_all_start_then(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque = Monque(db, **NO_POLLS)
    starts = Tally[int]()

    @monque.worker("crowd", concurrency=50)
    async def note(job: Job[int]) -> None:
        starts.add(job.data)

    due_at = datetime.now(UTC) + timedelta(seconds=3)
    await monque.enqueue_many("crowd", range(2500), run_at=due_at)
    async with monque:
        await starts.reach(2500)

    assert sorted(starts) == list(range(2500))


async def test_a_job_stored_during_a_query_for_due_times_is_not_missed(
    standalone_db: AsyncDatabase[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monque = Monque(standalone_db, **NO_POLLS)
    starts = Tally[str]()
    asked = JobQueue.upcoming

    @monque.worker("timed")
    async def note(job: Job[str]) -> None:
        starts.add(job.data)

    async def answer_slowly(queue: JobQueue, *question: Any) -> list[tuple[str, datetime]]:
        answer = await asked(queue, *question)
        if not inserted:
            inserted.append(await monque.enqueue("timed", "meanwhile", delay=0.5))
        return answer

    inserted: list[Job[str]] = []
    monkeypatch.setattr(JobQueue, "upcoming", answer_slowly)
    async with monque:
        await starts.reach(1)

    assert starts == ["meanwhile"]


async def test_a_worker_added_during_a_query_for_due_times_is_included(
    standalone_db: AsyncDatabase[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monque = Monque(standalone_db, **NO_POLLS)
    starts = Tally[str]()
    asked = JobQueue.upcoming

    async def note(job: Job[str]) -> None:
        starts.add(job.name)

    async def answer_slowly(queue: JobQueue, *question: Any) -> list[tuple[str, datetime]]:
        answer = await asked(queue, *question)
        if not added:
            added.append(monque.worker("late", note))
        return answer

    added: list[object] = []
    monkeypatch.setattr(JobQueue, "upcoming", answer_slowly)
    monque.worker("early", note)
    await monque.enqueue("late", None, delay=1)
    async with monque:
        await starts.reach(1)

    assert starts == ["late"]


async def test_a_local_write_needs_neither_a_stream_nor_a_poll(
    standalone_db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque = Monque(standalone_db, **NO_POLLS)
    runs = Tally[str]()

    @monque.worker("here")
    async def note(job: Job[str]) -> None:
        runs.add(job.data)

    happenings = Happenings(monque)
    async with monque:
        await happenings.reach("changestream:fallback")
        await monque.enqueue("here", "one")
        await runs.reach(1)
        await monque.now("here", "now")
        await runs.reach(2)
        await monque.enqueue_many("here", ["three", "four"])
        await runs.reach(4)
        await monque.enqueue("here", "keyed", unique_key="k")
        await runs.reach(5)
        await monque.enqueue("here", "later", delay=0.3)
        await runs.reach(6)

    assert sorted(runs) == ["four", "keyed", "later", "now", "one", "three"]


async def test_a_retry_starts_when_it_is_due_without_a_poll(
    standalone_db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque = Monque(standalone_db, base_retry_interval=0.05, **NO_POLLS)
    attempts = Tally[int]()

    @monque.worker("flaky")
    async def fail_twice(job: Job[None]) -> None:
        attempts.add(job.fail_count)
        if job.fail_count < 2:
            raise ConnectionError("not yet")

    async with monque:
        await monque.enqueue("flaky", None)
        await attempts.reach(3)

    assert attempts == [0, 1, 2]


async def test_inserts_of_other_names_do_not_delay_jobs(db: AsyncDatabase[dict[str, Any]]) -> None:
    monque, elsewhere = Monque(db, **NO_POLLS), Monque(db)
    runs = Tally[int]()

    @monque.worker("ours")
    async def note(job: Job[int]) -> None:
        runs.add(job.data)

    async def flood() -> None:
        while True:
            await elsewhere.enqueue_many("theirs", range(50))

    happenings = Happenings(monque)
    async with monque:
        await happenings.reach("changestream:connected")
        flooding = asyncio.create_task(flood())
        for number in range(20):
            await elsewhere.enqueue("ours", number)
            await runs.reach(number + 1)
        flooding.cancel()
        await asyncio.wait([flooding])
    await elsewhere.stop()

    assert runs == list(range(20))


async def test_frequent_wake_ups_do_not_delay_polls(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    clock = MovableClock()
    monque = Monque(
        db, clock=clock, poll_interval=0.3, safety_poll_interval=0.3, recover_stale_jobs=False
    )
    elsewhere = Monque(db, clock=clock)
    runs = Tally[str]()

    @monque.worker("ours")
    async def note(job: Job[str]) -> None:
        runs.add(job.data)

    async def flow() -> None:
        while True:
            await elsewhere.enqueue("ours", "in an hour", delay=3600)
            await asyncio.sleep(0.01)

    happenings = Happenings(monque)
    async with monque:
        await happenings.reach("changestream:connected")
        flowing = asyncio.create_task(flow())
        await monque.enqueue("ours", "in a minute", delay=60)
        clock.advance(61)
        await runs.reach(1)
        flowing.cancel()
        await asyncio.wait([flowing])
    await elsewhere.stop()

    assert runs == ["in a minute"]


async def test_an_idle_instance_sends_one_command_per_poll(uri: str, database_name: str) -> None:
    log = CommandLog()
    async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
        monque = Monque(
            client[database_name],
            poll_interval=0.05,
            safety_poll_interval=0.05,
            heartbeat_interval=600,
        )

        async def unused(job: Job[None]) -> None:
            raise AssertionError("there is no job")

        for number in range(10):
            monque.worker(f"idle-{number}", unused, concurrency=20)
        async with monque:
            await eventually(lambda: any(opens_stream(command) for command in log.sent))
            await eventually(lambda: "getMore" in log.count())
            log.sent.clear()
            began = time.monotonic()
            await eventually(lambda: log.count()["find"] >= 10)
            looks_at_most = (time.monotonic() - began) / 0.05 + 2
            sent = log.count()

    assert set(sent) <= {"find", "getMore"}
    assert sent["getMore"] <= 1
    assert 10 <= sent["find"] <= looks_at_most


async def test_jobs_beyond_the_known_due_times_start_on_time(
    db: AsyncDatabase[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Due times are read for one time window after another; many short ones stand in for long ones.
    monkeypatch.setattr("monque_core.scheduler.lookahead._LONGEST_SPAN", timedelta(seconds=0.4))
    monque, elsewhere = Monque(db, **NO_POLLS), Monque(db)
    starts = Tally[tuple[int, timedelta]]()
    chance = random.Random(1)

    @monque.worker("timed", concurrency=50)
    async def note(job: Job[int]) -> None:
        starts.add((job.data, datetime.now(UTC) - job.next_run_at))

    for number in range(50):
        await elsewhere.enqueue("timed", number, delay=chance.uniform(0, 4))
    async with monque:
        for number in range(50, 250):
            producer = chance.choice([monque, elsewhere])
            await producer.enqueue("timed", number, delay=chance.uniform(0, 3))
        await starts.reach(250)

    assert sorted(number for number, _ in starts) == list(range(250))
    for number, lateness in starts:
        assert timedelta(milliseconds=-20) <= lateness < ON_TIME, number
