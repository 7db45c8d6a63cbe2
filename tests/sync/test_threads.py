"""One SyncMonque, many threads."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from monque_core import (
    Job,
    JobSelector,
    SyncMonque,
)
from tests.support.inventory import stored_jobs
from tests.support.quarantine import Quarantine, all_at_once
from tests.support.record import Record
from tests.support.threads import no_threads_are_left

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo.database import Database


class TestThreads:
    def test_may_all_make_the_first_call(
        self, monque: SyncMonque, blocking_db: Database[dict[str, Any]]
    ) -> None:
        jobs = all_at_once(50, lambda number: monque.enqueue("work", number))

        assert [job.data for job in jobs] == list(range(50))
        assert {job.id for job in stored_jobs(blocking_db)} == {job.id for job in jobs}
        assert no_threads_are_left()

    def test_get_one_job_for_one_key(
        self, monque: SyncMonque, blocking_db: Database[dict[str, Any]]
    ) -> None:
        jobs = all_at_once(50, lambda number: monque.enqueue("work", number, unique_key="key"))

        (found,) = stored_jobs(blocking_db)
        assert {job.id for job in jobs} == {found.id}
        assert sum(not job.deduplicated for job in jobs) == 1

    def test_may_do_everything_at_once(self, monque: SyncMonque) -> None:
        def use(number: int) -> None:
            name = f"work-{number % 5}"
            job = monque.enqueue(name, number)
            monque.get_job(job.id)
            monque.get_queue_stats(name)
            monque.get_queue_view_summaries()
            monque.cancel_job(job.id)
            monque.worker(f"other-{number}", lambda _: None)
            monque.delete_job(job.id)

        with monque:
            all_at_once(30, use)

    def test_may_all_start_and_stop_it(
        self, monque: SyncMonque, blocking_db: Database[dict[str, Any]]
    ) -> None:
        monque.worker("work", lambda _: None)

        def start_and_stop(number: int) -> None:
            monque.start()
            monque.enqueue("work", number)
            monque.stop()

        all_at_once(10, start_and_stop)
        assert not monque.is_running
        assert no_threads_are_left()
        monque.run_until_idle()

        assert {job.status for job in stored_jobs(blocking_db)} == {"completed"}

    def test_may_enqueue_while_it_starts_and_stops(
        self, monque: SyncMonque, blocking_db: Database[dict[str, Any]]
    ) -> None:
        monque.worker("work", lambda _: None)
        is_over = threading.Event()

        def enqueue() -> int:
            count = 0
            while not is_over.is_set():
                monque.enqueue("work", count)
                count += 1
            return count

        enqueueing = [Quarantine(enqueue) for _ in range(4)]
        try:
            for _ in range(8):
                with monque:
                    pass
        finally:
            is_over.set()
        counts = [one.result() for one in enqueueing]

        assert blocking_db["monque_jobs"].count_documents({}) == sum(counts)

    def test_of_a_foreign_event_loop_may_use_it(
        self, monque: SyncMonque, blocking_db: Database[dict[str, Any]]
    ) -> None:
        ran: Record[str] = Record()
        monque.worker("work", lambda job: ran.add(job.data))

        async def main() -> None:
            monque.enqueue("work", "before")
            with monque:
                monque.enqueue("work", "during")
                await asyncio.to_thread(monque.enqueue, "work", "in a thread")
                await asyncio.to_thread(ran.reach, 3)
            monque.enqueue("work", "idle")
            monque.run_until_idle()

        asyncio.run(main())

        assert sorted(ran) == ["before", "during", "idle", "in a thread"]


class TestBusyLoop:
    @pytest.fixture
    def is_blocked(self, monque: SyncMonque) -> Iterator[None]:
        """Block the event loop in a handler for the duration of the test."""
        blocked, go_on = threading.Event(), threading.Event()

        @monque.worker("block")
        async def block(job: Job[None]) -> None:
            blocked.set()
            go_on.wait(120)

        monque.start()
        monque.enqueue("block", None)
        assert blocked.wait(120)
        yield
        assert monque.get_queue_view_summaries()[0].worker is not None
        go_on.set()

    @pytest.mark.usefixtures("is_blocked")
    def test_does_not_block_producers(
        self, monque: SyncMonque, blocking_db: Database[dict[str, Any]]
    ) -> None:
        # Each call would hang until the loop is free, which is only after the test.
        job = Quarantine(lambda: monque.enqueue("other", 1)).result()
        Quarantine(lambda: monque.enqueue_many("other", [2, 3], unique_key=str)).result()
        Quarantine(lambda: monque.schedule("@daily", "other", 4)).result()

        assert len(stored_jobs(blocking_db, name="other")) == 4
        assert job.status == "pending"

    @pytest.mark.usefixtures("is_blocked")
    def test_does_not_block_reading_and_managing(self, monque: SyncMonque) -> None:
        monque.on("job:cancelled", lambda _: None)

        def manage() -> None:
            job = monque.enqueue("other", 1)
            assert monque.get_job(job.id) is not None
            assert monque.get_queue_stats("other").pending == 1
            monque.cancel_job(job.id)
            assert monque.delete_jobs(JobSelector(name="other")) == 1

        Quarantine(manage).result()
