"""Handlers of a SyncMonque, and how they may use it."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from monque_core import (
    Job,
    MonqueError,
    SyncMonque,
)
from tests.support.inventory import stored_jobs
from tests.support.patience import wait_until
from tests.support.polling import NO_POLLS
from tests.support.quarantine import Quarantine, all_at_once
from tests.support.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo.database import Database

    from monque_core.jobs.job import AnyJob


class TestHandlers:
    def test_of_the_blocking_kind_run_in_threads(self, monque: SyncMonque) -> None:
        ran: Record[str] = Record()

        @monque.worker("work")
        def work(job: Job[None]) -> None:
            ran.add(threading.current_thread().name)

        with monque:
            monque.enqueue("work", None)
            ran.reach(1)

        assert ran[0].startswith("monque-job")

    def test_of_the_async_kind_run_on_one_loop(self, monque: SyncMonque) -> None:
        ran: Record[str] = Record()

        @monque.worker("work", concurrency=5)
        async def work(job: Job[None]) -> None:
            await asyncio.sleep(0)
            ran.add(threading.current_thread().name)

        with monque:
            monque.enqueue_many("work", [None] * 10)
            ran.reach(10)

        assert set(ran) == {"monque-loop"}

    @pytest.mark.parametrize("kind", ["blocking", "async"])
    def test_may_use_it(
        self, monque: SyncMonque, blocking_db: Database[dict[str, Any]], kind: str
    ) -> None:
        ended: Record[int] = Record()

        def follow(job: Job[int]) -> None:
            if job.data < 5:
                next_job = monque.enqueue("work", job.data + 1)
                assert monque.get_job(next_job.id) is not None
            monque.worker(f"other-{job.data}", lambda _: None)
            monque.initialize()
            ended.add(job.data)

        async def follow_on_the_loop(job: Job[int]) -> None:
            follow(job)

        if kind == "async":
            monque.worker("work", follow_on_the_loop)
        else:
            monque.worker("work", follow)
        with monque:
            monque.enqueue("work", 0)
            ended.reach(6)

        assert sorted(ended) == list(range(6))
        assert {job.status for job in stored_jobs(blocking_db)} == {"completed"}

    @pytest.mark.parametrize("kind", ["blocking", "async"])
    def test_may_use_it_while_start_has_not_returned(self, monque: SyncMonque, kind: str) -> None:
        used: Record[bool] = Record()

        def use(job: Job[int]) -> None:
            monque.enqueue("other", 1)
            used.add(starting.is_done)

        async def use_on_the_loop(job: Job[int]) -> None:
            use(job)

        if kind == "async":
            monque.worker("work", use_on_the_loop)
        else:
            monque.worker("work", use)
        monque.enqueue("work", 1)
        may_return = threading.Event()
        start = monque._monque.start

        async def start_slowly() -> None:
            await start()
            await asyncio.to_thread(may_return.wait, 120)

        monque._monque.start = start_slowly  # type: ignore[method-assign]
        starting = Quarantine(monque.start)
        used.reach(1)
        may_return.set()
        starting.result()

        assert list(used) == [False]

    @pytest.mark.parametrize("kind", ["blocking", "async"])
    def test_may_use_it_while_it_stops(
        self, monque: SyncMonque, blocking_db: Database[dict[str, Any]], kind: str
    ) -> None:
        started, may_end = threading.Event(), threading.Event()

        def use() -> None:
            monque.initialize()
            monque.enqueue("other", 1)
            monque.worker("other", lambda _: None)

        if kind == "async":

            @monque.worker("work")
            async def work_on_the_loop(job: Job[None]) -> None:
                started.set()
                while not may_end.is_set():
                    await asyncio.sleep(0.01)
                use()
        else:

            @monque.worker("work")
            def work(job: Job[None]) -> None:
                started.set()
                may_end.wait(120)
                use()

        monque.start()
        monque.enqueue("work", None)
        assert started.wait(120)
        stopping = Quarantine(monque.stop)
        wait_until(lambda: monque._monque._stopping is not None)
        may_end.set()
        stopping.result()

        assert [job.status for job in stored_jobs(blocking_db)] == ["completed", "pending"]

    def test_that_raise_are_told_of_and_retried(
        self, monque: SyncMonque, blocking_db: Database[dict[str, Any]]
    ) -> None:
        failures: Record[BaseException] = Record()
        monque.on("job:fail", lambda event: failures.add(event.error))

        @monque.worker("work")
        def work(job: Job[None]) -> None:
            raise ValueError("bad")

        @monque.worker("exit")
        def leave(job: Job[None]) -> None:
            raise SystemExit(3)

        with monque:
            monque.enqueue("work", None, max_retries=1)
            monque.enqueue("exit", None, max_retries=1)
            failures.reach(2)

        assert {type(error) for error in failures} == {ValueError, SystemExit}
        assert {job.status for job in stored_jobs(blocking_db)} == {"failed"}

    def test_run_inside_middleware(self, monque: SyncMonque) -> None:
        passed: Record[tuple[str, int]] = Record()

        @monque.use
        async def around(job: AnyJob, call_next: Callable[..., Any]) -> None:
            passed.add(("before", job.data))
            await call_next()
            passed.add(("after", job.data))

        monque.worker("work", lambda job: passed.add(("work", job.data)))
        monque.enqueue("work", 7)
        monque.run_until_idle()

        assert list(passed) == [("before", 7), ("work", 7), ("after", 7)]

    def test_are_woken_by_what_is_enqueued_here_without_polls_or_streams(
        self, standalone_db: Database[dict[str, Any]]
    ) -> None:
        monque = SyncMonque(standalone_db, **NO_POLLS)
        ran: Record[int] = Record()
        monque.worker("work", lambda job: ran.add(job.data))
        with monque:
            monque.enqueue("work", -1)
            ran.reach(1)
            all_at_once(10, lambda number: monque.enqueue("work", number))
            ran.reach(11)
            monque.enqueue("work", 10, delay=0.05)
            ran.reach(12)

        assert sorted(ran) == list(range(-1, 11))

    def test_may_be_added_while_it_runs(self, monque: SyncMonque) -> None:
        ran: Record[int] = Record()
        with monque:
            monque.enqueue("late", 1)
            monque.worker("late", lambda job: ran.add(job.data))
            ran.reach(1)
            with pytest.raises(MonqueError, match="replace=True"):
                monque.worker("late", lambda _: None)

    def test_are_registered_by_a_decorator_too(self, monque: SyncMonque) -> None:
        def work(job: Job[int]) -> None: ...

        assert monque.worker("one")(work) is work
        assert monque.worker("two", work, concurrency=2, timeout=3) is work
        views = {view.name: view.worker for view in monque.get_queue_view_summaries()}

        two = views["two"]
        assert two is not None
        assert (two.concurrency, two.timeout) == (2, timedelta(seconds=3))
