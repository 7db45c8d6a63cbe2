"""A SyncMonque from start to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from monque_core import (
    Job,
    Monque,
    MonqueConnectionError,
    MonqueError,
    ShutdownTimeoutError,
    SyncMonque,
)
from tests.support.interrupt import interrupt_main_thread
from tests.support.inventory import stored_jobs
from tests.support.patience import wait_until
from tests.support.polling import NO_POLLS
from tests.support.quarantine import Quarantine, all_at_once
from tests.support.record import Record
from tests.support.threads import monque_threads, no_threads_are_left

if TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo.database import Database


class TestStartAndStop:
    def test_leave_nothing(self, monque: SyncMonque) -> None:
        monque.start()
        assert monque.is_running
        assert monque.is_healthy
        assert "monque-loop" in {thread.name for thread in monque_threads()}
        monque.stop()

        assert not monque.is_running
        assert not monque.is_healthy
        assert no_threads_are_left()

    def test_may_be_called_twice(self, monque: SyncMonque) -> None:
        monque.stop()
        monque.start()
        monque.start()
        assert monque.is_running
        monque.stop()
        monque.stop()
        assert not monque.is_running

    def test_may_be_called_many_times(
        self, monque: SyncMonque, blocking_db: Database[dict[str, Any]]
    ) -> None:
        ran: Record[int] = Record()
        monque.worker("work", lambda job: ran.add(job.data))
        for number in range(15):
            with monque as entered:
                assert entered is monque
                monque.enqueue("work", number)
                ran.reach(number + 1)
            assert no_threads_are_left()

        assert list(ran) == list(range(15))
        assert {job.status for job in stored_jobs(blocking_db)} == {"completed"}

    def test_wait_for_what_runs(
        self, monque: SyncMonque, blocking_db: Database[dict[str, Any]]
    ) -> None:
        started, may_end = threading.Event(), threading.Event()

        @monque.worker("work")
        def work(job: Job[None]) -> None:
            started.set()
            may_end.wait(120)

        monque.start()
        monque.enqueue("work", None)
        assert started.wait(120)
        stopping = Quarantine(monque.stop)
        time.sleep(0.05)
        assert not stopping.is_done
        may_end.set()
        stopping.result()

        assert [job.status for job in stored_jobs(blocking_db)] == ["completed"]

    def test_wait_no_longer_than_they_are_told(
        self, monque: SyncMonque, blocking_db: Database[dict[str, Any]]
    ) -> None:
        errors: Record[BaseException] = Record()
        monque.on("job:error", lambda event: errors.add(event.error))
        started = threading.Event()

        @monque.worker("work")
        async def work(job: Job[None]) -> None:
            started.set()
            await asyncio.Event().wait()

        monque.start()
        job = monque.enqueue("work", None)
        assert started.wait(120)
        monque.stop(timeout=timedelta(milliseconds=50))

        (error,) = errors
        assert isinstance(error, ShutdownTimeoutError)
        assert [one.id for one in error.incomplete_jobs] == [job.id]
        assert [one.status for one in stored_jobs(blocking_db)] == ["pending"]
        assert no_threads_are_left()

    def test_do_not_wait_for_a_thread_that_a_handler_has_left_behind(
        self, monque: SyncMonque, blocking_db: Database[dict[str, Any]]
    ) -> None:
        monque.on("job:error", lambda _: None)
        started, may_end = threading.Event(), threading.Event()

        def linger() -> None:
            started.set()
            may_end.wait()

        @monque.worker("work")
        async def work(job: Job[None]) -> None:
            await asyncio.to_thread(linger)

        monque.start()
        monque.enqueue("work", None)
        assert started.wait(120)
        try:
            Quarantine(lambda: monque.stop(timeout=0.1)).result()
        finally:
            may_end.set()

        assert [one.status for one in stored_jobs(blocking_db)] == ["pending"]

    def test_refuse_a_timeout_that_cannot_be(self, monque: SyncMonque) -> None:
        monque.start()
        with pytest.raises(ValueError, match="negative"):
            monque.stop(timeout=-1)
        assert monque.is_running
        monque.stop()
        assert not monque.is_running

    def test_that_fail_without_mongodb_leave_nothing(
        self, absent_db: Database[dict[str, Any]]
    ) -> None:
        monque = SyncMonque(absent_db)
        for call in (
            monque.initialize,
            monque.start,
            monque.run_until_idle,
            lambda: monque.enqueue("work", 1),
        ):
            with pytest.raises(MonqueConnectionError):
                call()
            assert not monque.is_running
            assert not monque.is_connected
            assert not monque.ping()
            assert no_threads_are_left()
        monque.stop()

    def test_that_fail_can_be_tried_again(
        self, monque: SyncMonque, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def fail() -> None:
            raise MonqueConnectionError("not yet")

        with monkeypatch.context() as patch:
            patch.setattr(monque._monque, "initialize", fail)
            with pytest.raises(MonqueConnectionError, match="not yet"):
                monque.start()
        assert no_threads_are_left()

        with monque:
            assert monque.is_running

    def test_that_fail_in_a_with_block_do_not_run_it(
        self, absent_db: Database[dict[str, Any]]
    ) -> None:
        entered = []
        with pytest.raises(MonqueConnectionError), SyncMonque(absent_db):
            entered.append(True)
        assert entered == []

    def test_refuse_an_id_that_is_taken(self, blocking_db: Database[dict[str, Any]]) -> None:
        first = SyncMonque(blocking_db, scheduler_instance_id="one", heartbeat_interval=0.2)
        second = SyncMonque(blocking_db, scheduler_instance_id="one", heartbeat_interval=0.2)
        with first:
            threads = monque_threads()
            with pytest.raises(MonqueConnectionError, match="another live instance has the id"):
                second.start()
            assert not second.is_running
            # Threads of the first one may come and go with its work; the second one has no loop.
            loops = {thread for thread in monque_threads() if "mongo" not in thread.name}
            assert loops <= threads
        with second:
            assert second.is_running

    def test_tell_the_error_of_the_block(self, monque: SyncMonque) -> None:
        with pytest.raises(ValueError, match="bad"), monque:
            raise ValueError("bad")
        assert not monque.is_running


class TestOnItsOwnLoop:
    BLOCKING: ClassVar[dict[str, Callable[[SyncMonque], object]]] = {
        "start": lambda monque: monque.start(),
        "stop": lambda monque: monque.stop(),
        "run_until_idle": lambda monque: monque.run_until_idle(),
        "with": lambda monque: monque.__enter__(),
    }

    @pytest.mark.parametrize("call", BLOCKING.values(), ids=BLOCKING.keys())
    def test_a_call_that_would_wait_for_itself_is_an_error(
        self,
        monque: SyncMonque,
        blocking_db: Database[dict[str, Any]],
        call: Callable[[SyncMonque], object],
    ) -> None:
        errors: Record[BaseException] = Record()

        @monque.worker("work")
        async def work(job: Job[None]) -> None:
            try:
                call(monque)
            except BaseException as error:
                errors.add(error)

        monque.start()
        monque.enqueue("work", None)
        errors.reach(1)

        (error,) = errors
        assert type(error) is MonqueError
        assert "call it from another thread" in str(error)
        assert monque.is_running
        monque.stop()
        assert not monque.is_running
        assert no_threads_are_left()
        assert [job.status for job in stored_jobs(blocking_db)] == ["completed"]

    def test_a_listener_may_not_stop_it(self, monque: SyncMonque) -> None:
        errors: Record[BaseException] = Record()

        @monque.on("job:complete")
        def stop(event: object) -> None:
            try:
                monque.stop()
            except BaseException as error:
                errors.add(error)

        monque.worker("work", lambda _: None)
        monque.start()
        monque.enqueue("work", None)
        errors.reach(1)
        monque.stop()

        assert [type(error) for error in errors] == [MonqueError]
        assert not monque.is_running


class TestIdle:
    def test_is_reached_when_nothing_is_due(
        self, monque: SyncMonque, blocking_db: Database[dict[str, Any]]
    ) -> None:
        ran: Record[int] = Record()
        monque.worker("work", lambda job: ran.add(job.data), concurrency=10)
        monque.enqueue_many("work", range(20))
        monque.enqueue("work", 20, delay=3600)
        monque.run_until_idle()

        assert sorted(ran) == list(range(20))
        assert not monque.is_running
        assert no_threads_are_left()
        assert len(stored_jobs(blocking_db, status="pending")) == 1

    def test_is_reached_after_the_jobs_of_jobs(
        self, standalone_db: Database[dict[str, Any]]
    ) -> None:
        monque = SyncMonque(standalone_db, **NO_POLLS)
        ran: Record[int] = Record()

        @monque.worker("work")
        def work(job: Job[int]) -> None:
            ran.add(job.data)
            if job.data < 5:
                monque.enqueue("work", job.data + 1)

        monque.enqueue("work", 0)
        monque.run_until_idle()

        assert list(ran) == list(range(6))

    @pytest.mark.parametrize("kind", ["blocking", "async"])
    def test_handlers_and_listeners_may_manage_meanwhile(
        self, monque: SyncMonque, kind: str
    ) -> None:
        heard: Record[str] = Record()
        monque.on(
            "job:deleted", lambda _: heard.add(f"deleted in {threading.current_thread().name}")
        )
        other = monque.enqueue("other", 1)

        def delete(job: Job[None]) -> None:
            assert monque.delete_job(other.id)

        async def delete_on_the_loop(job: Job[None]) -> None:
            delete(job)

        if kind == "async":
            monque.worker("work", delete_on_the_loop)
        else:
            monque.worker("work", delete)
        monque.enqueue("work", None)
        Quarantine(lambda: monque.run_until_idle()).result()

        assert len(heard) == 1

    def test_leaves_a_running_instance_running(self, monque: SyncMonque) -> None:
        ran: Record[int] = Record()
        monque.worker("work", lambda job: ran.add(job.data))
        with monque:
            monque.enqueue_many("work", range(5))
            monque.run_until_idle()
            assert sorted(ran) == list(range(5))
            assert monque.is_running

    def test_may_be_waited_for_by_many_threads_again_and_again(
        self, monque: SyncMonque, blocking_db: Database[dict[str, Any]]
    ) -> None:
        monque.worker("work", lambda _: None)
        for _ in range(4):
            monque.enqueue_many("work", range(5))
            all_at_once(5, lambda _: monque.run_until_idle())
            assert not monque.is_running

        assert {job.status for job in stored_jobs(blocking_db)} == {"completed"}

    def test_that_does_not_come_is_a_timeout(self, monque: SyncMonque) -> None:
        may_end = threading.Event()
        monque.worker("work", lambda _: may_end.wait(120))
        monque.enqueue("work", None)
        threading.Timer(0.5, may_end.set).start()
        with pytest.raises(TimeoutError):
            monque.run_until_idle(timeout=0.1)

        assert not monque.is_running


class TestRun:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_ends_with_a_signal(
        self,
        monque: SyncMonque,
        blocking_db: Database[dict[str, Any]],
        number: signal.Signals,
    ) -> None:
        before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]

        @monque.worker("work")
        def work(job: Job[None]) -> None:
            interrupt_main_thread(number)
            time.sleep(0.05)

        monque.enqueue("work", None)
        monque.run()

        assert not monque.is_running
        assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == before
        assert [job.status for job in stored_jobs(blocking_db)] == ["completed"]

    @pytest.mark.usefixtures("python_signals")
    def test_logs_what_it_does(self, monque: SyncMonque, caplog: pytest.LogCaptureFixture) -> None:
        @monque.worker("last", concurrency=3)
        def last(job: Job[None]) -> None:
            interrupt_main_thread(signal.SIGTERM)

        monque.enqueue("last", None)
        with caplog.at_level(logging.INFO, "monque"):
            monque.run()

        told = [each.getMessage() for each in caplog.records if each.name == "monque.worker"]
        connecting, up, _, stopped = told
        assert connecting.startswith("connecting to MongoDB at 127.0.0.1:")
        assert up.endswith("jobs last (concurrency 3)")
        assert stopped == "stopped: no job was left running"

    def test_is_for_the_main_thread(self, monque: SyncMonque) -> None:
        with pytest.raises(MonqueError, match=r"use start\(\) and stop\(\)"):
            Quarantine(monque.run).result()
        assert not monque.is_running

    def test_raises_what_goes_wrong_at_the_start(self, absent_db: Database[dict[str, Any]]) -> None:
        before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
        with pytest.raises(MonqueConnectionError):
            SyncMonque(absent_db).run()

        assert [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)] == before
        assert no_threads_are_left()

    @pytest.mark.usefixtures("python_signals")
    def test_a_signal_ends_a_start_that_waits(self, blocking_db: Database[dict[str, Any]]) -> None:
        dead = Monque(blocking_db, scheduler_instance_id="one", heartbeat_interval=10)
        successor = SyncMonque(blocking_db, scheduler_instance_id="one", heartbeat_interval=10)

        async def die() -> None:
            await dead.initialize()
            await dead._store.leases.take("instance:one", dead._holder, timedelta(hours=1))
            await dead._store.dismiss_threads()

        asyncio.run(die())
        before = signal.getsignal(signal.SIGTERM)

        def interrupt_the_start() -> None:
            wait_until(lambda: signal.getsignal(signal.SIGTERM) != before and monque_threads())
            interrupt_main_thread(signal.SIGTERM)

        Quarantine(interrupt_the_start)
        successor.run()

        assert not successor.is_running
