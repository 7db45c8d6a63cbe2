"""Run-scoped objects."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import gc
import logging
import threading
import weakref
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Self

import anyio
import pytest
from dependency_injector import containers, providers
from dependency_injector.wiring import Provide, inject
from hypothesis import given, settings
from hypothesis import strategies as st

from monque_core import MonqueError
from monque_di import RunScoped, current_job
from monque_di.building import provide
from monque_di.scope import RunScope, current_scope
from tests.support.samples import a_job
from tests.support.sessions import AT_ONCE, LATER, SHAPES, Session, Sessions
from tests.support.tally import Tally

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from monque_core import Job

any_shape = pytest.mark.parametrize("shape", SHAPES)
sync_shape = pytest.mark.parametrize("shape", AT_ONCE)
async_shape = pytest.mark.parametrize("shape", LATER)


@st.composite
def graphs(draw: st.DrawFn) -> list[tuple[str, set[int]]]:
    """Generate shapes, each with the positions of its dependencies."""
    shapes = draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=6))
    return [
        (shape, draw(st.sets(st.integers(0, position - 1))) if position else set())
        for position, shape in enumerate(shapes)
    ]


@pytest.fixture
async def sessions() -> Sessions:
    return Sessions()


@pytest.fixture
async def complaints() -> list[dict[str, Any]]:
    """Yield the errors that the event loop reports."""
    heard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
    return heard


async def run(call: Callable[[], Awaitable[Any]], job: Job[Any] | None = None) -> Any:
    return await RunScope(job or a_job()).run(call)


def begin(call: Callable[[], Awaitable[Any]]) -> asyncio.Task[Any]:
    return asyncio.create_task(run(call))


def tasks_of_tenants() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == "monque-run-scoped"]


class TestCurrentJob:
    async def test_is_the_job_of_the_run(self) -> None:
        job = a_job()

        async def call() -> Job[Any]:
            return current_job()

        assert await run(call, job) is job

    async def test_is_there_in_tasks_and_threads_of_the_run(self) -> None:
        job = a_job()

        async def ask() -> Job[Any]:
            return current_job()

        async def call() -> list[Job[Any]]:
            return [await asyncio.create_task(ask()), await asyncio.to_thread(current_job)]

        assert await run(call, job) == [job, job]

    async def test_belongs_to_the_innermost_run(self) -> None:
        outer, inner = a_job(name="outer"), a_job(name="inner")

        async def ask() -> str:
            return current_job().name

        async def call() -> list[str]:
            return [current_job().name, await run(ask, inner), current_job().name]

        assert await run(call, outer) == ["outer", "inner", "outer"]

    @pytest.mark.parametrize("ending", ["returns", "raises"])
    async def test_is_not_a_more_after_the_run(self, ending: str) -> None:
        async def call() -> None:
            current_job()
            if ending == "raises":
                raise ValueError

        try:
            await run(call)
        except ValueError:
            assert ending == "raises"
        with pytest.raises(MonqueError, match="no job is running here"):
            current_job()

    @any_shape
    async def test_is_there_for_the_factories_of_what_is_run_scoped(
        self, sessions: Sessions, shape: str
    ) -> None:
        job = a_job()
        seen: list[Job[Any]] = []

        def note(*details: object) -> None:
            seen.append(current_job())

        session = RunScoped(sessions.factory(shape, opening=note, closing=note))
        await run(lambda: provide(session), job)
        assert seen == [job, job]

    async def test_is_provide_nested_providers(self, sessions: Sessions) -> None:
        job = a_job()
        inner = RunScoped(sessions.factory("async generator"), providers.Callable(current_job))
        outer = providers.Factory(Parts, inner, providers.Callable(current_job))
        session, given = (await run(lambda: provide(outer), job)).parts
        assert given is job
        assert session.parts == (job,)


class TestOpening:
    @any_shape
    async def test_happens_on_first_use_and_what_is_opened_is_shared_until_the_end(
        self, sessions: Sessions, shape: str
    ) -> None:
        session = RunScoped(sessions.factory(shape))

        async def call() -> None:
            assert not sessions.steps
            first = await provide(session)
            second = await provide(session)
            assert first is second is sessions.only
            assert first.is_open

        await run(call)
        assert sessions.steps == ["open session", "close session"]
        assert sessions.only.seen is None

    @any_shape
    async def test_does_not_happen_where_it_is_not_used(
        self, sessions: Sessions, shape: str
    ) -> None:
        session = RunScoped(sessions.factory(shape))

        async def call() -> object:
            return session

        assert await run(call) is session
        assert not sessions.steps

    @any_shape
    async def test_happens_anew_in_every_run(self, sessions: Sessions, shape: str) -> None:
        session = RunScoped(sessions.factory(shape))
        first = await run(lambda: provide(session))
        second = await run(lambda: provide(session))
        assert first is not second
        assert sessions.steps == ["open session", "close session"] * 2

    @async_shape
    async def test_happens_once_for_tasks_that_ask_at_the_same_time(
        self, sessions: Sessions, shape: str
    ) -> None:
        session = RunScoped(sessions.factory(shape))

        async def call() -> Any:
            return await asyncio.gather(*(provide(session) for _ in range(20)))

        assert set(await run(call)) == {sessions.only}

    @sync_shape
    async def test_happens_once_for_threads_that_ask_at_the_same_time(
        self, sessions: Sessions, shape: str
    ) -> None:
        # The default executor has at least five threads.
        all_here = threading.Barrier(4, timeout=120)
        never = threading.Event()

        def hold() -> None:
            # Long enough for another thread to open a second one, if that could be.
            never.wait(0.1)

        session = RunScoped(sessions.factory(shape, opening=hold))

        def ask() -> Any:
            all_here.wait()
            return session()

        async def call() -> Any:
            return await asyncio.gather(*(asyncio.to_thread(ask) for _ in range(4)))

        assert set(await run(call)) == {sessions.only}
        assert not sessions.open

    async def test_gives_the_factory_its_arguments(self) -> None:
        def manage(*args: object, **kwargs: object) -> Iterator[object]:
            yield args, kwargs

        async def host() -> str:
            return "localhost"

        provider = RunScoped(
            manage,
            1,
            providers.Object("two"),
            host=providers.Callable(host),
            port=providers.Configuration(default={"port": 27017}).port,
        )
        given = await run(lambda: provide(provider))
        assert given == ((1, "two"), {"host": "localhost", "port": 27017})

    async def test_takes_a_class_that_is_its_own_manager(self) -> None:
        class UnitOfWork:
            seen: type[BaseException] | None = None

            def __init__(self, host: str) -> None:
                self.host = host

            async def __aenter__(self) -> Self:
                return self

            async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
                self.seen = kind

        works: list[UnitOfWork] = []
        work = RunScoped(UnitOfWork, host="localhost")

        async def call() -> None:
            works.append(await provide(work))
            raise ValueError

        with pytest.raises(ValueError):  # noqa: PT011  # whatever its text
            await run(call)
        (only,) = works
        assert (only.host, only.seen) == ("localhost", ValueError)

    @pytest.mark.parametrize("inner_shape", SHAPES)
    @pytest.mark.parametrize("outer_shape", SHAPES)
    async def test_opens_what_it_draws_from_first_and_closes_it_last(
        self, sessions: Sessions, inner_shape: str, outer_shape: str
    ) -> None:
        inner = RunScoped(sessions.factory(inner_shape, "inner"))
        outer = RunScoped(sessions.factory(outer_shape, "outer"), inner)

        async def call() -> None:
            opened = await provide(outer)
            assert opened.label == "outer"
            assert opened.parts == (await provide(inner),)

        await run(call)
        assert sessions.steps == ["open inner", "open outer", "close outer", "close inner"]

    @any_shape
    async def test_waits_for_async_providers_that_it_draws_from(
        self, sessions: Sessions, shape: str
    ) -> None:
        async def connect() -> str:
            await asyncio.sleep(0)
            return "connected"

        session = RunScoped(sessions.factory(shape), providers.Singleton(connect))
        await run(lambda: provide(session))
        assert sessions.only.parts == ("connected",)

    @any_shape
    async def test_happens_once_for_a_graph_that_needs_it_in_two_places(
        self, sessions: Sessions, shape: str
    ) -> None:
        session = RunScoped(sessions.factory(shape))
        orders, customers = (providers.Factory(Parts, session) for _ in range(2))
        shop = await run(lambda: provide(providers.Factory(Parts, orders, customers)))
        assert [repository.parts for repository in shop.parts] == [(sessions.only,)] * 2

    @any_shape
    async def test_that_fails_fails_the_run_and_closes_the_others(
        self, sessions: Sessions, shape: str
    ) -> None:
        error = ConnectionError("refused")

        def refuse() -> None:
            raise error

        first = RunScoped(sessions.factory("async generator", "first"))
        broken = RunScoped(sessions.factory(shape, "broken", opening=refuse))

        async def call() -> None:
            await provide(first)
            await provide(broken)

        with pytest.raises(ConnectionError) as raised:
            await run(call)
        assert raised.value is error
        assert sessions.steps == ["open first", "close first"]
        assert sessions.only.seen is error
        assert not tasks_of_tenants()

    @any_shape
    async def test_that_fails_behind_a_factory_leaves_nothing_open_and_nothing_to_complain_of(
        self, sessions: Sessions, shape: str, complaints: list[dict[str, Any]]
    ) -> None:
        def refuse() -> None:
            raise ConnectionError("refused")

        parts = [
            RunScoped(sessions.factory("async manager", "before")),
            RunScoped(sessions.factory(shape, "broken", opening=refuse)),
            RunScoped(sessions.factory("async factory of an async manager", "after")),
        ]
        with pytest.raises(ConnectionError, match="refused"):
            await run(lambda: provide(providers.Factory(Parts, *parts)))
        assert not sessions.open
        assert not tasks_of_tenants()
        gc.collect()
        await asyncio.sleep(0)
        assert not complaints

    async def test_of_what_is_not_a_manager_is_explained(self) -> None:
        make: Any = lambda: "a string"  # noqa: E731  # a mistake that a type checker would see
        provider = RunScoped[Any](make)
        with pytest.raises(
            TypeError, match=r"'a string'.*not a context manager.*providers\.Factory"
        ):
            await run(lambda: provide(provider))

    @async_shape
    async def test_in_a_thread_of_what_needs_the_event_loop_says_so(
        self, sessions: Sessions, shape: str
    ) -> None:
        session = RunScoped(sessions.factory(shape))
        with pytest.raises(MonqueError, match=r"thread"):
            await run(lambda: asyncio.to_thread(session))
        assert not sessions.open
        gc.collect()

    @async_shape
    async def test_on_the_loop_of_what_a_thread_asks_for_afterwards_says_so_too(
        self, sessions: Sessions, shape: str
    ) -> None:
        session = RunScoped(sessions.factory(shape))

        async def call() -> None:
            await provide(session)
            with pytest.raises(MonqueError, match=r"thread"):
                await asyncio.to_thread(session)

        await run(call)
        assert sessions.only.seen is None

    @sync_shape
    async def test_in_a_thread_of_what_draws_from_something_async_says_so(
        self, sessions: Sessions, shape: str
    ) -> None:
        async def connect() -> str:
            return "connected"

        connection = providers.Singleton(connect)
        await provide(connection)
        session = RunScoped(sessions.factory(shape), connection)
        with pytest.raises(MonqueError, match=r"thread"):
            await run(lambda: asyncio.to_thread(session))
        assert not sessions.steps

    @sync_shape
    async def test_in_a_thread_does_not_hold_up_what_else_is_opened_on_the_loop(
        self, sessions: Sessions, shape: str
    ) -> None:
        may_open, opening = threading.Event(), Tally[str]()

        def hold() -> None:
            opening.add("opening")
            # Gives up by itself, for a loop that waits for this could not end it.
            may_open.wait(3)

        slow = RunScoped(sessions.factory(shape, "slow", opening=hold))
        quick = RunScoped(sessions.factory(shape, "quick"))

        async def call() -> None:
            asking = asyncio.create_task(asyncio.to_thread(slow))
            await opening.reach(1)
            await provide(quick)
            may_open.set()
            await asking

        await run(call)
        assert sessions.steps == ["open quick", "open slow", "close slow", "close quick"]

    @any_shape
    async def test_on_a_loop_of_the_threads_own_can_neither_use_nor_break_that_of_the_run(
        self, sessions: Sessions, shape: str
    ) -> None:
        session = RunScoped(sessions.factory(shape))

        async def ask() -> Session:
            opened: Session = await provide(session)
            return opened

        async def call() -> None:
            if shape in AT_ONCE:
                assert await asyncio.to_thread(asyncio.run, ask()) is sessions.only
                assert sessions.only.is_open
                return
            with pytest.raises(MonqueError, match=r"thread"):
                await asyncio.to_thread(asyncio.run, ask())

        await run(call)
        assert all(session.seen is None for session in sessions)
        assert not sessions.open

    async def test_that_is_cancelled_from_within_does_not_say_that_the_run_has_ended(
        self, sessions: Sessions
    ) -> None:
        def fail() -> None:
            raise asyncio.CancelledError("the pool is closed")

        session = RunScoped(sessions.factory("async manager", opening=fail))
        raised: BaseException | None = None
        try:
            await run(lambda: provide(session))
        except (MonqueError, asyncio.CancelledError) as error:
            raised = error
        assert raised is not None
        assert "ended" not in str(raised)
        assert "the pool is closed" in f"{raised} {raised.__cause__} {raised.__context__}"

    async def test_waits_for_coroutines_of_compiled_code(self, sessions: Sessions) -> None:
        make = sessions.factory("async factory of an async manager")
        session = RunScoped(lambda: Compiled(make()))
        assert await run(lambda: provide(session)) is sessions.only


class TestClosing:
    @any_shape
    async def test_sees_the_failure_of_the_run_which_stays_what_it_was(
        self, sessions: Sessions, shape: str
    ) -> None:
        session = RunScoped(sessions.factory(shape))
        error = ValueError("the run's")

        async def call() -> None:
            await provide(session)
            raise error

        with pytest.raises(ValueError, match="the run's") as raised:
            await run(call)
        assert raised.value is error
        assert sessions.only.seen is error
        assert sessions.steps == ["open session", "close session"]

    @any_shape
    async def test_sees_the_cancellation_of_the_run(self, sessions: Sessions, shape: str) -> None:
        session = RunScoped(sessions.factory(shape))

        async def call() -> None:
            await provide(session)
            await asyncio.Event().wait()

        running = begin(call)
        await sessions.steps.reach(1)
        running.cancel("stop")
        with pytest.raises(asyncio.CancelledError):
            await running
        assert isinstance(sessions.only.seen, asyncio.CancelledError)
        assert not tasks_of_tenants()

    @any_shape
    @pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
    async def test_sees_what_is_not_a_ordinary_failure(
        self, sessions: Sessions, shape: str, raised: BaseException
    ) -> None:
        session = RunScoped(sessions.factory(shape))

        async def call() -> None:
            await provide(session)
            raise raised

        caught: BaseException | None = None
        try:
            await run(call)
        except BaseException as error:
            caught = error
        assert caught is raised
        assert sessions.only.seen is raised

    @any_shape
    async def test_that_swallows_the_failure_does_not_make_it_a_success(
        self, sessions: Sessions, shape: str
    ) -> None:
        session = RunScoped(sessions.factory(shape, swallows=True))
        error = ValueError("the run's")

        async def call() -> None:
            await provide(session)
            raise error

        with pytest.raises(ValueError, match="the run's") as raised:
            await run(call)
        assert raised.value is error
        assert sessions.only.seen is error

    @any_shape
    async def test_that_swallows_the_failure_hides_it_from_none_of_the_others(
        self, sessions: Sessions, shape: str
    ) -> None:
        outer = RunScoped(sessions.factory("async generator", "outer"))
        inner = RunScoped(sessions.factory(shape, "inner", swallows=True), outer)
        error = ValueError("the run's")

        async def call() -> None:
            await provide(inner)
            raise error

        with pytest.raises(ValueError, match="the run's"):
            await run(call)
        assert [session.seen for session in sessions] == [error, error]

    @any_shape
    async def test_that_fails_after_a_success_is_the_failure_of_the_run(
        self, sessions: Sessions, shape: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        error = OSError("no commit")

        def fail(seen: BaseException | None) -> None:
            raise error

        outer = RunScoped(sessions.factory("async generator", "outer"))
        inner = RunScoped(sessions.factory(shape, "inner", closing=fail), outer)
        with pytest.raises(OSError, match="no commit") as raised:
            await run(lambda: provide(inner))
        assert raised.value is error
        assert [(session.label, session.seen) for session in sessions] == [
            ("outer", error),
            ("inner", None),
        ]
        assert not caplog.records

    @any_shape
    async def test_that_fails_after_a_failure_is_logged_and_the_failure_stands(
        self, sessions: Sessions, shape: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        error, job = ValueError("the run's"), a_job()

        def fail(seen: BaseException | None) -> None:
            raise OSError("no rollback")

        outer = RunScoped(sessions.factory("sync generator", "outer"))
        inner = RunScoped(sessions.factory(shape, "inner", closing=fail), outer)

        async def call() -> None:
            await provide(inner)
            raise error

        with pytest.raises(ValueError, match="the run's") as raised:
            await run(call, job)
        assert raised.value is error
        assert [session.seen for session in sessions] == [error, error]
        (record,) = caplog.records
        assert record.levelno == logging.ERROR
        assert job.name in record.getMessage()
        assert str(job.id) in record.getMessage()
        assert record.exc_info is not None
        assert isinstance(record.exc_info[1], OSError)

    @any_shape
    async def test_that_fails_after_a_cancellation_leaves_it_a_cancellation(
        self, sessions: Sessions, shape: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(seen: BaseException | None) -> None:
            raise OSError("no rollback")

        session = RunScoped(sessions.factory(shape, closing=fail))

        async def call() -> None:
            await provide(session)
            await asyncio.Event().wait()

        running = begin(call)
        await sessions.steps.reach(1)
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()
        assert [record.levelno for record in caplog.records] == [logging.ERROR]

    @any_shape
    async def test_that_fails_with_a_cancellation_after_a_success_fails_the_run(
        self, sessions: Sessions, shape: str
    ) -> None:
        def fail(seen: BaseException | None) -> None:
            raise asyncio.CancelledError("the flush was cancelled")

        session = RunScoped(sessions.factory(shape, closing=fail))
        with pytest.raises(asyncio.CancelledError):
            await run(lambda: provide(session))

    @any_shape
    async def test_that_fails_with_a_cancellation_after_a_failure_leaves_the_failure(
        self, sessions: Sessions, shape: str
    ) -> None:
        def fail(seen: BaseException | None) -> None:
            raise asyncio.CancelledError("the rollback was cancelled")

        session = RunScoped(sessions.factory(shape, closing=fail))

        async def call() -> None:
            await provide(session)
            raise ValueError("the run's")

        with pytest.raises(ValueError, match="the run's"):
            await run(call)

    async def test_that_raises_the_failure_itself_is_not_logged(
        self, sessions: Sessions, caplog: pytest.LogCaptureFixture
    ) -> None:
        def raise_it(seen: BaseException | None) -> None:
            assert seen is not None
            raise seen

        ways = [
            RunScoped(sessions.factory(shape, shape, closing=raise_it))
            for shape in ("sync manager", "async manager", "async factory of a sync manager")
        ]

        async def call() -> None:
            for way in ways:
                await provide(way)
            raise ValueError("the run's")

        with pytest.raises(ValueError, match="the run's"):
            await run(call)
        assert not sessions.open
        assert not caplog.records

    @settings(max_examples=60)
    @given(
        shapes=st.lists(st.sampled_from(SHAPES), max_size=6),
        failing=st.sets(st.integers(0, 5)),
        ending=st.sampled_from(["returns", "raises", "is cancelled"]),
    )
    async def test_goes_in_reverse_and_through_all_whatever_fails(
        self, shapes: list[str], failing: set[int], ending: str
    ) -> None:
        sessions = Sessions()
        opened = asyncio.Event()

        def closing(position: int) -> Callable[[BaseException | None], None]:
            def fail(seen: BaseException | None) -> None:
                if position in failing:
                    raise OSError(f"{position} fails")

            return fail

        scoped = [
            RunScoped(sessions.factory(shape, str(position), closing=closing(position)))
            for position, shape in enumerate(shapes)
        ]

        async def call() -> str:
            for provider in scoped:
                await provide(provider)
            opened.set()
            if ending == "raises":
                raise ValueError("the run's")
            if ending == "is cancelled":
                await asyncio.Event().wait()
            return "done"

        running = begin(call)
        await opened.wait()
        if ending == "is cancelled":
            running.cancel()
        end: Any = (await asyncio.gather(running, return_exceptions=True))[0]

        numbers = [str(position) for position in range(len(shapes))]
        assert sessions.steps == [
            *(f"open {number}" for number in numbers),
            *(f"close {number}" for number in reversed(numbers)),
        ]
        last_failing = max((position for position in failing if position < len(shapes)), default=-1)
        if ending == "raises":
            assert isinstance(end, ValueError)
        elif ending == "is cancelled":
            assert isinstance(end, asyncio.CancelledError)
        elif last_failing >= 0:
            assert isinstance(end, OSError)
            assert str(end) == f"{last_failing} fails"
        else:
            assert end == "done"
        assert not tasks_of_tenants()

    @settings(max_examples=60)
    @given(graph=graphs(), ending=st.sampled_from(["returns", "raises"]))
    async def test_of_a_graph_leaves_open_what_others_still_draw_from(
        self, graph: list[tuple[str, set[int]]], ending: str
    ) -> None:
        sessions = Sessions()
        nodes: list[RunScoped[Any]] = []
        for label, (shape, needs) in enumerate(graph):
            drawn = [nodes[need] for need in sorted(needs)]
            nodes.append(RunScoped(sessions.factory(shape, str(label)), *drawn))

        async def call() -> None:
            await provide(providers.Factory(Parts, *nodes))
            if ending == "raises":
                raise ValueError("the run's")

        end: Any = (await asyncio.gather(run(call), return_exceptions=True))[0]

        assert isinstance(end, ValueError) == (ending == "raises")
        when = {step: position for position, step in enumerate(sessions.steps)}
        assert len(when) == len(sessions.steps) == 2 * len(graph)
        for label, (_, needs) in enumerate(graph):
            for need in needs:
                assert when[f"open {need}"] < when[f"open {label}"]
                assert when[f"close {label}"] < when[f"close {need}"]
        assert {session.seen for session in sessions} <= {end}

    @pytest.mark.parametrize("how", ["in its body", "by its markers"])
    async def test_leaves_open_what_an_async_generator_asked_for_until_that_one_is_closed(
        self, sessions: Sessions, how: str
    ) -> None:
        class App(containers.DeclarativeContainer):
            session = RunScoped(sessions.factory("async manager"))

        app = App()

        async def unit_of_work() -> AsyncIterator[Session]:
            session = await provide(app.session)
            try:
                yield session
            finally:
                sessions.steps.add("commit" if session.is_open else "commit of what is closed")

        @inject
        async def injected_unit_of_work(
            session: Session = Provide["session"],
        ) -> AsyncIterator[Session]:
            try:
                yield session
            finally:
                sessions.steps.add("commit" if session.is_open else "commit of what is closed")

        by_markers = how == "by its markers"
        unit = RunScoped(injected_unit_of_work if by_markers else unit_of_work)
        if by_markers:
            app.wire(modules=[__name__])
        try:
            await run(lambda: provide(unit))
        finally:
            app.unwire()
        assert sessions.steps == ["open session", "commit", "close session"]

    async def test_of_what_a_thread_opened_can_reset_context_variables(self) -> None:
        user: ContextVar[str] = ContextVar("user", default="nobody")

        def manage() -> Iterator[str]:
            token = user.set("ada")
            yield user.get()
            user.reset(token)

        session = RunScoped(manage)
        assert await run(lambda: asyncio.to_thread(session)) == "ada"


class TestCancellation:
    @async_shape
    async def test_during_the_opening_ends_it_and_closes_what_was_open(
        self, sessions: Sessions, shape: str, complaints: list[dict[str, Any]]
    ) -> None:
        steps = Tally[str]()

        async def wait() -> None:
            steps.add("opening")
            try:
                await asyncio.Event().wait()
            finally:
                steps.add("given up")

        if shape == "async factory of a sync manager":

            async def make() -> Any:
                await wait()

            slow: RunScoped[Any] = RunScoped(make)
        else:
            slow = RunScoped(sessions.factory(shape, "slow", opening=wait))
        first = RunScoped(sessions.factory("async generator", "first"))

        async def call() -> None:
            await provide(first)
            await provide(slow)

        running = begin(call)
        await steps.reach(1)
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()
        assert steps == ["opening", "given up"]
        assert sessions.steps == ["open first", "close first"]
        assert isinstance(sessions.only.seen, asyncio.CancelledError)
        assert not tasks_of_tenants()
        assert not complaints

    async def test_during_the_opening_behind_a_factory_leaves_nothing_to_complain_of(
        self, sessions: Sessions, complaints: list[dict[str, Any]]
    ) -> None:
        opening = Tally[str]()

        async def wait() -> None:
            opening.add("opening")
            await asyncio.Event().wait()

        slow = RunScoped(sessions.factory("async generator", opening=wait))
        graph = providers.Factory(Parts, providers.Factory(Parts, slow))
        running = begin(lambda: provide(graph))
        await opening.reach(1)
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()
        assert not tasks_of_tenants()
        gc.collect()
        await asyncio.sleep(0)
        assert not complaints

    @pytest.mark.parametrize("resistance", ["swallows it", "is done by then"])
    async def test_during_an_opening_that_succeeds_all_the_same_closes_what_it_opened(
        self, sessions: Sessions, resistance: str
    ) -> None:
        opening = Tally[str]()
        may_open = asyncio.Event()

        async def wait() -> None:
            opening.add("opening")
            try:
                await may_open.wait()
            except asyncio.CancelledError:
                if resistance != "swallows it":
                    raise

        session = RunScoped(sessions.factory("async manager", opening=wait))
        running = begin(lambda: provide(session))
        await opening.reach(1)
        if resistance == "is done by then":
            may_open.set()
        running.cancel()
        done, _ = await asyncio.wait([running], timeout=120)
        assert done, "the run never ends"
        assert running.cancelled()
        assert not sessions.open
        assert not tasks_of_tenants()

    @pytest.mark.parametrize("position", ["inner", "outer"])
    async def test_during_the_closing_after_a_success_fails_the_run_and_closes_all(
        self, sessions: Sessions, position: str
    ) -> None:
        closing = Tally[str]()

        async def wait(seen: BaseException | None) -> None:
            closing.add("closing")
            await asyncio.Event().wait()

        slow, quick = {"closing": wait}, {"closing": None}
        outer = RunScoped(
            sessions.factory("async generator", "outer", **(slow if position == "outer" else quick))
        )
        inner = RunScoped(
            sessions.factory("async manager", "inner", **(slow if position == "inner" else quick)),
            outer,
        )
        running = begin(lambda: provide(inner))
        await closing.reach(1)
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()
        assert sessions.steps == ["open outer", "open inner", "close inner", "close outer"]
        outer_session, inner_session = sessions
        assert inner_session.seen is None
        if position == "inner":
            assert isinstance(outer_session.seen, asyncio.CancelledError)
        else:
            assert outer_session.seen is None
        assert not tasks_of_tenants()

    async def test_during_a_closing_that_then_fails_loses_neither(
        self, sessions: Sessions, caplog: pytest.LogCaptureFixture
    ) -> None:
        closing = Tally[str]()

        async def wait(seen: BaseException | None) -> None:
            closing.add("closing")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise OSError("half committed") from None

        session = RunScoped(sessions.factory("async manager", closing=wait))
        running = begin(lambda: provide(session))
        await closing.reach(1)
        running.cancel()
        raised: BaseException | None = None
        try:
            await running
        except asyncio.CancelledError as error:
            raised = error
        assert raised is not None
        told = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
        behind = [str(raised.__cause__), str(raised.__context__), *told]
        assert "half committed" in behind

    async def test_twice_reaches_the_handler_and_then_the_closing_and_all_are_closed(
        self, sessions: Sessions
    ) -> None:
        closing = Tally[str]()

        async def wait(seen: BaseException | None) -> None:
            closing.add("closing")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                closing.add("cut short")
                raise

        first = RunScoped(sessions.factory("sync manager", "first"))
        slow = RunScoped(sessions.factory("async generator", "slow", closing=wait))

        async def call() -> None:
            await provide(first)
            await provide(slow)
            await asyncio.Event().wait()

        running = begin(call)
        await sessions.steps.reach(2)
        running.cancel()
        await closing.reach(1)
        assert not running.done()
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()
        assert closing == ["closing", "cut short"]
        assert sessions.steps == ["open first", "open slow", "close slow", "close first"]
        assert all(isinstance(session.seen, asyncio.CancelledError) for session in sessions)
        assert not tasks_of_tenants()

    @any_shape
    async def test_of_everything_as_at_the_end_of_a_loop_closes_all(
        self, sessions: Sessions, shape: str
    ) -> None:
        session = RunScoped(sessions.factory(shape))

        async def call() -> None:
            await provide(session)
            await asyncio.Event().wait()

        before = asyncio.all_tasks()
        running = begin(call)
        await sessions.steps.reach(1)
        tasks = asyncio.all_tasks() - before
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert running.cancelled()
        assert sessions.steps == ["open session", "close session"]
        assert isinstance(sessions.only.seen, asyncio.CancelledError)

    async def test_by_a_timeout_around_the_run_is_a_timeout(self, sessions: Sessions) -> None:
        session = RunScoped(sessions.factory("async generator"))

        async def call() -> None:
            await provide(session)
            await asyncio.Event().wait()

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await run(call)
        assert isinstance(sessions.only.seen, asyncio.CancelledError)

    async def test_by_the_handlers_own_timeout_is_the_handlers_affair(
        self, sessions: Sessions
    ) -> None:
        session = RunScoped(sessions.factory("async generator"))

        async def call() -> str:
            await provide(session)
            try:
                async with asyncio.timeout(0.01):
                    await asyncio.Event().wait()
            except TimeoutError:
                return "late"
            return "in time"

        assert await run(call) == "late"
        assert sessions.only.seen is None

    async def test_of_one_of_two_tasks_that_wait_for_the_opening_leaves_the_other(
        self, sessions: Sessions
    ) -> None:
        opening = Tally[str]()
        may_open = asyncio.Event()

        async def wait() -> None:
            opening.add("opening")
            await may_open.wait()

        session = RunScoped(sessions.factory("async generator", opening=wait))

        async def call() -> Session:
            first, second = (asyncio.create_task(provide(session)) for _ in range(2))
            await opening.reach(1)
            first.cancel()
            await asyncio.wait([first])
            may_open.set()
            opened: Session = await second
            assert opened.is_open
            return opened

        assert await run(call) is sessions.only
        assert sessions.only.seen is None


class TestOneTask:
    async def test_holds_cancel_scopes_and_task_groups_of_an_async_generator(self) -> None:
        ran = Tally[str]()

        async def serve() -> None:
            try:
                ran.add("serving")
                await anyio.sleep_forever()
            finally:
                ran.add("served")

        async def manage(job: object) -> AsyncIterator[str]:
            with anyio.fail_after(3600):
                async with anyio.create_task_group() as group:
                    group.start_soon(serve)
                    try:
                        yield "value"
                    finally:
                        group.cancel_scope.cancel()

        scoped = RunScoped(manage, providers.Callable(current_job))
        graph = providers.Factory(Parts, scoped, providers.Factory(Parts, scoped))

        async def call() -> Any:
            built = await provide(graph)
            await ran.reach(1)
            return built.parts[0]

        assert await run(call) == "value"
        assert ran == ["serving", "served"]

    async def test_holds_a_task_group_that_is_cancelled_with_the_run(self) -> None:
        ran = Tally[str]()

        async def serve() -> None:
            try:
                ran.add("serving")
                await anyio.sleep_forever()
            finally:
                ran.add("served")

        async def manage() -> AsyncIterator[str]:
            async with anyio.create_task_group() as group:
                group.start_soon(serve)
                yield "value"

        scoped = RunScoped(manage)

        async def call() -> None:
            await provide(scoped)
            await asyncio.Event().wait()

        running = begin(call)
        await ran.reach(1)
        running.cancel()
        await asyncio.wait([running], timeout=120)
        assert running.cancelled()
        assert ran == ["serving", "served"]
        assert not tasks_of_tenants()

    async def test_lets_a_token_of_a_context_variable_be_used(self) -> None:
        user: ContextVar[str] = ContextVar("user", default="nobody")

        async def manage() -> AsyncIterator[str]:
            token = user.set(current_job().name)
            await asyncio.sleep(0)
            yield user.get()
            user.reset(token)

        scoped = RunScoped(manage)
        graph = providers.Factory(Parts, providers.Factory(Parts, scoped))
        built = await run(lambda: provide(graph), a_job(name="ada"))
        assert built.parts[0].parts == ("ada",)
        assert user.get() == "nobody"

    @sync_shape
    async def test_is_the_runs_own_for_what_is_sync_on_the_loop(
        self, sessions: Sessions, shape: str
    ) -> None:
        user: ContextVar[str] = ContextVar("user", default="nobody")
        tokens: list[contextvars.Token[str]] = []

        session = RunScoped(
            sessions.factory(
                shape,
                opening=lambda: tokens.append(user.set("ada")),
                closing=lambda _: user.reset(tokens.pop()),
            )
        )

        async def call() -> str:
            await provide(session)
            return user.get()

        assert await run(call) == "ada"
        assert user.get() == "nobody"


class TestOutsideARun:
    @any_shape
    async def test_nothing_is_given_and_the_error_says_why(
        self, sessions: Sessions, shape: str
    ) -> None:
        session = RunScoped(sessions.factory(shape))
        for ask in (session, current_job, current_scope):
            with pytest.raises(MonqueError, match="no job is running here"):
                ask()
        with pytest.raises(MonqueError, match="no job is running here"):
            await provide(providers.Factory(Parts, session))
        assert not sessions.steps

    @any_shape
    async def test_nothing_is_given_to_a_task_that_outlives_its_run(
        self, sessions: Sessions, shape: str
    ) -> None:
        session = RunScoped(sessions.factory(shape))
        used = RunScoped(sessions.factory(shape, "used"))
        may_ask = asyncio.Event()

        async def ask_late() -> None:
            await may_ask.wait()
            for provider in (session, used):
                with pytest.raises(MonqueError, match=r"'send-email' has ended"):
                    await provide(provider)

        async def call() -> asyncio.Task[None]:
            await provide(used)
            return asyncio.create_task(ask_late())

        late = await run(call)
        may_ask.set()
        await late
        assert sessions.steps == ["open used", "close used"]

    @sync_shape
    async def test_nothing_is_given_to_a_thread_that_outlives_its_run(
        self, sessions: Sessions, shape: str
    ) -> None:
        session = RunScoped(sessions.factory(shape))
        may_ask = threading.Event()

        def ask_late() -> None:
            may_ask.wait(120)
            with pytest.raises(MonqueError, match=r"'send-email' has ended"):
                session()

        async def call() -> asyncio.Task[None]:
            return asyncio.create_task(asyncio.to_thread(ask_late))

        late = await run(call)
        may_ask.set()
        await late
        assert not sessions.steps

    @sync_shape
    async def test_what_a_thread_was_opening_when_its_run_ended_is_closed(
        self, sessions: Sessions, shape: str
    ) -> None:
        may_open, opening = threading.Event(), Tally[str]()

        def hold() -> None:
            opening.add("opening")
            may_open.wait(120)

        session = RunScoped(sessions.factory(shape, opening=hold))

        async def call() -> asyncio.Task[Any]:
            asking = asyncio.create_task(asyncio.to_thread(session))
            await opening.reach(1)
            # Only an opening that ends by itself can show whether the close waits for it.
            asyncio.get_running_loop().call_later(0.1, may_open.set)
            return asking

        ends = await asyncio.gather(await run(call), return_exceptions=True)
        assert not sessions.open, f"still open after the run, and the thread got {ends}"

    async def test_nothing_is_opened_while_the_run_closes(self, sessions: Sessions) -> None:
        late = RunScoped(sessions.factory("sync manager", "late"))
        refusals: list[MonqueError] = []

        def ask_late(seen: BaseException | None) -> None:
            try:
                late()
            except MonqueError as error:
                refusals.append(error)

        session = RunScoped(sessions.factory("async generator", closing=ask_late))
        await run(lambda: provide(session))
        assert sessions.steps == ["open session", "close session"]
        assert len(refusals) == 1


class TestProvider:
    @any_shape
    async def test_can_be_overridden_by_a_value_and_back(
        self, sessions: Sessions, shape: str
    ) -> None:
        session = RunScoped(sessions.factory(shape))
        with session.override(providers.Object("fake")):
            assert await run(lambda: provide(session)) == "fake"
        assert not sessions.steps
        assert await run(lambda: provide(session)) is sessions.only
        with session.override("fake"):
            assert await run(lambda: provide(session)) == "fake"
        assert len(sessions) == 1

    @any_shape
    async def test_can_be_overridden_by_another_of_its_kind(
        self, sessions: Sessions, shape: str
    ) -> None:
        session = RunScoped(sessions.factory("async generator", "real"))
        fake = RunScoped(sessions.factory(shape, "fake"))
        with session.override(fake):

            async def call() -> None:
                assert await provide(session) is await provide(session)

            await run(call)
        assert sessions.steps == ["open fake", "close fake"]

    async def test_can_be_overridden_in_the_middle_of_a_run(self, sessions: Sessions) -> None:
        session = RunScoped(sessions.factory("async manager"))

        async def call() -> list[Any]:
            real = await provide(session)
            with session.override(providers.Object("fake")):
                fake = await provide(session)
            return [real, fake, await provide(session)]

        real, fake, again = await run(call)
        assert real is again is sessions.only
        assert fake == "fake"
        assert not sessions.open

    @any_shape
    async def test_is_one_for_each_container(self, sessions: Sessions, shape: str) -> None:
        class App(containers.DeclarativeContainer):
            host = providers.Object("declared")
            session = RunScoped(sessions.factory(shape), host)
            repository = providers.Factory(Parts, session, session)

        first, second = App(host="first"), App(host="second")

        async def call() -> list[Any]:
            return [await provide(app.repository) for app in (first, second)]

        one, other = await run(call)
        assert one.parts[0] is one.parts[1]
        assert one.parts[0].parts == ("first",)
        assert other.parts[0].parts == ("second",)
        assert not sessions.open

    async def test_copies_its_arguments_and_overridings_along(self, sessions: Sessions) -> None:
        session = RunScoped(sessions.factory("sync generator"), providers.Object("host"))
        twin = providers.deepcopy(session)
        assert isinstance(twin, RunScoped)
        assert twin is not session
        assert twin.provides is session.provides
        assert (await run(lambda: provide(twin))).parts == ("host",)
        with session.override(providers.Object("fake")):
            overridden = copy.deepcopy(session)
        assert await run(lambda: provide(overridden)) == "fake"

    async def test_shows_what_it_draws_from_to_whoever_walks_a_container(
        self, sessions: Sessions
    ) -> None:
        connection = providers.Resource(Parts)
        session = RunScoped(
            sessions.factory("sync generator"), providers.Factory(Parts, connection)
        )
        assert connection in set(session.traverse())

    async def test_may_be_given_as_a_provider_and_asked_later(self, sessions: Sessions) -> None:
        session = RunScoped(sessions.factory("sync manager"))
        lazy = providers.Factory(Parts, session.provider)

        async def call() -> None:
            built = await provide(lazy)
            assert not sessions.steps
            (ask,) = built.parts
            assert ask() is sessions.only

        await run(call)
        assert not sessions.open

    async def test_gives_attributes_of_what_it_opened(self, sessions: Sessions) -> None:
        session = RunScoped(sessions.factory("async manager", "main"))
        assert await run(lambda: provide(session.provided.label)) == "main"


class TestConcurrency:
    @any_shape
    async def test_two_hundred_runs_never_share(self, sessions: Sessions, shape: str) -> None:
        session = RunScoped(sessions.factory(shape), providers.Callable(current_job))
        graph = providers.Factory(Parts, session, providers.Factory(Parts, session))
        all_here = asyncio.Barrier(200)

        async def call() -> Session:
            own = await provide(graph)
            async with asyncio.timeout(120):
                await all_here.wait()
            again = await provide(graph)
            session, inner = own.parts
            assert session is inner.parts[0] is again.parts[0]
            assert session.is_open
            assert session.parts == (current_job(),)
            opened: Session = session
            return opened

        opened = await asyncio.gather(*(run(call) for _ in range(200)))
        assert len(set(opened)) == 200
        assert not sessions.open
        assert not tasks_of_tenants()

    @sync_shape
    async def test_two_hundred_runs_in_threads_never_share(
        self, sessions: Sessions, shape: str
    ) -> None:
        session = RunScoped(sessions.factory(shape), providers.Callable(current_job))
        all_here = threading.Barrier(200, timeout=120)
        kept: dict[str, Session] = {}

        def handle() -> None:
            own: Session = session()
            all_here.wait()
            assert session() is own
            assert own.parts == (current_job(),)
            kept[current_job().name] = own

        async def in_thread() -> None:
            context, done = contextvars.copy_context(), asyncio.Event()
            loop = asyncio.get_running_loop()

            def work() -> None:
                context.run(handle)
                loop.call_soon_threadsafe(done.set)

            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            await done.wait()
            thread.join()

        runs = [run(in_thread, a_job(name=f"job-{number}")) for number in range(200)]
        async with asyncio.timeout(120):
            await asyncio.gather(*runs)
        assert len(set(kept.values())) == len(kept) == 200
        assert not sessions.open


class TestMemory:
    @any_shape
    @pytest.mark.parametrize("ending", ["returns", "raises", "is cancelled"])
    async def test_a_run_leaves_nothing_for_the_garbage_collector(
        self, shape: str, ending: str
    ) -> None:
        async def once() -> list[weakref.ref[Any]]:
            sessions = Sessions()
            session = RunScoped(sessions.factory(shape))
            scope = RunScope(a_job())

            async def call() -> None:
                await provide(session)
                if ending == "raises":
                    raise ValueError
                if ending == "is cancelled":
                    await asyncio.Event().wait()

            running = asyncio.create_task(scope.run(call))
            await sessions.steps.reach(1)
            running.cancel() if ending == "is cancelled" else None
            await asyncio.wait([running])
            assert not sessions.open
            references: list[weakref.ref[Any]] = [weakref.ref(scope), weakref.ref(scope.job)]
            if running.cancelled():
                with pytest.raises(asyncio.CancelledError):
                    await running
            else:
                running.exception()
            sessions.only.seen = None
            return references

        await once()
        gc.collect()
        gc.disable()
        try:
            references = await once()
            # The loop forgets a task some steps after its end.
            for _ in range(10):
                await asyncio.sleep(0)
            assert [reference() for reference in references] == [None, None]
        finally:
            gc.enable()


class Parts:
    """What a factory builds of parts."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts


class Compiled(Coroutine[Any, Any, Any]):
    """A coroutine as Cython and mypyc make them: none of Python's own."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __await__(self) -> Any:
        return self.inner.__await__()

    def send(self, value: Any) -> Any:
        return self.inner.send(value)

    def throw(self, *details: Any) -> Any:
        return self.inner.throw(*details)

    def close(self) -> None:
        self.inner.close()
