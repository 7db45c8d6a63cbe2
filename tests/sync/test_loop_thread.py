"""An event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from monque_core import MonqueError
from monque_core.sync.loop_thread import LoopThread, WaitAbandonedError
from tests.support.interrupt import interrupt_main_thread
from tests.support.quarantine import Quarantine, all_at_once
from tests.support.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    loop = LoopThread("monque-test")
    yield loop
    loop.end()


async def current_thread() -> threading.Thread:
    await asyncio.sleep(0)
    return threading.current_thread()


class TestCall:
    def test_runs_a_coroutine_in_the_thread(self, loop: LoopThread) -> None:
        thread = loop.call(current_thread)

        assert thread is not threading.current_thread()
        assert (thread.name, thread.daemon) == ("monque-test", True)

    def test_raises_what_the_coroutine_raises(self, loop: LoopThread) -> None:
        async def fail() -> None:
            raise ValueError("bad")

        with pytest.raises(ValueError, match="bad"):
            loop.call(fail)

    def test_is_for_many_threads_at_once(self, loop: LoopThread) -> None:
        async def number(given: int) -> int:
            await asyncio.sleep(0)
            return given

        given = all_at_once(50, lambda one: loop.call(lambda: number(one)))
        assert given == list(range(50))

    def test_on_the_loop_itself_is_an_error_that_says_what_to_do(self, loop: LoopThread) -> None:
        async def ask_itself() -> None:
            loop.call(current_thread)

        with pytest.raises(MonqueError, match="call it from another thread"):
            loop.call(ask_itself)

    @pytest.mark.usefixtures("python_signals")
    def test_that_is_interrupted_cancels_the_coroutine(self, loop: LoopThread) -> None:
        cancelled = threading.Event()

        async def wait_for_ever() -> None:
            try:
                await asyncio.sleep(0.05)
                interrupt_main_thread()
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        with pytest.raises(KeyboardInterrupt):
            loop.call(wait_for_ever)
        assert cancelled.wait(120)

    def test_is_given_up_when_its_caller_says_so(self, loop: LoopThread) -> None:
        started, cancelled = threading.Event(), threading.Event()

        async def wait_for_ever() -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        with pytest.raises(WaitAbandonedError):
            loop.call(wait_for_ever, started.is_set)
        assert cancelled.wait(120)
        assert loop.call(current_thread, lambda: False).name == "monque-test"


class TestPost:
    def test_calls_a_function_on_the_loop_without_waiting(self, loop: LoopThread) -> None:
        called: Record[tuple[str, bool]] = Record()
        go_on = threading.Event()
        loop.post(go_on.wait, 120)
        loop.post(lambda word: called.add((word, loop.is_current)), "word")
        assert called == []
        go_on.set()
        called.reach(1)

        assert called == [("word", True)]
        assert not loop.is_current

    def test_after_the_end_does_nothing(self) -> None:
        loop = LoopThread("monque-test")
        loop.end()
        called: list[int] = []
        loop.post(called.append, 1)

        assert called == []


class TestEnd:
    def test_waits_for_the_thread(self) -> None:
        loop = LoopThread("monque-test")
        thread = loop.call(current_thread)
        loop.end()

        assert not thread.is_alive()

    def test_cancels_what_is_left(self) -> None:
        loop = LoopThread("monque-test")
        started, ended = threading.Event(), threading.Event()

        async def wait_for_ever() -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        calling = Quarantine(lambda: loop.call(wait_for_ever))
        assert started.wait(120)
        loop.end()

        assert ended.is_set()
        with pytest.raises(MonqueError, match="event loop has ended"):
            calling.result()

    def test_leaves_no_call_without_an_answer(self) -> None:
        loop = LoopThread("monque-test")
        is_ending, may_end = threading.Event(), threading.Event()
        started = threading.Event()

        async def end_slowly() -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                is_ending.set()
                while not may_end.is_set():
                    await asyncio.sleep(0.01)

        calling = Quarantine(lambda: loop.call(end_slowly))
        assert started.wait(120)
        ending = Quarantine(loop.end)
        assert is_ending.wait(120)
        late = Quarantine(lambda: loop.call(asyncio.Event().wait))
        may_end.set()
        ending.result()

        with pytest.raises(MonqueError, match="event loop has ended"):
            late.result()
        with pytest.raises(MonqueError, match="event loop has ended"):
            calling.result()

    def test_makes_later_calls_a_clear_error(self) -> None:
        loop = LoopThread("monque-test")
        loop.end()

        with pytest.raises(MonqueError, match="ended"):
            loop.call(current_thread)
