"""Threads for calls that must not run on the event loop."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from monque_core.threads import ThreadPool
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def pool() -> AsyncIterator[ThreadPool]:
    pool = ThreadPool("test-pool")
    yield pool
    await pool.dismiss(patience=120)


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("test-pool")}


class TestWork:
    async def test_is_done_in_another_thread(self, pool: ThreadPool) -> None:
        thread = await pool.submit(threading.current_thread)
        assert thread is not threading.current_thread()
        assert thread.name == "test-pool-1"
        assert thread.daemon

    async def test_does_not_hold_up_the_event_loop(self, pool: ThreadPool) -> None:
        go_on = threading.Event()
        working = pool.submit(lambda: go_on.wait(120))
        await asyncio.sleep(0)
        assert not working.done()
        go_on.set()
        assert await working

    @pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(3), KeyboardInterrupt()])
    async def test_gives_back_what_it_raises(self, pool: ThreadPool, error) -> None:
        def fail() -> None:
            raise error

        working = pool.submit(fail)
        await asyncio.wait([working])
        assert working.exception() is error

    async def test_may_raise_stop_iteration(self, pool: ThreadPool) -> None:
        with pytest.raises(RuntimeError, match="a thread raised StopIteration") as caught:
            await pool.submit(lambda: next(iter([])))
        assert isinstance(caught.value.__cause__, StopIteration)

    async def test_of_many_is_done_at_the_same_time(self, pool: ThreadPool) -> None:
        together = threading.Barrier(50)
        await asyncio.gather(*(pool.submit(lambda: together.wait(120)) for _ in range(50)))
        assert len(threads()) == 50

    async def test_in_turn_takes_one_thread(self, pool: ThreadPool) -> None:
        used = {await pool.submit(threading.get_ident) for _ in range(100)}
        assert len(used) == 1

    async def test_nobody_waits_for_any_more_is_still_finished(self, pool: ThreadPool) -> None:
        go_on, done = threading.Event(), threading.Event()

        def work() -> None:
            go_on.wait(120)
            done.set()

        working = pool.submit(work)
        working.cancel()
        go_on.set()
        assert await asyncio.to_thread(done.wait, 120)
        assert await pool.submit(lambda: 5) == 5


class TestDismissal:
    async def test_ends_the_threads(self, pool: ThreadPool) -> None:
        await asyncio.gather(*(pool.submit(lambda: None) for _ in range(10)))
        await pool.dismiss(patience=120)
        assert threads() == set()

    async def test_lets_work_that_was_taken_on_be_done(self, pool: ThreadPool) -> None:
        go_on = threading.Event()
        working = pool.submit(lambda: go_on.wait(120))
        await pool.dismiss()
        assert not working.done()
        go_on.set()
        assert await working
        await eventually(lambda: not threads())

    async def test_waits_for_work_as_long_as_it_is_told_to(self, pool: ThreadPool) -> None:
        go_on, done = threading.Event(), threading.Event()

        def work() -> None:
            go_on.wait(120)
            done.set()

        working = pool.submit(work)
        dismissing = asyncio.create_task(pool.dismiss(patience=120))
        await asyncio.sleep(0.05)
        assert not dismissing.done()
        go_on.set()
        await dismissing
        assert done.is_set()
        assert threads() == set()
        await working

    async def test_does_not_wait_for_a_thread_that_never_returns(self, pool: ThreadPool) -> None:
        never, started = threading.Event(), threading.Event()

        def work() -> None:
            started.set()
            never.wait(120)

        working = pool.submit(work)
        await asyncio.to_thread(started.wait, 120)
        await pool.dismiss(patience=0.05)
        assert not working.done()
        never.set()
        await working
        await eventually(lambda: not threads())

    async def test_is_not_the_end_of_the_pool(self, pool: ThreadPool) -> None:
        await pool.submit(lambda: None)
        await pool.dismiss(patience=120)
        assert await pool.submit(lambda: "again") == "again"

    async def test_of_nobody_is_nothing(self, pool: ThreadPool) -> None:
        await pool.dismiss(patience=120)
        await pool.dismiss(patience=120)
        assert threads() == set()


def test_a_thread_may_outlive_its_loop() -> None:
    go_on = threading.Event()

    async def leave_behind() -> None:
        pool = ThreadPool("test-pool")
        pool.submit(lambda: go_on.wait(120))
        await pool.dismiss()

    asyncio.run(leave_behind())
    (thread,) = threads()
    go_on.set()
    thread.join(120)
    assert not thread.is_alive()


def test_a_thread_that_never_returns_does_not_keep_the_interpreter_from_exiting() -> None:
    program = """
import asyncio, threading
from monque_core.threads import ThreadPool

async def main():
    started = threading.Event()
    ThreadPool("stuck").submit(lambda: (started.set(), threading.Event().wait()))
    await asyncio.to_thread(started.wait)

asyncio.run(main())
print("left")
"""
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=200, check=True
    )
    assert finished.stdout == "left\n"
