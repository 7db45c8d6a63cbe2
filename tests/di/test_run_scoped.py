"""Scopes of runs that come from MongoDB."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import weakref
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from bson import ObjectId
from dependency_injector import containers, providers
from dependency_injector.wiring import Provider, inject
from pymongo.asynchronous.client_session import (
    AsyncClientSession,  # noqa: TC002  # the container reads annotations
)

from monque_core import Job, MonqueError, OwnershipLostError, ShutdownTimeoutError
from monque_di import MonqueContainer, RunScoped, cron, current_job, job, job_controller, lifespan
from tests.support.happenings import Happenings
from tests.support.leftovers import Leftovers
from tests.support.sessions import Session, Sessions
from tests.support.stored import count_by_status, jobs_in, stored
from tests.support.tally import Tally
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from pymongo import AsyncMongoClient
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Monque

    AnyDb = AsyncDatabase[dict[str, Any]]

# Every shape is tried in test_scope.py: what is sync and what is async is enough here.
one_of_each = pytest.mark.parametrize("shape", ["sync generator", "async generator"])
each_way = pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("on the loop", "sync manager"),
        ("on the loop", "async generator"),
        ("in a thread", "sync generator"),
        ("in a thread", "async manager"),
    ],
)
both_kinds = pytest.mark.parametrize("kind", ["on the loop", "in a thread"])


class Mailer: ...


async def transaction(
    client: AsyncMongoClient[dict[str, Any]],
) -> AsyncIterator[AsyncClientSession]:
    async with client.start_session() as session, await session.start_transaction():
        yield session


class Application:
    """An application with one session per run, and what happens in it."""

    def __init__(self, db: AnyDb) -> None:
        self.db = db
        self.sessions = Sessions()
        self.starts: Tally[Any] = Tally()
        self.container: Any = containers.DynamicContainer()
        self.add(mailer=providers.Singleton(Mailer))

    def add(self, **more: providers.Provider[Any]) -> None:
        self.container.set_providers(**more)

    def add_session(self, shape: str = "async generator", **how: Any) -> None:
        self.add(session=RunScoped(self.sessions.factory(shape, **how)))

    @asynccontextmanager
    async def running(self, *jobs: type, **options: Any) -> AsyncIterator[Happenings]:
        """Run the application with these jobs."""
        quick = {"base_retry_interval": 0.01, "recover_stale_jobs": False, **options}
        self.add(
            monque=providers.Container(
                MonqueContainer,
                connection=providers.Object(self.db),
                options=providers.Object(quick),
                jobs=providers.Object(list(jobs)),
            )
        )
        async with lifespan(self.container):
            yield Happenings(self.monque)

    @property
    def monque(self) -> Monque:
        found: Monque = self.container.monque.service().monque
        return found


@pytest.fixture
async def app(db: AnyDb) -> AsyncIterator[Application]:
    """Yield an application, and check that it leaves nothing behind."""
    leftovers = Leftovers()
    app = Application(db)
    yield app
    assert not app.sessions.open
    assert not tasks_of_tenants()
    assert not leftovers.tasks
    await eventually(lambda: not leftovers.threads)


def tasks_of_tenants() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == "monque-run-scoped"]


def a_worker(
    app: Application,
    kind: str,
    on_the_loop: Callable[[Session], Any],
    in_a_thread: Callable[[Session], Any],
    **options: Any,
) -> type:
    """Return a job class that uses its session, on the loop or in a thread."""

    class Built:
        def __init__(self, session: Session) -> None:
            self.session = session

    class Async(Built):
        async def handle(self, job: Job[Any]) -> None:
            app.starts.add(job)
            await on_the_loop(self.session)

    class Plain(Built):
        def handle(self, job: Job[Any]) -> None:
            assert threading.current_thread() is not threading.main_thread()
            app.starts.add(job)
            in_a_thread(self.session)

    return job(name="work", **options)(Async if kind == "on the loop" else Plain)


async def nothing(session: Session) -> None: ...


def nothing_in_a_thread(session: Session) -> None: ...


async def forever(session: Session) -> None:
    await asyncio.Event().wait()


def is_cancellation(error: BaseException | None) -> bool:
    return isinstance(error, asyncio.CancelledError)


class TestLifetimes:
    @both_kinds
    async def test_a_class_is_built_for_each_run_with_its_job_and_its_session(
        self, app: Application, kind: str
    ) -> None:
        built: list[tuple[object, Session, Job[Any]]] = []

        class Built:
            def __init__(self, session: Session, job: Job[int], mailer: Mailer) -> None:
                assert session.is_open
                built.append((self, session, job))
                self.job = job
                self.mailer = mailer

            def check(self, job: Job[int]) -> None:
                assert job is self.job is current_job()
                assert self.mailer is app.container.mailer()

        class Async(Built):
            async def handle(self, job: Job[int]) -> None:
                self.check(job)

        class Plain(Built):
            def handle(self, job: Job[int]) -> None:
                self.check(job)

        app.add_session()
        target = job(name="work")(Async if kind == "on the loop" else Plain)
        async with app.running(target) as happenings:
            await app.monque.enqueue_many("work", range(5))
            await happenings.reach("job:complete", 5)
        handlers, sessions, jobs = zip(*built, strict=True)
        assert len({id(handler) for handler in handlers}) == 5
        assert len(set(sessions)) == 5
        assert sorted(job.data for job in jobs) == list(range(5))

    async def test_a_retry_is_a_run_of_its_own(self, app: Application) -> None:
        app.add_session()
        seen: list[int] = []

        @job(name="work")
        class Work:
            def __init__(self, session: Session, job: Job[None]) -> None:
                self.attempts = job.fail_count

            async def handle(self, job: Job[None]) -> None:
                seen.append(self.attempts)
                if len(seen) < 3:
                    raise ValueError(f"attempt {len(seen)}")

        async with app.running(Work) as happenings:
            await app.monque.enqueue("work", None)
            await happenings.reach("job:complete")
        assert seen == [0, 1, 2]
        assert [str(session.seen) for session in app.sessions] == [
            "attempt 1",
            "attempt 2",
            "None",
        ]

    async def test_a_singleton_is_built_once_and_before_the_first_run(
        self, app: Application
    ) -> None:
        built: list[object] = []
        seen: list[object] = []

        @job(name="work", scope="singleton")
        class Work:
            def __init__(self, mailer: Mailer) -> None:
                built.append(self)

            async def handle(self, job: Job[int]) -> None:
                seen.append(self)

        async with app.running(Work) as happenings:
            assert len(built) == 1
            await app.monque.enqueue_many("work", range(10))
            await happenings.reach("job:complete", 10)
        assert seen == built * 10

    async def test_a_controller_that_is_a_singleton_is_built_once_for_all_its_jobs(
        self, app: Application
    ) -> None:
        built: list[object] = []
        seen: Tally[tuple[object, str]] = Tally()

        @job_controller("billing", scope="singleton")
        class Billing:
            def __init__(self, mailer: Mailer) -> None:
                built.append(self)

            @job(name="charge")
            async def charge(self, job: Job[None]) -> None:
                seen.add((self, job.name))

            @job(name="refund")
            def refund(self, job: Job[None]) -> None:
                seen.add((self, job.name))

            @cron("0 0 1 1 *", name="close-year")
            async def close_year(self, job: Job[None]) -> None:
                seen.add((self, job.name))

        async with app.running(Billing):
            for name in ("charge", "refund", "close-year", "charge"):
                await app.monque.enqueue(f"billing.{name}", None)
            await seen.reach(4)
        (instance,) = built
        assert {handler for handler, _ in seen} == {instance}
        assert sorted(name for _, name in seen) == [
            "billing.charge",
            "billing.charge",
            "billing.close-year",
            "billing.refund",
        ]

    async def test_a_controller_is_built_for_each_run_of_each_of_its_jobs(
        self, app: Application
    ) -> None:
        app.add_session()
        built: list[object] = []

        @job_controller()
        class Billing:
            def __init__(self, session: Session) -> None:
                built.append(self)
                self.session = session

            @job(name="charge")
            async def charge(self, job: Job[None]) -> None:
                assert self.session.is_open

            @job(name="refund")
            def refund(self, job: Job[None]) -> None:
                assert self.session.is_open

        async with app.running(Billing) as happenings:
            for name in ("charge", "refund") * 3:
                await app.monque.enqueue(name, None)
            await happenings.reach("job:complete", 6)
        assert len({id(one) for one in built}) == 6
        assert len(app.sessions) == 6

    async def test_the_job_is_there_for_everything_that_is_built_or_called_in_the_run(
        self, app: Application
    ) -> None:
        seen: dict[str, Job[Any]] = {}

        class Audit:
            def __init__(self) -> None:
                seen["a nested factory"] = current_job()

        def note(where: str) -> Callable[..., None]:
            return lambda *_: seen.update({where: current_job()})

        inner = RunScoped(app.sessions.factory("sync manager", "inner", opening=note("opening")))
        app.add(
            inner=inner,
            audit=providers.Factory(Audit),
            session=RunScoped(
                app.sessions.factory("async generator", closing=note("closing")), inner
            ),
        )

        @job(name="work")
        class Work:
            def __init__(self, audit: Audit, session: Session) -> None: ...

            async def handle(self, job: Job[None]) -> None:
                await asyncio.to_thread(note("a thread"))
                await asyncio.create_task(self.note_later())
                seen["the handler"] = job

            async def note_later(self) -> None:
                seen["a task"] = current_job()

        async with app.running(Work) as happenings:
            stored = await app.monque.enqueue("work", None)
            await happenings.reach("job:complete")
        assert {job.id for job in seen.values()} == {stored.id}
        assert sorted(seen) == [
            "a nested factory",
            "a task",
            "a thread",
            "closing",
            "opening",
            "the handler",
        ]

    async def test_a_singleton_may_ask_for_the_session_of_each_run(self, app: Application) -> None:
        app.add_session()
        seen: list[Session] = []

        @job(name="work", scope="singleton")
        class Work:
            @inject
            def __init__(self, session: Any = Provider["session"]) -> None:
                self.open_session = session

            async def handle(self, job: Job[int]) -> None:
                session = await self.open_session()
                assert session is await self.open_session()
                seen.append(session)

        async with app.running(Work) as happenings:
            assert not app.sessions.steps
            await app.monque.enqueue_many("work", range(5))
            await happenings.reach("job:complete", 5)
        assert set(seen) == set(app.sessions)
        assert len(app.sessions) == 5

    async def test_overriding_takes_effect_on_the_next_run(self, app: Application) -> None:
        app.add_session()
        given: Tally[Any] = Tally()

        @job(name="work")
        class Work:
            def __init__(self, session: Any, mailer: Any) -> None:
                given.add((session, mailer))

            async def handle(self, job: Job[None]) -> None: ...

        async with app.running(Work):
            await app.monque.enqueue("work", None)
            await given.reach(1)
            container = app.container
            with container.session.override("fake"), container.mailer.override("fake mailer"):
                await app.monque.enqueue("work", None)
                await given.reach(2)
            await app.monque.enqueue("work", None)
            await given.reach(3)
        assert given[1] == ("fake", "fake mailer")
        assert given[0][0] is not given[2][0]
        assert list(app.sessions) == [given[0][0], given[2][0]]


class TestTheEnd:
    @each_way
    async def test_of_a_success_closes_before_the_outcome_is_reported(
        self, app: Application, kind: str, shape: str
    ) -> None:
        app.add_session(shape)
        work = a_worker(app, kind, nothing, nothing_in_a_thread)
        open_at_the_end: list[Session] = []
        async with app.running(work) as happenings:
            app.monque.on("job:complete", lambda _: open_at_the_end.extend(app.sessions.open))
            job = await app.monque.enqueue("work", None)
            await happenings.reach("job:complete")
        assert not open_at_the_end
        assert app.sessions.only.seen is None
        assert (await stored(app.db, job)).status == "completed"

    @each_way
    async def test_of_a_failure_shows_it_and_the_job_is_retried_for_it(
        self, app: Application, kind: str, shape: str
    ) -> None:
        app.add_session(shape, swallows=True)

        async def fail(session: Session) -> None:
            raise LookupError("no such address")

        def fail_in_a_thread(session: Session) -> None:
            raise LookupError("no such address")

        work = a_worker(app, kind, fail, fail_in_a_thread)
        async with app.running(work, base_retry_interval=3600) as happenings:
            job = await app.monque.enqueue("work", None)
            (failed,) = await happenings.reach("job:fail")
        assert failed.will_retry
        assert app.sessions.only.seen is failed.error
        now = await stored(app.db, job)
        assert (now.status, now.fail_count) == ("pending", 1)
        assert "no such address" in str(now.fail_reason)

    @each_way
    async def test_of_a_timeout_shows_the_cancellation(
        self, app: Application, kind: str, shape: str
    ) -> None:
        app.add_session(shape)
        never = threading.Event()

        def wait_in_a_thread(session: Session) -> None:
            never.wait(0.4)
            assert session.is_open, "a thread keeps its scope until it returns"

        work = a_worker(app, kind, forever, wait_in_a_thread, timeout=0.1)
        async with app.running(work, base_retry_interval=3600) as happenings:
            await app.monque.enqueue("work", None)
            (failed,) = await happenings.reach("job:fail")
        assert isinstance(failed.error, TimeoutError)
        assert is_cancellation(app.sessions.only.seen)

    @one_of_each
    async def test_of_a_cancellation_shows_it(self, app: Application, shape: str) -> None:
        app.add_session(shape)

        async def cancel_oneself(session: Session) -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)

        work = a_worker(app, "on the loop", cancel_oneself, nothing_in_a_thread)
        async with app.running(work, base_retry_interval=3600) as happenings:
            await app.monque.enqueue("work", None)
            (failed,) = await happenings.reach("job:fail")
        assert is_cancellation(failed.error)
        assert is_cancellation(app.sessions.only.seen)

    @each_way
    async def test_of_a_lost_claim_shows_the_cancellation_and_writes_nothing(
        self, app: Application, kind: str, shape: str
    ) -> None:
        app.add_session(shape)
        may_end = threading.Event()

        def wait_in_a_thread(session: Session) -> None:
            may_end.wait(120)
            assert session.is_open, "a thread keeps its scope until it returns"

        work = a_worker(app, kind, forever, wait_in_a_thread)
        async with app.running(work, heartbeat_interval=0.1) as happenings:
            job = await app.monque.enqueue("work", None)
            await app.starts.reach(1)
            await jobs_in(app.db).update_one(
                {"_id": job.id}, {"$set": {"claimedBy": "another", "claimToken": ObjectId()}}
            )
            left = await jobs_in(app.db).find_one({"_id": job.id})
            (told,) = await happenings.reach("job:error")
            may_end.set()
            await app.sessions.steps.reach(2)
        assert isinstance(told.error, OwnershipLostError)
        assert is_cancellation(app.sessions.only.seen)
        assert await jobs_in(app.db).find_one({"_id": job.id}) == left
        assert not happenings.of("job:fail")
        assert not happenings.of("job:complete")

    @each_way
    async def test_of_a_run_that_a_stop_waits_for_is_a_success(
        self, app: Application, kind: str, shape: str
    ) -> None:
        app.add_session(shape)
        may_end = threading.Event()
        seen_open: list[bool] = []

        async def wait(session: Session) -> None:
            await eventually(may_end.is_set)
            seen_open.append(session.is_open)

        def wait_in_a_thread(session: Session) -> None:
            may_end.wait(120)
            seen_open.append(session.is_open)

        work = a_worker(app, kind, wait, wait_in_a_thread)
        async with app.running(work):
            job = await app.monque.enqueue("work", None)
            await app.starts.reach(1)
            stopping = asyncio.create_task(app.monque.stop())
            await asyncio.sleep(0.05)
            assert not stopping.done()
            may_end.set()
            await stopping
            assert not app.sessions.open
        assert seen_open == [True]
        assert app.sessions.only.seen is None
        assert (await stored(app.db, job)).status == "completed"

    @one_of_each
    async def test_of_a_run_that_outlasts_a_stop_shows_the_cancellation_and_goes_back(
        self, app: Application, shape: str
    ) -> None:
        app.add_session(shape)
        work = a_worker(app, "on the loop", forever, nothing_in_a_thread)
        async with app.running(work, shutdown_timeout=0.05) as happenings:
            job = await app.monque.enqueue("work", None)
            await app.starts.reach(1)
        assert is_cancellation(app.sessions.only.seen)
        now = await stored(app.db, job)
        assert (now.status, now.fail_count, now.claimed_by) == ("pending", 0, None)
        (told,) = happenings.of("job:error")
        assert isinstance(told.error, ShutdownTimeoutError)

    @one_of_each
    async def test_of_a_thread_that_outlasts_a_stop_shows_the_cancellation(
        self, app: Application, shape: str
    ) -> None:
        app.add_session(shape)
        other = RunScoped(app.sessions.factory("sync manager", "other"))
        app.add(other=other)
        may_end = threading.Event()
        late: Tally[Any] = Tally()

        def wait_in_a_thread(session: Session) -> None:
            may_end.wait(120)
            try:
                other()
            except MonqueError as error:
                late.add(str(error))

        work = a_worker(app, "in a thread", forever, wait_in_a_thread)
        async with app.running(work, shutdown_timeout=0.05):
            job = await app.monque.enqueue("work", None)
            await app.starts.reach(1)
        try:
            assert is_cancellation(app.sessions.only.seen)
            assert (await stored(app.db, job)).status == "processing", "recovery takes it over"
        finally:
            may_end.set()
        await late.reach(1)
        assert late == ["the run of 'work' has ended: its run-scoped objects are closed"]
        assert len(app.sessions) == 1

    async def test_of_a_thread_that_is_still_opening_at_the_end_of_a_stop_closes_that_too(
        self, app: Application
    ) -> None:
        may_open, opening = threading.Event(), Tally[str]()

        def hold() -> None:
            opening.add("opening")
            may_open.wait(120)

        lazy = RunScoped(app.sessions.factory("sync generator", "lazy", opening=hold))
        app.add(lazy=lazy)
        ends: Tally[object] = Tally()

        @job(name="work")
        class Work:
            def handle(self, job: Job[None]) -> None:
                try:
                    ends.add(lazy())
                except MonqueError as error:
                    ends.add(error)

        async with app.running(Work, shutdown_timeout=0.05):
            await app.monque.enqueue("work", None)
            await opening.reach(1)
            # Else a stop that waits for the opening would wait for ever.
            threading.Timer(0.5, may_open.set).start()
        await ends.reach(1)
        await eventually(lambda: not app.sessions.open)

    async def test_of_a_stop_cuts_a_closing_short(self, app: Application) -> None:
        closing: Tally[str] = Tally()

        async def wait(seen: BaseException | None) -> None:
            closing.add("closing")
            await asyncio.Event().wait()

        app.add_session(closing=wait)
        work = a_worker(app, "on the loop", nothing, nothing_in_a_thread)
        async with app.running(work, shutdown_timeout=0.05):
            job = await app.monque.enqueue("work", None)
            await closing.reach(1)
        assert app.sessions.only.seen is None
        now = await stored(app.db, job)
        assert (now.status, now.fail_count) == ("pending", 0)


class TestATransaction:
    @pytest.mark.parametrize("ending", ["returns", "raises", "takes too long"])
    async def test_is_committed_or_rolled_back_with_its_run(
        self, app: Application, client: AsyncMongoClient[dict[str, Any]], ending: str
    ) -> None:
        app.add(
            client=providers.Object(client),
            work=RunScoped(transaction, providers.Object(client)),
        )
        letters = app.db["letters"]
        await letters.insert_one({"from": "before"})
        written: Tally[str] = Tally()

        @job(name="write", timeout=1 if ending == "takes too long" else None)
        class Write:
            def __init__(self, transaction: AsyncClientSession) -> None:
                self.transaction = transaction

            async def handle(self, job: Job[str]) -> None:
                await letters.insert_one({"from": "the run"}, session=self.transaction)
                written.add(job.data)
                if ending == "raises":
                    raise LookupError("no such address")
                if ending == "takes too long":
                    await asyncio.Event().wait()

        async with app.running(Write, base_retry_interval=3600) as happenings:
            await app.monque.enqueue("write", "hello")
            await happenings.reach("job:complete" if ending == "returns" else "job:fail")
        kept = [letter["from"] async for letter in letters.find().sort("_id")]
        assert kept == (["before", "the run"] if ending == "returns" else ["before"])
        assert written == ["hello"]


class TestFailures:
    @each_way
    async def test_to_close_after_a_success_fail_the_run_which_is_retried(
        self, app: Application, kind: str, shape: str
    ) -> None:
        def fail_at_first(seen: BaseException | None) -> None:
            if len(app.sessions) == 1:
                raise OSError("no commit")

        app.add_session(shape, closing=fail_at_first)
        work = a_worker(app, kind, nothing, nothing_in_a_thread)
        async with app.running(work) as happenings:
            await app.monque.enqueue("work", None)
            (completed,) = await happenings.reach("job:complete")
        (failed,) = happenings.of("job:fail")
        assert isinstance(failed.error, OSError)
        assert failed.will_retry
        assert "no commit" in failed.job.fail_reason
        assert len(app.sessions) == 2
        assert (await stored(app.db, completed.job)).status == "completed"

    @each_way
    async def test_to_close_after_a_failure_are_logged_and_the_failure_is_stored(
        self, app: Application, kind: str, shape: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail_to_close(seen: BaseException | None) -> None:
            raise OSError("no rollback")

        async def fail(session: Session) -> None:
            raise LookupError("no such address")

        def fail_in_a_thread(session: Session) -> None:
            raise LookupError("no such address")

        app.add_session(shape, closing=fail_to_close)
        work = a_worker(app, kind, fail, fail_in_a_thread)
        async with app.running(work, base_retry_interval=3600) as happenings:
            job = await app.monque.enqueue("work", None)
            (failed,) = await happenings.reach("job:fail")
        assert isinstance(failed.error, LookupError)
        assert "no such address" in str((await stored(app.db, job)).fail_reason)
        told = [
            record for record in caplog.records if "closing the run scope" in record.getMessage()
        ]
        (record,) = told
        assert record.levelno == logging.ERROR
        assert str(job.id) in record.getMessage()
        assert record.exc_info is not None
        assert isinstance(record.exc_info[1], OSError)

    @one_of_each
    async def test_to_open_fail_the_run_which_is_retried(
        self, app: Application, shape: str
    ) -> None:
        attempts: list[str] = []

        def refuse_at_first() -> None:
            attempts.append("attempt")
            if len(attempts) == 1:
                raise ConnectionError("refused")

        app.add_session(shape, opening=refuse_at_first)
        work = a_worker(app, "on the loop", nothing, nothing_in_a_thread)
        async with app.running(work) as happenings:
            await app.monque.enqueue("work", None)
            await happenings.reach("job:complete")
        (failed,) = happenings.of("job:fail")
        assert isinstance(failed.error, ConnectionError)
        assert len(app.starts) == 1

    async def test_to_open_in_time_are_timeouts_and_free_the_slot(self, app: Application) -> None:
        given_up: list[str] = []

        async def wait_at_first() -> None:
            if current_job().data == "slow":
                try:
                    await asyncio.Event().wait()
                finally:
                    given_up.append("given up")

        app.add_session(opening=wait_at_first)
        work = a_worker(
            app, "on the loop", nothing, nothing_in_a_thread, timeout=0.5, concurrency=1
        )
        async with app.running(work, base_retry_interval=3600) as happenings:
            await app.monque.enqueue("work", "slow")
            (failed,) = await happenings.reach("job:fail")
            assert given_up == ["given up"]
            await app.monque.enqueue("work", "quick")
            (completed,) = await happenings.reach("job:complete")
        assert isinstance(failed.error, TimeoutError)
        assert completed.job.data == "quick"
        assert len(app.sessions) == 1

    async def test_to_open_by_the_time_of_a_stop_hand_the_job_back(self, app: Application) -> None:
        opening: Tally[str] = Tally()

        async def wait() -> None:
            opening.add("opening")
            await asyncio.Event().wait()

        app.add_session(opening=wait)
        work = a_worker(app, "on the loop", nothing, nothing_in_a_thread)
        async with app.running(work, shutdown_timeout=0.05):
            job = await app.monque.enqueue("work", None)
            await opening.reach(1)
        now = await stored(app.db, job)
        assert (now.status, now.fail_count) == ("pending", 0)
        assert not app.starts
        assert not app.sessions.steps


class TestTwoHundredRuns:
    async def test_on_the_loop_never_share(self, app: Application) -> None:
        app.add_session("async generator")
        all_here = asyncio.Barrier(200)
        kept: dict[int, tuple[Session, Session]] = {}

        class Repository:
            def __init__(self, session: Session) -> None:
                self.session = session

        app.add(repository=providers.Factory(Repository, app.container.session))

        @job(name="meeting", concurrency=200)
        class Meeting:
            def __init__(self, session: Session, repository: Any, job: Job[int]) -> None:
                assert repository.session is session
                self.session = session
                self.job = job

            async def handle(self, job: Job[int]) -> None:
                await all_here.wait()
                assert job is self.job is current_job()
                assert self.session.is_open
                kept[job.data] = (self.session, await app.container.session())

        async with app.running(Meeting) as happenings:
            await app.monque.enqueue_many("meeting", range(200))
            await happenings.reach("job:complete", 200)
        assert sorted(kept) == list(range(200))
        assert all(injected is asked_for for injected, asked_for in kept.values())
        assert len({injected for injected, _ in kept.values()}) == 200

    async def test_in_threads_never_share(self, app: Application) -> None:
        app.add_session("sync generator")
        app.add(lazy=RunScoped(app.sessions.factory("sync manager", "lazy")))
        all_here = threading.Barrier(200, timeout=120)
        kept: dict[int, tuple[Session, Session]] = {}

        @job(name="meeting", concurrency=200)
        class Meeting:
            def __init__(self, session: Session, job: Job[int]) -> None:
                self.session = session
                self.job = job

            def handle(self, job: Job[int]) -> None:
                lazy = app.container.lazy()
                all_here.wait()
                assert job is self.job is current_job()
                assert app.container.session() is self.session
                assert app.container.lazy() is lazy
                assert self.session.is_open
                assert lazy.is_open
                kept[job.data] = (self.session, lazy)

        async with app.running(Meeting) as happenings:
            await app.monque.enqueue_many("meeting", range(200))
            await happenings.reach("job:complete", 200)
        assert sorted(kept) == list(range(200))
        assert len({session for pair in kept.values() for session in pair}) == 400

    async def test_after_each_other_leave_nothing_behind(
        self, app: Application, caplog: pytest.LogCaptureFixture
    ) -> None:
        # Records would keep the failed handlers, in the tracebacks of their errors.
        caplog.set_level(logging.CRITICAL, "monque.di")
        app.add_session("async manager")
        app.add(lazy=RunScoped(app.sessions.factory("sync manager", "lazy")))
        handlers = weakref.WeakSet[Any]()

        class Built:
            def __init__(self, session: Session, lazy: Session) -> None:
                handlers.add(self)

        @job(name="async", concurrency=10)
        class Async(Built):
            async def handle(self, job: Job[int]) -> None:
                if job.data % 5 == 0:
                    raise ValueError("one of five fails")

        @job(name="plain", concurrency=10)
        class Plain(Built):
            def handle(self, job: Job[int]) -> None:
                if job.data % 5 == 0:
                    raise ValueError("one of five fails")

        async with app.running(Async, Plain, max_retries=1) as happenings:
            threads = threading.active_count()
            for name in ("async", "plain"):
                await app.monque.enqueue_many(name, range(200))
            await app.monque.run_until_idle()
            assert await count_by_status(app.db) == {"completed": 320, "failed": 80}
            assert len(app.sessions) == 800
            assert not app.sessions.open
            assert threading.active_count() <= threads + 20
            assert not tasks_of_tenants()
            happenings.all.clear()
            app.sessions.all.clear()
            gc.collect()
            # Threads are idle a moment after their results are known.
            await eventually(lambda: not handlers, 5)


class TestContextLocals:
    @both_kinds
    @pytest.mark.parametrize(
        "provider", [providers.ContextLocalSingleton, providers.ContextLocalResource]
    )
    async def test_are_those_of_one_run(
        self, app: Application, kind: str, provider: type[Any]
    ) -> None:
        app.add(local=provider(Mailer))
        seen: Tally[tuple[Any, Any]] = Tally()

        class Built:
            def __init__(self, local: Any) -> None:
                self.local = local

            def note(self) -> None:
                seen.add((self.local, app.container.local()))

        class Async(Built):
            async def handle(self, job: Job[int]) -> None:
                self.note()

        class Plain(Built):
            def handle(self, job: Job[int]) -> None:
                self.note()

        work = job(name="work")(Async if kind == "on the loop" else Plain)
        parents = app.container.local()
        async with app.running(work) as happenings:
            await app.monque.enqueue_many("work", range(20))
            await happenings.reach("job:complete", 20)
            assert app.container.local() is parents
        assert all(injected is asked_for for injected, asked_for in seen)
        assert len({id(local) for local, _ in seen} | {id(parents)}) == 21

    async def test_are_reset_for_workers_beside_the_classes_too(self, app: Application) -> None:
        app.add(local=providers.ContextLocalSingleton(Mailer))
        seen: Tally[Any] = Tally()
        parents = app.container.local()
        async with app.running():

            @app.monque.worker("plain")
            async def note(job: Job[int]) -> None:
                seen.add(app.container.local())

            await app.monque.enqueue_many("plain", range(5))
            await seen.reach(5)
        assert len({id(local) for local in (*seen, parents)}) == 6


class TestWorkersBesideTheClasses:
    @both_kinds
    async def test_have_a_scope_of_their_own(self, app: Application, kind: str) -> None:
        shape = "async generator" if kind == "on the loop" else "sync generator"
        app.add_session(shape)
        seen: Tally[tuple[Any, Any]] = Tally()
        async with app.running() as happenings:

            async def on_the_loop(job: Job[int]) -> None:
                session = await app.container.session()
                assert session is await app.container.session()
                note(job, session)

            def in_a_thread(job: Job[int]) -> None:
                session = app.container.session()
                assert session is app.container.session()
                note(job, session)

            def note(job: Job[int], session: Session) -> None:
                assert session.is_open
                assert current_job() is job
                seen.add((session, job.data))
                if job.data == 3:
                    raise LookupError("no such number")

            handler: Any = on_the_loop if kind == "on the loop" else in_a_thread
            app.monque.worker("plain", handler)
            await app.monque.enqueue_many("plain", range(5), max_retries=1)
            await happenings.reach("job:complete", 4)
            await happenings.reach("job:fail")
        assert len({session for session, _ in seen}) == 5
        ends = {number: session.seen for session, number in seen}
        assert isinstance(ends.pop(3), LookupError)
        assert set(ends.values()) == {None}
