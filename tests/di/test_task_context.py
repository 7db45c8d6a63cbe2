"""Entering and exiting a context manager in a task of its own."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from monque_di.task_context import TaskContext, enter, enter_sync, is_async_result, leave
from tests.support.tally import Tally

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


class Room:
    """An async manager whose stay can be watched and held up."""

    def __init__(self) -> None:
        self.steps: Tally[str] = Tally()
        self.tasks: list[object] = []
        self.seen: list[BaseException | None] = []
        self.may_open = asyncio.Event()
        self.may_open.set()
        self.may_close = asyncio.Event()
        self.may_close.set()

    async def __aenter__(self) -> str:
        self.tasks.append(asyncio.current_task())
        self.steps.add("opening")
        await self.may_open.wait()
        self.steps.add("open")
        return "value"

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.tasks.append(asyncio.current_task())
        self.seen.append(error)
        self.steps.add("closing")
        await self.may_close.wait()
        self.steps.add("closed")


def tasks_of_tenants() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == "monque-run-scoped"]


class TestOpening:
    async def test_is_begun_at_once_and_gives_the_value_to_whoever_asks(self) -> None:
        context = TaskContext[str](Room())
        assert {*await asyncio.gather(context.value(), context.value())} == {"value"}
        assert await context.value() == "value"
        await context.close(None)

    async def test_awaits_what_gives_the_manager_first(self) -> None:
        room = Room()

        async def make() -> Room:
            await asyncio.sleep(0)
            return room

        context = TaskContext[str](make())
        assert await context.value() == "value"
        await context.close(None)
        assert room.steps == ["opening", "open", "closing", "closed"]

    async def test_takes_a_manager_that_is_not_async_where_only_its_coming_was(self) -> None:
        steps: list[str] = []

        @contextmanager
        def manage() -> Iterator[str]:
            steps.append("open")
            yield "value"
            steps.append("closed")

        async def make() -> Any:
            return manage()

        context = TaskContext[str](make())
        assert await context.value() == "value"
        await context.close(None)
        assert steps == ["open", "closed"]

    async def test_goes_on_for_the_others_when_one_stops_waiting(self) -> None:
        room = Room()
        room.may_open.clear()
        context = TaskContext[str](room)

        async def ask() -> str:
            return await context.value()

        first, second = asyncio.create_task(ask()), asyncio.create_task(ask())
        await room.steps.reach(1)
        first.cancel()
        await asyncio.wait([first])
        assert first.cancelled()
        room.may_open.set()
        assert await second == "value"
        await context.close(None)
        assert room.steps == ["opening", "open", "closing", "closed"]

    @pytest.mark.parametrize("source", ["manager", "factory"])
    async def test_that_fails_tells_everyone_who_asks_and_leaves_nothing_to_close(
        self, source: str
    ) -> None:
        error = LookupError("no such host")

        async def make() -> Room:
            raise error

        @asynccontextmanager
        async def manage() -> AsyncIterator[str]:
            raise error
            yield

        context = TaskContext[str](manage() if source == "manager" else make())
        for _ in range(2):
            with pytest.raises(LookupError) as raised:
                await context.value()
            assert raised.value is error
        await context.close(None)
        assert not tasks_of_tenants()

    async def test_that_fails_and_is_not_asked_for_is_not_a_news(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        @asynccontextmanager
        async def manage() -> AsyncIterator[str]:
            raise LookupError
            yield

        context = TaskContext[str](manage())
        await context.close(None)
        del context
        await asyncio.sleep(0)
        assert not caplog.records

    @pytest.mark.parametrize("source", ["manager", "factory"])
    async def test_that_raises_what_a_future_cannot_hold_still_tells_of_it(
        self, source: str
    ) -> None:
        class Odd:
            def __aenter__(self) -> Any:
                raise StopIteration("over")

            async def __aexit__(self, *details: object) -> None: ...

        async def make() -> Any:
            raise StopIteration("over")

        context = TaskContext[str](Odd() if source == "manager" else make())
        with pytest.raises(RuntimeError, match="StopIteration") as raised:
            await asyncio.wait_for(asyncio.create_task(_ask(context)), 120)
        assert "over" in f"{raised.value} {raised.value.__cause__}"
        await context.close(None)

    async def test_that_exits_the_process_fails_those_who_wait_and_not_the_event_loop(
        self,
    ) -> None:
        class Exiting:
            async def __aenter__(self) -> Any:
                raise SystemExit("a library gave up")

            async def __aexit__(self, *details: object) -> None: ...

        context = TaskContext[str](Exiting())
        with pytest.raises(SystemExit, match="a library gave up"):
            await context.value()

    async def test_of_what_is_not_a_manager_is_explained(self) -> None:
        async def make() -> object:
            return "a string"

        context = TaskContext[str](make())
        with pytest.raises(
            TypeError, match=r"'a string'.*not a context manager.*providers\.Factory"
        ):
            await context.value()
        await context.close(None)


class TestClosing:
    async def test_happens_in_the_task_that_opened(self) -> None:
        room = Room()
        context = TaskContext[str](room)
        await asyncio.create_task(_ask(context))
        await asyncio.create_task(context.close(None))
        opened_in, closed_in = room.tasks
        assert opened_in is closed_in
        assert opened_in is not asyncio.current_task()
        assert room.steps == ["opening", "open", "closing", "closed"]
        assert not tasks_of_tenants()

    @pytest.mark.parametrize("error", [None, ValueError("failed"), asyncio.CancelledError()])
    async def test_shows_the_manager_how_the_run_ended(self, error: BaseException | None) -> None:
        room = Room()
        context = TaskContext[str](room)
        await context.value()
        await context.close(error)
        assert room.seen == [error]

    @pytest.mark.parametrize("shown", [None, ValueError("the run's")])
    async def test_raises_what_the_manager_raises(self, shown: BaseException | None) -> None:
        @asynccontextmanager
        async def manage() -> AsyncIterator[str]:
            try:
                yield "value"
            finally:
                raise OSError("no commit")

        context = TaskContext[str](manage())
        await context.value()
        with pytest.raises(OSError, match="no commit") as raised:
            await context.close(shown)
        assert raised.value.__context__ is shown

    async def test_raises_a_cancellation_that_nobody_asked_for(self) -> None:
        @asynccontextmanager
        async def manage() -> AsyncIterator[str]:
            yield "value"
            flushing = asyncio.create_task(asyncio.sleep(3600))
            flushing.cancel()
            await flushing

        context = TaskContext[str](manage())
        await context.value()
        with pytest.raises(asyncio.CancelledError):
            await context.close(None)

    async def test_that_exits_the_process_fails_the_run_and_not_the_event_loop(self) -> None:
        @asynccontextmanager
        async def manage() -> AsyncIterator[str]:
            yield "value"
            raise SystemExit("a library gave up")

        context = TaskContext[str](manage())
        await context.value()
        with pytest.raises(SystemExit, match="a library gave up"):
            await context.close(None)

    async def test_before_it_is_open_cancels_the_opening_and_waits_for_its_end(self) -> None:
        steps = Tally[str]()

        @asynccontextmanager
        async def manage() -> AsyncIterator[str]:
            try:
                steps.add("opening")
                await asyncio.Event().wait()
                yield "value"
            finally:
                await asyncio.sleep(0)
                steps.add("cleaned up")

        context = TaskContext[str](manage())
        await steps.reach(1)
        await context.close(ValueError("the run's"))
        assert steps == ["opening", "cleaned up"]
        assert not tasks_of_tenants()

    async def test_before_its_task_took_a_step_opens_nothing(self) -> None:
        room = Room()
        context = TaskContext[str](room)
        await context.close(None)
        assert not room.steps
        assert not tasks_of_tenants()

    async def test_before_its_task_took_a_step_leaves_no_coroutine_that_was_never_awaited(
        self,
    ) -> None:
        async def make() -> Room:
            return Room()

        making = make()
        context = TaskContext[str](making)
        await context.close(None)
        state = inspect.getcoroutinestate(making)
        making.close()
        assert state == inspect.CORO_CLOSED
        assert not tasks_of_tenants()

    async def test_closes_what_opened_in_spite_of_its_cancellation(self) -> None:
        steps = Tally[str]()
        may_open = asyncio.Event()

        @asynccontextmanager
        async def manage() -> AsyncIterator[str]:
            opening = asyncio.create_task(may_open.wait())
            steps.add("opening")
            while not opening.done():
                try:
                    await asyncio.wait([opening])
                except asyncio.CancelledError:
                    steps.add("resisted")
            try:
                yield "value"
            finally:
                steps.add("closed")

        context = TaskContext[str](manage())
        await steps.reach(1)
        closing = asyncio.create_task(context.close(ValueError("the run's")))
        await steps.reach(2)
        may_open.set()
        done, _ = await asyncio.wait([closing], timeout=120)
        if not done:
            closing.cancel()
        assert done, "the close waits for ever"
        assert steps == ["opening", "resisted", "closed"]
        assert not tasks_of_tenants()

    async def test_happens_too_when_its_own_task_is_cancelled_as_at_the_end_of_a_loop(
        self,
    ) -> None:
        room = Room()
        context = TaskContext[str](room)
        await context.value()
        (task,) = tasks_of_tenants()
        task.cancel()
        await context.close(ValueError("the run's"))
        assert room.steps == ["opening", "open", "closing", "closed"]
        (seen,) = room.seen
        assert isinstance(seen, (ValueError, asyncio.CancelledError))

    async def test_that_is_cancelled_cancels_the_manager_and_waits_for_it(self) -> None:
        steps = Tally[str]()

        @asynccontextmanager
        async def manage() -> AsyncIterator[str]:
            yield "value"
            try:
                steps.add("closing")
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.sleep(0)
                steps.add("rolled back")
                raise

        context = TaskContext[str](manage())
        await context.value()
        closing = asyncio.create_task(context.close(None))
        await steps.reach(1)
        closing.cancel("stop")
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert steps == ["closing", "rolled back"]
        assert not tasks_of_tenants()

    async def test_that_is_cancelled_again_and_again_still_waits_for_the_manager(self) -> None:
        steps = Tally[str]()
        may_end = asyncio.Event()

        @asynccontextmanager
        async def manage() -> AsyncIterator[str]:
            yield "value"
            while not may_end.is_set():
                steps.add("closing")
                try:
                    await may_end.wait()
                except asyncio.CancelledError:
                    steps.add("resisted")
            steps.add("closed")

        context = TaskContext[str](manage())
        await context.value()
        closing = asyncio.create_task(context.close(None))
        for count in (1, 3, 5):
            await steps.reach(count)
            closing.cancel()
        await steps.reach(7)
        assert not closing.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert steps == ["closing", "resisted"] * 3 + ["closing", "closed"]
        assert not tasks_of_tenants()


class TestOneTask:
    async def test_keeps_a_cancel_scope_and_a_task_group_intact(self) -> None:
        ran = Tally[str]()

        async def serve() -> None:
            try:
                ran.add("serving")
                await anyio.sleep_forever()
            finally:
                ran.add("served")

        @asynccontextmanager
        async def manage() -> AsyncIterator[str]:
            with anyio.fail_after(3600):
                async with anyio.create_task_group() as group:
                    group.start_soon(serve)
                    yield "value"
                    group.cancel_scope.cancel()

        context = TaskContext[str](manage())
        await asyncio.create_task(_ask(context))
        await ran.reach(1)
        await asyncio.create_task(context.close(None))
        assert ran == ["serving", "served"]

    async def test_lets_a_task_group_see_the_failure_of_the_run(self) -> None:
        error = ValueError("the run's")
        seen: list[BaseException] = []

        @asynccontextmanager
        async def manage() -> AsyncIterator[str]:
            async with anyio.create_task_group() as group:
                group.start_soon(anyio.sleep_forever)
                try:
                    yield "value"
                except ValueError as raised:
                    seen.append(raised)
                    raise

        context = TaskContext[str](manage())
        await context.value()
        with pytest.raises(ExceptionGroup) as raised:
            await context.close(error)
        assert raised.value.exceptions == (error,)
        assert seen == [error]

    async def test_lets_context_variables_be_reset_by_their_tokens(self) -> None:
        user: ContextVar[str] = ContextVar("user", default="nobody")

        @asynccontextmanager
        async def manage() -> AsyncIterator[str]:
            token = user.set("ada")
            yield user.get()
            assert user.get() == "ada"
            user.reset(token)

        context = TaskContext[str](manage())
        assert await asyncio.create_task(_ask(context)) == "ada"
        await asyncio.create_task(context.close(None))
        assert user.get() == "nobody"

    async def test_sees_the_context_of_whoever_asked_first(self) -> None:
        user: ContextVar[str] = ContextVar("user", default="nobody")

        @asynccontextmanager
        async def manage() -> AsyncIterator[str]:
            yield user.get()

        user.set("ada")
        context = TaskContext[str](manage())
        user.set("grace")
        assert await context.value() == "ada"
        await context.close(None)


class TestManagers:
    async def test_are_entered_by_their_async_side_where_they_have_both(self) -> None:
        used: list[str] = []

        class Both:
            def __enter__(self) -> None:
                used.append("enter")

            def __exit__(self, *details: object) -> None:
                used.append("exit")

            async def __aenter__(self) -> None:
                used.append("aenter")

            async def __aexit__(self, *details: object) -> None:
                used.append("aexit")

        manager = Both()
        await enter(manager)
        await leave(manager, None)
        assert used == ["aenter", "aexit"]

    async def test_that_swallow_the_error_change_nothing(self) -> None:
        @contextmanager
        def swallow() -> Iterator[None]:
            with suppress(ValueError):
                yield

        manager = swallow()
        enter_sync(manager)
        await leave(manager, ValueError("seen and forgotten"))

    @pytest.mark.parametrize("given", ["text", None, 7, [], object])
    def test_are_recognized(self, given: object) -> None:
        with pytest.raises(TypeError, match="not a context manager"):
            enter_sync(given)


async def test_futures_and_coroutines_are_promises_and_managers_that_can_be_awaited_are_not() -> (
    None
):
    class Connecting(Room):
        def __await__(self) -> Any:
            return self.__aenter__().__await__()

    async def promise() -> None: ...

    coroutine = promise()
    assert is_async_result(coroutine)
    await coroutine
    assert is_async_result(asyncio.get_running_loop().create_future())
    assert not is_async_result(Connecting())
    assert not is_async_result("value")


async def _ask(context: TaskContext[str]) -> str:
    return await context.value()
