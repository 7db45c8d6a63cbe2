"""Asserting what is enqueued, and running it, on a real MongoDB."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from monque_core import Job, Monque, SyncMonque
from monque_core.testing import assert_enqueued, assert_not_enqueued, run_until_idle
from tests.support.leftovers import Leftovers

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase
    from pymongo.database import Database

    from monque_core.testing import MovableClock
    from tests.conftest import AnyDatabase


class TestAssertEnqueued:
    async def test_finds_jobs_through_a_monque_the_oldest_first(self, monque: Monque) -> None:
        first = await monque.enqueue("welcome", {"to": "Ada"}, unique_key="ada")
        second = await monque.enqueue("welcome", {"to": "Bob"}, delay=60)
        await monque.enqueue("other", {"to": "Ada"})

        assert await assert_enqueued(monque, "welcome") == [first, second]
        assert await assert_enqueued(monque, "welcome", count=2) == [first, second]
        assert await assert_enqueued(monque, "welcome", data={"to": "Bob"}) == [second]
        assert await assert_enqueued(monque, "welcome", unique_key="ada") == [first]
        assert await assert_enqueued(monque, "welcome", unique_key=None) == [second]

    async def test_finds_jobs_in_every_kind_of_database(
        self, any_db: AnyDatabase, monque: Monque
    ) -> None:
        job = await monque.enqueue("welcome", {"to": "Ada"})

        assert await assert_enqueued(any_db, "welcome", data={"to": "Ada"}, count=1) == [job]
        await assert_not_enqueued(any_db, "welcome", data={"to": "Bob"})

    async def test_changes_nothing_in_a_database_it_looks_at(
        self, any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        before = Leftovers()
        await assert_not_enqueued(any_db, "welcome")

        assert await db.list_collection_names() == []
        assert (before.tasks, before.threads) == ([], [])

    async def test_finds_a_schedule(self, monque: Monque) -> None:
        schedule = await monque.schedule("0 9 * * *", "report", {"kind": "daily"})

        assert await assert_enqueued(monque, "report", data={"kind": "daily"}) == [schedule]

    async def test_finds_a_job_that_has_run_if_its_status_is_given(self, monque: Monque) -> None:
        monque.worker("welcome", print)
        await monque.enqueue("welcome", None)
        await run_until_idle(monque)

        await assert_not_enqueued(monque, "welcome")
        await assert_enqueued(monque, "welcome", status="completed", count=1)
        with pytest.raises(AssertionError, match="differs: status is completed"):
            await assert_enqueued(monque, "welcome")

    async def test_fails_with_what_is_there(self, monque: Monque) -> None:
        await monque.enqueue("welcome", {"to": "Bob"})

        with pytest.raises(AssertionError, match=r"data\['to'\] is 'Bob', not 'Ada'"):
            await assert_enqueued(monque, "welcome", data={"to": "Ada"})
        with pytest.raises(AssertionError, match=r"expected no job 'welcome'.* and found 1"):
            await assert_not_enqueued(monque, "welcome")

    async def test_counts_more_jobs_than_a_page_has(self, monque: Monque) -> None:
        await monque.enqueue_many("many", range(1500))

        assert len(await assert_enqueued(monque, "many", count=1500)) == 1500

    async def test_refuses_what_is_neither_monque_nor_database(
        self, blocking_db: Database[dict[str, Any]]
    ) -> None:
        with pytest.raises(TypeError, match=r"monque_core\.testing\.sync for a SyncMonque"):
            await assert_enqueued(SyncMonque(blocking_db), "welcome")
        with pytest.raises(TypeError, match=r"not pymongo.*MongoClient"):
            await assert_enqueued(blocking_db.client, "welcome")


class TestRunUntilIdle:
    async def test_runs_what_the_clock_says_is_due(
        self, monque: Monque, clock: MovableClock
    ) -> None:
        ran: list[int] = []
        monque.worker("count", lambda job: ran.append(job.data))
        for hours in range(4):
            await monque.enqueue("count", hours, delay=timedelta(hours=hours))

        await run_until_idle(monque)
        assert ran == [0]
        clock.advance(7199)
        await run_until_idle(monque)
        assert ran == [0, 1]
        clock.advance(timedelta(days=1))
        await run_until_idle(monque)
        assert sorted(ran) == [0, 1, 2, 3]
        assert not monque.is_running

    async def test_goes_by_a_clock_that_moves_while_it_runs(
        self, monque: Monque, clock: MovableClock
    ) -> None:
        ran: list[int] = []
        monque.worker("count", lambda job: ran.append(job.data))
        async with monque:
            for hour in range(3):
                await monque.enqueue("count", hour, delay=3600)
                await run_until_idle(monque)
                assert len(ran) == hour
                clock.advance(3600)
                await run_until_idle(monque)
                assert monque.is_running
        assert ran == [0, 1, 2]

    async def test_runs_what_jobs_enqueue_on_their_way(self, monque: Monque) -> None:
        @monque.worker("countdown")
        async def countdown(job: Job[int]) -> None:
            if job.data:
                await monque.enqueue("countdown", job.data - 1)

        await monque.enqueue("countdown", 5)
        await run_until_idle(monque)

        await assert_enqueued(monque, "countdown", status="completed", count=6)

    async def test_follows_retries_from_attempt_to_attempt(
        self, monque: Monque, clock: MovableClock
    ) -> None:
        @monque.worker("fail")
        async def fail(job: Job[None]) -> None:
            raise ConnectionError("no")

        await monque.enqueue("fail", None, max_retries=3)
        delays = []
        await run_until_idle(monque)
        while True:
            (job,) = await assert_enqueued(monque, "fail", status=["pending", "failed"])
            if job.status == "failed":
                break
            delays.append((job.next_run_at - clock.now()).total_seconds())
            clock.set(job.next_run_at)
            await run_until_idle(monque)

        assert delays == [2, 4]

    @pytest.mark.parametrize("is_started", [True, False])
    async def test_gives_up_in_time_and_tells_what_is_left(
        self, monque: Monque, is_started: bool
    ) -> None:
        begun, release = asyncio.Event(), asyncio.Event()

        @monque.worker("hang")
        async def hang(job: Job[str]) -> None:
            begun.set()
            await release.wait()

        await monque.enqueue("hang", "up")
        await monque.enqueue("later", None, delay=60)
        if is_started:
            await monque.start()
            await begun.wait()
        # A start and a claim have to fit into it, on a slow machine too.
        timeout = 0.3 if is_started else 10
        with pytest.raises(TimeoutError) as given_up:
            await run_until_idle(monque, timeout=timeout)

        lines = str(given_up.value).splitlines()
        assert lines[0] == f"not idle after {timeout} seconds; still active:"
        assert lines[1] == "  hang  processing  data='up'"
        assert lines[2].startswith("  later  pending  data=None  due 2026-03-02 12:01:00")
        assert monque.is_running is is_started
        release.set()

    async def test_starts_and_stops_an_instance_without_leaving_anything(
        self, monque: Monque
    ) -> None:
        before = Leftovers()
        monque.worker("run", print)
        await monque.enqueue("run", None)
        await run_until_idle(monque, timeout=timedelta(seconds=20))

        assert not monque.is_running
        assert (before.tasks, before.threads) == ([], [])
