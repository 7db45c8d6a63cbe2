"""Ctrl-C in the main thread, sent by the handler of a job at a chosen moment."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.interrupt import interrupt_main_thread
from tests.support.inventory import stored_jobs
from tests.support.threads import no_threads_are_left

if TYPE_CHECKING:
    from pymongo.database import Database

    from monque_core import (
        Job,
        SyncMonque,
    )


class TestCtrlC:
    @pytest.mark.usefixtures("python_signals")
    def test_in_a_with_block_stops_in_order(
        self, monque: SyncMonque, blocking_db: Database[dict[str, Any]]
    ) -> None:
        @monque.worker("work")
        def work(job: Job[None]) -> None:
            interrupt_main_thread()
            time.sleep(0.05)

        with pytest.raises(KeyboardInterrupt), monque:  # noqa: PT012  # it comes in between
            monque.enqueue("work", None)
            threading.Event().wait(120)

        assert not monque.is_running
        assert [job.status for job in stored_jobs(blocking_db)] == ["completed"]

    @pytest.mark.usefixtures("python_signals")
    def test_while_it_becomes_idle_leaves_nothing(
        self, monque: SyncMonque, blocking_db: Database[dict[str, Any]]
    ) -> None:
        @monque.worker("work")
        async def work(job: Job[None]) -> None:
            interrupt_main_thread()
            await asyncio.sleep(0.05)

        monque.enqueue("work", None)
        with pytest.raises(KeyboardInterrupt):
            monque.run_until_idle()

        assert not monque.is_running
        assert no_threads_are_left()
        (job,) = stored_jobs(blocking_db)
        assert (job.status, job.claimed_by) in {("completed", None), ("pending", None)}

    @pytest.mark.usefixtures("python_signals")
    def test_during_a_stop_hands_back_what_runs(
        self, monque: SyncMonque, blocking_db: Database[dict[str, Any]]
    ) -> None:
        stopping, started = threading.Event(), threading.Event()

        @monque.worker("work")
        async def work(job: Job[None]) -> None:
            started.set()
            while not stopping.is_set():
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            interrupt_main_thread()
            await asyncio.Event().wait()

        monque.start()
        monque.enqueue("work", None)
        assert started.wait(120)
        stopping.set()
        with pytest.raises(KeyboardInterrupt):
            monque.stop()

        assert not monque.is_running
        assert no_threads_are_left()
        (job,) = stored_jobs(blocking_db)
        assert (job.status, job.claimed_by) == ("pending", None)

    @pytest.mark.usefixtures("python_signals")
    def test_during_a_start_that_has_succeeded_leaves_nothing(
        self, monque: SyncMonque, blocking_db: Database[dict[str, Any]]
    ) -> None:
        start = monque._monque.start

        async def start_and_interrupt() -> None:
            await start()
            await asyncio.sleep(0.05)
            interrupt_main_thread()
            await asyncio.Event().wait()

        monque._monque.start = start_and_interrupt  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            monque.start()
        assert not monque.is_running
        assert no_threads_are_left()

        monque._monque.start = start  # type: ignore[method-assign]
        with monque:
            assert monque.is_running
