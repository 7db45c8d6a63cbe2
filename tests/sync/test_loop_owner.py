"""The event loop of a SyncMonque, and the Monque on it."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from monque_core import Monque, MonqueError
from monque_core.sync.loop_owner import LoopOwner
from tests.support.quarantine import Quarantine, all_at_once
from tests.support.record import Record
from tests.support.threads import no_threads_are_left

if TYPE_CHECKING:
    from pymongo.database import Database


@pytest.fixture
def monque(blocking_db: Database[dict[str, Any]]) -> Monque:
    return Monque(blocking_db)


@pytest.fixture
def owner(monque: Monque) -> LoopOwner:
    return LoopOwner(monque, lambda: None)


async def current_thread() -> threading.Thread:
    return threading.current_thread()


class TestLoop:
    def test_is_there_while_somebody_needs_it(self, owner: LoopOwner) -> None:
        first = owner.enter()
        second = owner.enter()
        thread = first.call(current_thread)
        assert first is second
        assert thread.name == "monque-loop"
        owner.leave()
        assert thread.is_alive()
        owner.leave()

        assert not thread.is_alive()
        assert no_threads_are_left()

    def test_is_another_one_each_time(self, owner: LoopOwner) -> None:
        threads = []
        for _ in range(20):
            with owner.entered() as loop:
                threads.append(loop.call(current_thread))

        assert len(set(threads)) == 20
        assert no_threads_are_left()

    def test_is_there_for_many_threads(self, owner: LoopOwner, monque: Monque) -> None:
        at_once: list[int] = []

        async def initialize() -> None:
            at_once.append(1)
            await monque.initialize()
            at_once.pop()

        def use(number: int) -> None:
            for _ in range(5):
                with owner.entered() as loop:
                    loop.call(initialize)

        all_at_once(20, use)
        assert at_once == []
        assert no_threads_are_left()

    def test_leaves_nothing_of_a_call_that_fails(self, owner: LoopOwner, monque: Monque) -> None:
        async def fail() -> None:
            await monque.enqueue("work", 1)
            raise ValueError("bad")

        with pytest.raises(ValueError, match="bad"), owner.entered() as loop:
            loop.call(fail)
        assert no_threads_are_left()

    def test_may_not_be_waited_for_on_itself(self, owner: LoopOwner) -> None:
        async def enter() -> None:
            owner.enter()

        owner.check_may_wait()
        with (
            owner.entered() as loop,
            pytest.raises(MonqueError, match="call it from another thread"),
        ):
            loop.call(enter)
        assert no_threads_are_left()


class TestRun:
    def test_is_here_without_a_loop(self, owner: LoopOwner) -> None:
        assert owner.run(threading.current_thread) is threading.current_thread()

    def test_is_on_the_loop(self, owner: LoopOwner) -> None:
        with owner.entered():
            assert owner.run(threading.current_thread).name == "monque-loop"

    def test_is_in_place_for_what_is_on_the_loop(self, owner: LoopOwner) -> None:
        async def do_there() -> threading.Thread:
            return owner.run(threading.current_thread)

        with owner.entered() as loop:
            assert loop.call(do_there).name == "monque-loop"

    def test_may_raise(self, owner: LoopOwner) -> None:
        def fail() -> None:
            raise ValueError("bad")

        with owner.entered(), pytest.raises(ValueError, match="bad"):
            owner.run(fail)


class TestEmit:
    def test_nobody_needs_no_loop(self, owner: LoopOwner) -> None:
        owner.notice([])
        owner.emit("job:deleted", 1)

        assert no_threads_are_left()
        assert owner.running("work") == 0

    def test_without_a_loop_waits_for_listeners_on_one(
        self, owner: LoopOwner, monque: Monque
    ) -> None:
        heard: list[tuple[str, object]] = []

        @monque.on("job:deleted")
        async def listen(payload: object) -> None:
            await asyncio.sleep(0.01)
            heard.append((threading.current_thread().name, payload))

        owner.emit("job:deleted", 1)

        assert heard == [("monque-loop", 1)]
        assert no_threads_are_left()

    def test_may_lead_to_more(self, owner: LoopOwner, monque: Monque) -> None:
        heard: list[object] = []
        monque.on("job:cancelled", lambda payload: owner.emit("job:deleted", payload))
        monque.on("job:deleted", heard.append)
        Quarantine(lambda: owner.emit("job:cancelled", 1)).result()

        assert heard == [1]

    def test_does_not_wait_for_a_busy_loop(self, owner: LoopOwner, monque: Monque) -> None:
        heard: Record[tuple[str, object]] = Record()
        monque.on("job:deleted", lambda what: heard.add((threading.current_thread().name, what)))
        busy, go_on = threading.Event(), threading.Event()

        def block() -> None:
            busy.set()
            go_on.wait(120)

        with owner.entered():
            blocking = Quarantine(lambda: owner.run(block))
            assert busy.wait(120)
            owner.emit("job:deleted", 1)
            owner.notice([])
            assert heard == []
            go_on.set()
            heard.reach(1)
            blocking.result()

        assert heard == [("monque-loop", 1)]
