"""Repeated start and stop: nothing is lost and nothing is left behind."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from pymongo import AsyncMongoClient
from pymongo.asynchronous.database import AsyncDatabase

from monque_core import Monque
from tests.support.commands import CommandLog
from tests.support.happenings import Happenings
from tests.support.leftovers import Leftovers
from tests.support.polling import NO_POLLS
from tests.support.stored import count_by_status, jobs_in
from tests.support.tally import Tally

if TYPE_CHECKING:
    from monque_core import Job
    from tests.conftest import AnyDatabase


async def test_a_second_start_does_nothing(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
) -> None:
    leftovers = Leftovers()
    monque = Monque(any_db, **NO_POLLS)
    runs = Tally[int]()

    @monque.worker("once", concurrency=1)
    async def note(job: Job[int]) -> None:
        runs.add(job.data)

    assert not monque.is_running
    await asyncio.gather(monque.start(), monque.start(), monque.start())
    await monque.start()
    assert monque.is_running
    tasks = Counter(task.get_name() for task in leftovers.tasks)
    await monque.enqueue_many("once", range(10))
    await runs.reach(10)
    await monque.stop()

    assert runs == list(range(10))
    assert tasks["monque-Dispatcher"] == 1
    assert not monque.is_running


async def test_stopping_a_stopped_instance_does_nothing(any_db: AnyDatabase) -> None:
    leftovers = Leftovers()
    monque = Monque(any_db)
    await monque.stop()
    await monque.initialize()
    await monque.stop()
    async with monque:
        pass
    await monque.stop()

    assert not monque.is_running
    assert not leftovers.tasks
    assert not leftovers.threads


async def test_an_instance_that_was_stopped_can_be_started_again(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(any_db, **NO_POLLS)
    runs = Tally[int]()

    @monque.worker("again")
    async def note(job: Job[int]) -> None:
        runs.add(job.data)

    for life in range(3):
        await monque.enqueue("again", 10 * life)
        async with monque:
            await runs.reach(2 * life + 1)
            await monque.enqueue("again", 10 * life + 1)
            await runs.reach(2 * life + 2)

    assert runs == [0, 1, 10, 11, 20, 21]
    assert await count_by_status(db) == {"completed": 6}


async def test_a_start_during_a_stop_starts_again(db: AsyncDatabase[dict[str, Any]]) -> None:
    leftovers = Leftovers()
    monque = Monque(db, **NO_POLLS)
    runs, may_end = Tally[str](), asyncio.Event()

    @monque.worker("again")
    async def wait(job: Job[str]) -> None:
        runs.add(job.data)
        if job.data == "first":
            await may_end.wait()

    await monque.enqueue("again", "first")
    await monque.start()
    await runs.reach(1)
    stopping = asyncio.create_task(monque.stop())
    await asyncio.sleep(0)
    starting = asyncio.create_task(monque.start())
    await asyncio.sleep(0.05)
    may_end.set()
    await asyncio.gather(stopping, starting)
    assert monque.is_running
    await monque.enqueue("again", "second")
    await runs.reach(2)
    await monque.stop()

    assert runs == ["first", "second"]
    assert not leftovers.tasks


async def test_a_cancelled_start_can_be_started_again(uri: str, database_name: str) -> None:
    leftovers, log = Leftovers(), CommandLog()
    async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
        monque = Monque(client[database_name], **NO_POLLS)
        runs = Tally[int]()

        @monque.worker("again")
        async def note(job: Job[int]) -> None:
            runs.add(job.data)

        def cancel(name: str, command: Any) -> None:
            if name == "findAndModify":
                log.on_sending = lambda *_: None
                starting.cancel()

        await monque.initialize()
        log.on_sending = cancel
        starting = asyncio.create_task(monque.start())
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert not monque.is_running
        assert not leftovers.tasks
        async with asyncio.timeout(120), monque:
            await monque.enqueue("again", 1)
            await runs.reach(1)

    assert runs == [1]


async def test_fifty_starts_and_stops_lose_and_leave_nothing(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
) -> None:
    leftovers = Leftovers()
    monque = Monque(any_db, heartbeat_interval=0.1, **NO_POLLS)
    # Each stop of a blocking handle waits for a thread that reads the stream.
    times = 50 if isinstance(any_db, AsyncDatabase) else 10
    runs = Tally[int]()

    @monque.worker("coroutine", concurrency=3)
    async def on_the_loop(job: Job[int]) -> None:
        runs.add(job.data)
        await asyncio.sleep(0.001)

    @monque.worker("function", concurrency=2)
    def in_a_thread(job: Job[int]) -> None:
        runs.add(job.data)

    happenings = Happenings(monque)
    for life in range(times):
        async with monque:
            await monque.enqueue_many("coroutine", range(20 * life, 20 * life + 10))
            await monque.enqueue_many("function", range(20 * life + 10, 20 * life + 20))
            await runs.reach((life * 7) % 20)
        assert not leftovers.tasks, f"after life {life}"
        assert not leftovers.threads, f"after life {life}"
        assert not await jobs_in(db).count_documents({"status": "processing"})
    await monque.run_until_idle()

    assert sorted(runs) == list(range(20 * times))
    assert await count_by_status(db) == {"completed": 20 * times}
    assert await jobs_in(db).count_documents({"claims": 1, "failCount": 0}) == 20 * times
    assert not happenings.of("job:error")


async def test_an_error_in_the_block_stops_the_instance_too(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    leftovers = Leftovers()
    monque = Monque(db)
    with pytest.raises(ZeroDivisionError):
        async with monque:
            _ = 1 / 0

    assert not monque.is_running
    assert not leftovers.tasks


async def test_run_until_idle_finds_jobs_of_others_without_a_poll(
    standalone_db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque, elsewhere = Monque(standalone_db, **NO_POLLS), Monque(standalone_db)
    runs = Tally[int]()

    @monque.worker("work")
    async def work(job: Job[int]) -> None:
        runs.add(job.data)

    async with monque:
        await monque.run_until_idle()
        await elsewhere.enqueue_many("work", range(10))
        await monque.run_until_idle()

    assert sorted(runs) == list(range(10))
