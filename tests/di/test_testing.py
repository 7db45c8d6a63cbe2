"""Running one job in-process, without MongoDB."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import weakref
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from dependency_injector import containers, providers

from monque_core import Job, MonqueError
from monque_core.testing import assert_enqueued, assert_not_enqueued, run_until_idle
from monque_di import (
    MonqueContainer,
    MonqueService,
    RunScoped,
    WiringError,
    cron,
    current_job,
    job,
    job_controller,
    lifespan,
    run_job,
)
from monque_di.building import provide
from monque_di.registry import Registry
from monque_di.scope import RunScope
from monque_di.task_context import TaskContext
from monque_di.workers import Workers, handle
from tests.support.samples import a_job
from tests.support.sessions import SHAPES, Session, Sessions
from tests.support.tally import Tally

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pymongo.asynchronous.database import AsyncDatabase

any_shape = pytest.mark.parametrize("shape", SHAPES)


class Mailer:
    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, letter: Any) -> str:
        self.sent.append(letter)
        return f"sent {letter}"


class Unprovided: ...


@job(name="send-email")
class SendEmail:
    def __init__(self, mailer: Mailer, session: Session, job: Job[Any]) -> None:
        self.mailer = mailer
        self.session = session
        self.job = job

    async def handle(self, job: Job[Any]) -> Any:
        assert job is self.job
        assert job is current_job()
        assert self.session.is_open
        if isinstance(job.data, BaseException):
            raise job.data
        return self.mailer.send(job.data)


@job(name="print-letter")
class PrintLetter(SendEmail):
    def handle(self, job: Job[Any]) -> Any:
        assert threading.current_thread() is not threading.main_thread()
        assert job is self.job
        assert job is current_job()
        assert self.session.is_open
        if isinstance(job.data, BaseException):
            raise job.data
        return self.mailer.send(job.data)


@job(name="bare")
class Bare:
    def __init__(self, mailer: Mailer) -> None:
        self.mailer = mailer

    async def handle(self, job: Job[Any]) -> Job[Any]:
        return job


@job_controller("billing")
class Billing:
    def __init__(self, mailer: Mailer, session: Session) -> None:
        self.mailer = mailer
        self.session = session

    @job(name="charge")
    async def charge(self, job: Job[int]) -> tuple[str, int, bool]:
        return job.name, job.data, self.session.is_open

    @cron("0 0 1 * *", name="close-month")
    def close_month(self, job: Job[None]) -> tuple[str, bool]:
        assert threading.current_thread() is not threading.main_thread()
        return job.name, self.session.is_open


@job(name="lasting", scope="singleton")
class Lasting:
    built = 0

    def __init__(self, mailer: Mailer) -> None:
        type(self).built += 1
        self.mailer = mailer

    async def handle(self, job: Job[Any]) -> Lasting:
        return self


@job(name="hoarding", scope="singleton")
class Hoarding:
    def __init__(self, session: Session) -> None: ...

    async def handle(self, job: Job[Any]) -> None: ...


@job(name="broken")
class Broken:
    def __init__(self, mailer: Mailer, unprovided: Unprovided, other: Unprovided) -> None: ...

    async def handle(self, job: Job[Any]) -> None: ...


@job(name="enqueueing")
class Enqueueing:
    def __init__(self, queue: MonqueService) -> None:
        self.queue = queue

    async def handle(self, job: Job[Any]) -> Any:
        return await self.queue.enqueue("bare", job.data)


both_kinds = pytest.mark.parametrize("target", [SendEmail, PrintLetter])


@pytest.fixture
async def sessions() -> Sessions:
    return Sessions()


def an_app(sessions: Sessions, shape: str = "async generator", **more: Any) -> Any:
    made = {
        "mailer": providers.Singleton(Mailer),
        "session": RunScoped(sessions.factory(shape)),
        **more,
    }
    app = containers.DynamicContainer()
    app.set_providers(**made)
    return app


class TestAClass:
    @both_kinds
    @any_shape
    async def test_gives_what_its_handler_returns_and_closes_its_scope(
        self, sessions: Sessions, shape: str, target: type
    ) -> None:
        app = an_app(sessions, shape)
        assert await run_job(app, target, "hello") == "sent hello"
        assert app.mailer().sent == ["hello"]
        assert sessions.steps == ["open session", "close session"]
        assert sessions.only.seen is None

    @both_kinds
    @any_shape
    async def test_raises_what_its_handler_raises_and_shows_it_to_the_scope(
        self, sessions: Sessions, shape: str, target: type
    ) -> None:
        error = LookupError("no such address")
        with pytest.raises(LookupError) as raised:
            await run_job(an_app(sessions, shape), target, error)
        assert raised.value is error
        assert sessions.only.seen is error
        assert not sessions.open

    async def test_is_given_a_job_as_in_its_first_run(self, sessions: Sessions) -> None:
        data = {"to": "ada@example.org"}
        first = await run_job(an_app(sessions), Bare, data)
        second = await run_job(an_app(sessions), Bare)
        assert (first.name, first.data, first.status) == ("bare", data, "processing")
        assert (first.claims, first.fail_count, first.unique_key) == (1, 0, None)
        assert first.data is data
        assert second.data is None
        assert first.id != second.id
        assert first.created_at.tzinfo is not None

    async def test_is_built_anew_by_every_call(self, sessions: Sessions) -> None:
        built: list[SendEmail] = []

        @job(name="noting")
        class Noting(SendEmail):
            def __init__(self, mailer: Mailer, session: Session, job: Job[Any]) -> None:
                super().__init__(mailer, session, job)
                built.append(self)

        app = an_app(sessions)
        for _ in range(3):
            await run_job(app, Noting, "hello")
        assert len(set(map(id, built))) == 3
        assert len({id(handler.session) for handler in built}) == 3
        assert {id(handler.mailer) for handler in built} == {id(app.mailer())}

    async def test_that_is_a_singleton_runs_too(self, sessions: Sessions) -> None:
        Lasting.built = 0
        lasting = await run_job(an_app(sessions), Lasting)
        assert isinstance(lasting, Lasting)
        assert Lasting.built == 1

    async def test_that_fails_to_be_built_raises_that_and_closes_its_scope(
        self, sessions: Sessions
    ) -> None:
        error = OSError("no printer")

        @job(name="unbuildable")
        class Unbuildable:
            def __init__(self, session: Session) -> None:
                raise error

            async def handle(self, job: Job[Any]) -> None: ...

        with pytest.raises(OSError, match="no printer") as raised:
            await run_job(an_app(sessions), Unbuildable)
        assert raised.value is error
        assert sessions.only.seen is error

    async def test_whose_scope_fails_to_close_raises_that(self, sessions: Sessions) -> None:
        def fail(seen: BaseException | None) -> None:
            raise OSError("no commit")

        session = RunScoped(sessions.factory("async manager", closing=fail))
        with pytest.raises(OSError, match="no commit"):
            await run_job(an_app(sessions, session=session), SendEmail, "hello")

    async def test_whose_plain_handler_gives_an_awaitable_gives_what_that_gives(
        self, sessions: Sessions
    ) -> None:
        async def deliver(session: Session) -> str:
            await asyncio.sleep(0)
            return f"delivered while {session.is_open=}"

        @job(name="forwarding")
        class Forwarding:
            def __init__(self, session: Session) -> None:
                self.session = session

            def handle(self, job: Job[Any]) -> Any:
                return deliver(self.session)

        given = await run_job(an_app(sessions), Forwarding)
        assert given == "delivered while session.is_open=True"

    async def test_whose_plain_handler_raises_stop_iteration_comes_to_an_end(
        self, sessions: Sessions
    ) -> None:
        running = asyncio.create_task(
            run_job(an_app(sessions), PrintLetter, StopIteration("nothing left"))
        )
        done, _ = await asyncio.wait([running], timeout=120)
        if not done:
            running.cancel()
            await asyncio.wait([running])
        assert done, "the job never ends"
        # As in the core: no coroutine can raise it.
        assert isinstance(running.exception(), RuntimeError)

    async def test_that_is_cancelled_in_its_thread_keeps_its_scope_until_the_thread_returns(
        self, sessions: Sessions
    ) -> None:
        starts, may_end = Tally[str](), threading.Event()
        seen: list[bool] = []

        @job(name="slow")
        class Slow:
            def __init__(self, session: Session) -> None:
                self.session = session

            def handle(self, job: Job[Any]) -> None:
                starts.add("started")
                may_end.wait(120)
                seen.append(self.session.is_open)

        running = asyncio.create_task(run_job(an_app(sessions), Slow))
        await starts.reach(1)
        running.cancel()
        await asyncio.sleep(0.05)
        may_end.set()
        await asyncio.wait([running])
        assert running.cancelled()
        assert seen == [True]
        assert isinstance(sessions.only.seen, asyncio.CancelledError)

    async def test_may_run_another_within_its_handler(self, sessions: Sessions) -> None:
        app = an_app(sessions)

        @job(name="outer")
        class Outer:
            def __init__(self, session: Session) -> None:
                self.session = session

            async def handle(self, job: Job[Any]) -> Any:
                inner = await run_job(app, SendEmail, "inner")
                assert current_job() is job
                assert self.session.is_open
                return inner

        assert await run_job(app, Outer) == "sent inner"
        assert len(sessions) == 2
        assert not sessions.open


class TestAController:
    async def test_runs_the_method_that_is_named(self, sessions: Sessions) -> None:
        app = an_app(sessions)
        assert await run_job(app, Billing.charge, 12) == ("billing.charge", 12, True)
        assert await run_job(app, Billing.close_month) == ("billing.close-month", True)
        assert len(sessions) == 2
        assert not sessions.open

    async def test_without_a_method_is_asked_for_one(self, sessions: Sessions) -> None:
        with pytest.raises(WiringError, match="pass one of its methods") as raised:
            await run_job(an_app(sessions), Billing)
        (problem,) = raised.value.problems
        assert "Billing" in problem
        assert "<class" not in problem

    async def test_with_a_mistake_in_another_method_still_says_what_is_wrong(
        self, sessions: Sessions
    ) -> None:
        @job_controller("odd")
        class Odd:
            def __init__(self, unprovided: Unprovided) -> None: ...

            @job(name="fine")
            async def fine(self, job: Job[Any]) -> None: ...

        with pytest.raises(WiringError, match=r"Odd → unprovided: Unprovided → no provider"):
            await run_job(an_app(sessions), Odd.fine)


class TestAMistake:
    async def test_in_the_wiring_is_reported_with_all_the_others_and_nothing_is_opened(
        self, sessions: Sessions
    ) -> None:
        with pytest.raises(WiringError) as raised:
            await run_job(an_app(sessions), Broken)
        assert raised.value.problems == (
            "Broken → unprovided: Unprovided → no provider",
            "Broken → other: Unprovided → no provider",
        )
        assert not sessions.steps

    async def test_of_a_singleton_that_keeps_what_lives_in_a_run_is_reported(
        self, sessions: Sessions
    ) -> None:
        with pytest.raises(WiringError, match=r"Hoarding → session: Session → is run-scoped"):
            await run_job(an_app(sessions), Hoarding)

    @pytest.mark.parametrize("target", [Mailer, "send-email", None, SendEmail.handle])
    async def test_about_what_a_job_is_is_reported(self, sessions: Sessions, target: Any) -> None:
        with pytest.raises(WiringError):
            await run_job(an_app(sessions), target)

    async def test_about_what_a_container_is_is_reported(self) -> None:
        for container in (None, {"mailer": Mailer()}, Mailer):
            with pytest.raises((MonqueError, TypeError), match=r"container"):
                await run_job(container, Bare)  # type: ignore[arg-type]  # the mistake


class TestOverrides:
    @both_kinds
    async def test_hold_for_as_long_as_they_last(self, sessions: Sessions, target: type) -> None:
        app, fake = an_app(sessions), Mailer()
        with app.mailer.override(providers.Object(fake)):
            await run_job(app, target, "to nobody")
        await run_job(app, target, "to ada")
        assert fake.sent == ["to nobody"]
        assert app.mailer().sent == ["to ada"]

    @any_shape
    async def test_of_what_is_run_scoped_leave_the_real_one_closed(
        self, sessions: Sessions, shape: str
    ) -> None:
        app, fake = an_app(sessions, shape), Session("fake", ())
        with app.session.override(providers.Object(fake)):
            assert await run_job(app, SendEmail, "hello") == "sent hello"
        assert not sessions.steps
        assert fake.is_open
        assert await run_job(app, SendEmail, "hello") == "sent hello"
        assert len(sessions) == 1

    async def test_of_the_whole_container_hold_too(self, sessions: Sessions) -> None:
        app, fake = an_app(sessions), Mailer()
        with app.override_providers(mailer=providers.Object(fake)):
            await run_job(app, SendEmail, "to nobody")
        assert fake.sent == ["to nobody"]
        assert not app.mailer().sent

    async def test_mend_a_mistake_in_the_wiring(self, sessions: Sessions) -> None:
        app = an_app(sessions, unprovided=providers.Dependency(instance_of=Unprovided))

        @job(name="needing")
        class Needing:
            def __init__(self, unprovided: Unprovided) -> None:
                self.unprovided = unprovided

            async def handle(self, job: Job[Any]) -> Unprovided:
                return self.unprovided

        with pytest.raises(WiringError, match="no provider"):
            await run_job(app, Needing)
        fake = Unprovided()
        with app.unprovided.override(providers.Object(fake)):
            assert await run_job(app, Needing) is fake

    async def test_of_the_provider_of_the_class_itself_hold(self, sessions: Sessions) -> None:
        app = an_app(sessions, bare=providers.Factory(Bare, mailer=providers.Object("of its own")))

        class Fake:
            async def handle(self, job: Job[Any]) -> str:
                return "faked"

        assert (await run_job(app, Bare)).name == "bare"
        with app.bare.override(providers.Factory(Fake)):
            assert await run_job(app, Bare) == "faked"


class TestAnApplication:
    async def test_need_have_no_monque(self) -> None:
        class App(containers.DeclarativeContainer):
            mailer = providers.Singleton(Mailer)

        app = App()
        assert (await run_job(app, Bare)).name == "bare"

    async def test_with_monque_need_not_be_started(self, sessions: Sessions) -> None:
        class App(containers.DeclarativeContainer):
            mailer = providers.Singleton(Mailer)
            monque = providers.Container(
                MonqueContainer, connection=providers.Object("nowhere"), jobs=[SendEmail]
            )

        app = App()
        assert (await run_job(app, Bare)).name == "bare"
        with pytest.raises(MonqueError, match="not started"):
            await run_job(app, Enqueueing)

    async def test_is_asserted_about_and_run_through_its_service(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        sent: list[str] = []

        @job("mail")
        class Mail:
            async def handle(self, job: Job[str]) -> None:
                sent.append(job.data)

        container: Any = MonqueContainer(connection=providers.Object(db), jobs=[Mail])
        async with lifespan(container):
            service = container.service()
            await service.enqueue("mail", "Ada", delay=3600)
            await assert_enqueued(service, "mail", data="Ada", count=1)
            await assert_not_enqueued(service, "mail", data="Bob")
            await service.enqueue("mail", "Bob")
            await run_until_idle(service)
            await service.enqueue("mail", "Cy")
            await service.run_until_idle(timeout=20)
        assert sent == ["Bob", "Cy"]

    async def test_that_is_started_gives_its_queue(
        self, db: AsyncDatabase[dict[str, Any]], sessions: Sessions
    ) -> None:
        app = an_app(
            sessions,
            monque=providers.Container(MonqueContainer, connection=providers.Object(db), jobs=[]),
        )
        async with lifespan(app):
            stored = await run_job(app, Enqueueing, "from a test")
        assert (stored.name, stored.data) == ("bare", "from a test")
        found = await db["monque_jobs"].find_one({"_id": stored.id})
        assert found is not None
        assert found["data"] == "from a test"

    async def test_may_be_given_a_queue_that_is_none(self, sessions: Sessions) -> None:
        class Pretence:
            async def enqueue(self, name: str, data: Any) -> tuple[str, Any]:
                return name, data

        app = an_app(
            sessions,
            monque=providers.Container(MonqueContainer, connection=providers.Object("nowhere")),
        )
        with app.monque.service.override(providers.Object(Pretence())):
            assert await run_job(app, Enqueueing, 7) == ("bare", 7)

    async def test_is_found_from_a_container_that_is_nested_in_it(self, sessions: Sessions) -> None:
        class Inner(containers.DeclarativeContainer):
            other = providers.Object(1)

        class App(containers.DeclarativeContainer):
            inner = providers.Container(Inner)
            mailer = providers.Singleton(Mailer)

        app: Any = App()
        for container in (app, app.inner, app.inner()):
            assert (await run_job(container, Bare)).name == "bare"

    async def test_has_its_resources_opened_as_they_are_needed(self, sessions: Sessions) -> None:
        async def connect() -> AsyncIterator[Mailer]:
            sessions.steps.add("connected")
            yield Mailer()
            sessions.steps.add("disconnected")

        app = an_app(sessions, mailer=providers.Resource(connect))
        for _ in range(2):
            assert await run_job(app, SendEmail, "hello") == "sent hello"
        await app.shutdown_resources()
        assert sessions.steps == [
            "connected",
            *["open session", "close session"] * 2,
            "disconnected",
        ]


class TestContextLocals:
    @pytest.mark.parametrize("kind", ["singleton", "resource", "async singleton"])
    async def test_are_the_runs_own_and_leave_those_of_the_caller_alone(
        self, sessions: Sessions, kind: str
    ) -> None:
        async def make() -> Mailer:
            return Mailer()

        provider: Any = {
            "singleton": providers.ContextLocalSingleton(Mailer),
            "resource": providers.ContextLocalResource(Mailer),
            "async singleton": providers.ContextLocalSingleton(make),
        }[kind]
        app = an_app(sessions, mailer=provider)

        @job(name="asking")
        class Asking:
            def __init__(self, mailer: Mailer) -> None:
                self.mailer = mailer

            async def handle(self, job: Job[Any]) -> Any:
                assert self.mailer is await own()
                return self.mailer

        async def own() -> Any:
            given = app.mailer()
            return await given if asyncio.isfuture(given) else given

        mine = await own()
        given = [await run_job(app, Asking), await run_job(app, Asking)]
        assert len({id(mailer) for mailer in (mine, *given)}) == 3
        assert await own() is mine

    async def test_do_not_outlive_the_run_in_the_context_of_the_caller(
        self, sessions: Sessions
    ) -> None:
        app = an_app(sessions, mailer=providers.ContextLocalSingleton(Mailer))

        @job(name="asking")
        class Asking:
            def __init__(self, mailer: Mailer) -> None:
                self.mailer = mailer

            async def handle(self, job: Job[Any]) -> Any:
                return self.mailer

        given = await run_job(app, Asking)
        assert app.mailer() is not given

    @any_shape
    @pytest.mark.parametrize("ending", ["returns", "raises"])
    async def test_that_are_resources_are_shut_down_with_their_run_and_those_of_the_caller_not(
        self, sessions: Sessions, shape: str, ending: str
    ) -> None:
        local = providers.ContextLocalResource(sessions.factory(shape))
        app = an_app(sessions, local=local)

        @job(name="asking")
        class Asking:
            def __init__(self, local: Any) -> None:
                self.local = local

            async def handle(self, job: Job[Any]) -> Any:
                assert self.local.is_open
                if ending == "raises":
                    raise LookupError("no such address")
                return self.local

        mine = await provide(app.local)
        for _ in range(2):
            with suppress(LookupError):
                assert (await run_job(app, Asking)) is not mine
        assert len(sessions) == 3
        assert sessions.open == [mine]
        assert await provide(app.local) is mine
        closing = app.shutdown_resources()
        if closing is not None:
            await closing
        assert not sessions.open

    async def test_that_fail_to_open_are_the_failure_of_the_run(
        self, sessions: Sessions, caplog: pytest.LogCaptureFixture
    ) -> None:
        def refuse() -> None:
            raise ConnectionError("refused")

        for shape in SHAPES:
            factory = sessions.factory(shape, opening=refuse)
            app = an_app(sessions, mailer=providers.ContextLocalResource(factory))
            with pytest.raises(ConnectionError, match="refused"):
                await run_job(app, Bare)
        assert not caplog.records

    async def test_that_nobody_uses_are_not_opened(self, sessions: Sessions) -> None:
        local = providers.ContextLocalResource(sessions.factory("async generator"))
        await run_job(an_app(sessions, local=local), Bare)
        assert not sessions.steps

    async def test_are_not_shared_by_runs_at_the_same_time(self, sessions: Sessions) -> None:
        app = an_app(sessions, mailer=providers.ContextLocalSingleton(Mailer))
        app.mailer()
        all_here = asyncio.Barrier(50)

        @job(name="asking")
        class Asking:
            def __init__(self, mailer: Mailer) -> None:
                self.mailer = mailer

            async def handle(self, job: Job[Any]) -> Any:
                async with asyncio.timeout(120):
                    await all_here.wait()
                assert app.mailer() is self.mailer
                return self.mailer

        given = await asyncio.gather(*(run_job(app, Asking) for _ in range(50)))
        assert len(set(map(id, given))) == 50


class TestManyRuns:
    async def test_at_the_same_time_never_share(self, sessions: Sessions) -> None:
        app = an_app(sessions)
        all_here = asyncio.Barrier(200)

        @job(name="meeting")
        class Meeting:
            def __init__(self, session: Session, job: Job[Any]) -> None:
                self.session = session
                self.job = job

            async def handle(self, job: Job[Any]) -> tuple[Session, int]:
                async with asyncio.timeout(120):
                    await all_here.wait()
                assert self.job is job
                assert self.session.is_open
                return self.session, job.data

        runs = await asyncio.gather(*(run_job(app, Meeting, number) for number in range(200)))
        assert len({session for session, _ in runs}) == 200
        assert [number for _, number in runs] == list(range(200))
        assert not sessions.open

    @pytest.mark.parametrize("shape", ["sync manager", "async generator"])
    async def test_two_thousand_leave_nothing_behind(self, shape: str) -> None:
        handlers = weakref.WeakSet[Any]()
        opened = weakref.WeakSet[Session]()

        @job(name="counting")
        class Counting:
            def __init__(self, session: Session, mailer: Mailer) -> None:
                handlers.add(self)
                opened.add(session)

            async def handle(self, job: Job[Any]) -> None:
                await asyncio.sleep(0)
                if job.data % 10 == 1:
                    raise ValueError("one of ten fails")
                if job.data % 10 == 2:
                    raise asyncio.CancelledError

        sessions = Sessions()

        class App(containers.DeclarativeContainer):
            mailer = providers.ContextLocalSingleton(Mailer)
            session = RunScoped(sessions.factory(shape))

        workers = Workers(App(), Registry([Counting]).jobs)
        assert not workers.problems

        async def run(number: int) -> None:
            job = a_job(name="counting", data=number)
            with suppress(ValueError, asyncio.CancelledError):
                await workers.around(job, lambda: handle(job))

        async def run_all(count: int) -> None:
            for start in range(0, count, 50):
                async with asyncio.TaskGroup() as group:
                    for number in range(start, start + 50):
                        group.create_task(run(number))
                assert not sessions.open
                sessions.all.clear()
                sessions.steps.clear()

        await run_all(500)
        before = Census()
        await run_all(2_000)
        after = Census()
        assert not after.grown_since(before)
        assert after.tasks == before.tasks
        assert after.threads == before.threads
        assert after.memory_blocks - before.memory_blocks < 1_000
        assert len(handlers) == len(opened) == 0

    async def test_in_threads_leave_nothing_behind(self, sessions: Sessions) -> None:
        app = an_app(sessions, "sync generator")
        await asyncio.gather(*(run_job(app, PrintLetter, number) for number in range(50)))
        before = Census()
        for _ in range(6):
            await asyncio.gather(*(run_job(app, PrintLetter, number) for number in range(50)))
        assert not sessions.open
        sessions.all.clear()
        after = Census()
        assert not after.grown_since(before)
        assert after.tasks == before.tasks
        # The executor makes its threads one by one, up to a limit of its own.
        assert after.threads <= before.threads + 5


class Census:
    """How much there is of what could grow with the number of runs."""

    def __init__(self) -> None:
        gc.collect()
        kinds = {RunScope, TaskContext, Session, Job, SendEmail, PrintLetter}
        self.kept = Counter(type(one) for one in gc.get_objects() if type(one) in kinds)
        self.tasks = len(asyncio.all_tasks())
        self.threads = threading.active_count()
        self.memory_blocks = sys.getallocatedblocks()

    def grown_since(self, before: Census) -> Counter[type]:
        """Return the object types that have grown in number, and by how much."""
        return self.kept - before.kept
