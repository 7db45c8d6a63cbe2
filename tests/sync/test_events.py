"""Which events a SyncMonque emits, and in which thread."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any

from tests.support.patience import wait_until
from tests.support.quarantine import Quarantine, all_at_once
from tests.support.record import Record
from tests.support.threads import no_threads_are_left

if TYPE_CHECKING:
    import pytest

    from monque_core import (
        Job,
        SyncMonque,
    )


class TestEvents:
    def test_come_in_the_thread_of_the_loop(self, monque: SyncMonque) -> None:
        heard: Record[tuple[str, str]] = Record()
        for name in ("job:start", "job:complete", "job:deleted"):
            monque.on(name, lambda _, name=name: heard.add((name, threading.current_thread().name)))
        monque.worker("work", lambda _: None)
        with monque:
            job = monque.enqueue("work", None)
            heard.reach(2)
            monque.delete_job(job.id)
            heard.reach(3)

        assert list(heard) == [
            ("job:start", "monque-loop"),
            ("job:complete", "monque-loop"),
            ("job:deleted", "monque-loop"),
        ]

    def test_are_for_async_listeners_too(self, monque: SyncMonque) -> None:
        heard: Record[Any] = Record()

        @monque.on("job:complete")
        async def listen(event: Any) -> None:
            await asyncio.sleep(0.01)
            heard.add(event.job.data)

        monque.worker("work", lambda _: None)
        monque.enqueue("work", 7)
        with monque:
            heard.reach(1)
        assert list(heard) == [7]

    def test_of_a_stop_are_heard_before_it_returns(self, monque: SyncMonque) -> None:
        heard: list[Any] = []
        started, may_end = threading.Event(), threading.Event()

        @monque.on("job:complete")
        async def listen(event: Any) -> None:
            await asyncio.sleep(0.05)
            heard.append(event.job.data)

        @monque.worker("work")
        def work(job: Job[int]) -> None:
            started.set()
            may_end.wait(120)

        monque.start()
        monque.enqueue("work", 7)
        assert started.wait(120)
        stopping = Quarantine(monque.stop)
        wait_until(lambda: monque._monque._stopping is not None)
        may_end.set()
        stopping.result()

        assert heard == [7]

    def test_of_what_is_done_without_start_are_heard_before_the_call_returns(
        self, monque: SyncMonque
    ) -> None:
        heard: list[Any] = []
        monque.on("job:cancelled", lambda event: heard.append(event.job.id))

        @monque.once("job:deleted")
        async def listen(event: Any) -> None:
            await asyncio.sleep(0.01)
            heard.append(event.job_id)

        first, second = monque.enqueue_many("work", [1, 2])
        monque.cancel_job(first.id)
        monque.delete_job(first.id)
        monque.delete_job(second.id)

        assert heard == [first.id, first.id]
        assert no_threads_are_left()

    def test_may_lead_to_other_events_without_start(self, monque: SyncMonque) -> None:
        heard: list[Any] = []
        monque.on("job:cancelled", lambda event: monque.delete_job(event.job.id))
        monque.on("job:deleted", lambda event: heard.append(event.job_id))
        job = monque.enqueue("work", 1)
        Quarantine(lambda: monque.cancel_job(job.id)).result()

        assert heard == [job.id]

    def test_are_not_lost_when_many_threads_do_something_without_start(
        self, monque: SyncMonque
    ) -> None:
        heard: Record[Any] = Record()
        monque.on("job:cancelled", lambda event: heard.add(event.job.id))
        jobs = monque.enqueue_many("work", range(100))

        def cancel(number: int) -> None:
            for job in jobs[number::20]:
                monque.cancel_job(job.id)

        all_at_once(20, cancel)

        assert sorted(heard) == sorted(job.id for job in jobs)

    def test_are_not_emitted_to_removed_listeners(self, monque: SyncMonque) -> None:
        heard: list[Any] = []
        monque.on("job:cancelled", heard.append)
        monque.off("job:cancelled", heard.append)
        job = monque.enqueue("work", 1)
        monque.cancel_job(job.id)

        assert heard == []

    def test_survive_a_listener_that_raises(
        self, monque: SyncMonque, caplog: pytest.LogCaptureFixture
    ) -> None:
        heard: list[Any] = []

        @monque.on("job:cancelled")
        def fail(event: object) -> None:
            raise ValueError("bad listener")

        monque.on("job:cancelled", heard.append)
        job = monque.enqueue("work", 1)
        with caplog.at_level(logging.ERROR, "monque"):
            monque.cancel_job(job.id)

        assert len(heard) == 1
        assert "bad listener" in caplog.text
