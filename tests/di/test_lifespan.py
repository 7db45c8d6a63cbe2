"""The lifespan of an application: start order, stop order and signals."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import uvicorn
from dependency_injector import containers, providers
from fastapi import FastAPI, HTTPException

from monque_core import Job, Monque, MonqueError
from monque_di import MonqueContainer, WiringError, job, lifespan, run
from tests.support.journal import Journal
from tests.support.leftovers import Leftovers
from tests.support.stored import count_by_status, stored_jobs
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from pymongo.asynchronous.database import AsyncDatabase
    from pymongo.database import Database


class Pool:
    """What jobs work with as long as it is open."""

    def __init__(self) -> None:
        self.is_open = True

    async def query(self) -> str:
        if not self.is_open:
            raise RuntimeError("the pool is closed")
        return "rows"


@job(name="query")
class Query:
    """A job that uses the pool at its start and, after a while, at its end."""

    def __init__(self, pool: Pool, may_end: asyncio.Event, journal: Journal) -> None:
        self.pool = pool
        self.may_end = may_end
        self.journal = journal

    async def handle(self, job: Job[None]) -> str:
        await self.pool.query()
        self.journal.add("job starts")
        await self.may_end.wait()
        # What is to close too early would do so in this while.
        await asyncio.sleep(0.1)
        await self.pool.query()
        self.journal.add("job ends")
        return "done"


class Office:
    """An application with a pool, a cache, and the job that uses them."""

    def __init__(self, db: object, **others: providers.Provider[Any]) -> None:
        self.journal = journal = Journal()
        self.may_end = asyncio.Event()

        async def open_pool() -> AsyncIterator[Pool]:
            pool = Pool()
            await asyncio.sleep(0)
            journal.add("pool opens")
            yield pool
            pool.is_open = False
            journal.add("pool closes")

        self.app: Any = containers.DynamicContainer()
        self.app.pool = providers.Resource(open_pool)
        self.app.cache = providers.Resource(journal.blocking("cache"))
        self.app.journal = providers.Object(journal)
        self.app.may_end = providers.Object(self.may_end)
        self.app.monque = providers.Container(
            MonqueContainer, connection=providers.Object(db), jobs=providers.Object([Query])
        )
        for name, provider in others.items():
            setattr(self.app, name, provider)


class TestTheOrder:
    @pytest.mark.parametrize("kind", ["db", "blocking_db"])
    async def test_monque_starts_after_the_resources_and_stops_before_them(
        self, request: pytest.FixtureRequest, kind: str, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        office, leftovers = Office(request.getfixturevalue(kind)), Leftovers()
        service = office.app.monque.service()
        async with lifespan(office.app):
            assert sorted(office.journal) == ["cache opens", "pool opens"]
            assert service.is_healthy
            await service.enqueue("query", None)
            await office.journal.wait_until(lambda: "job starts" in office.journal)
            office.may_end.set()
        assert office.journal[2:4] == ["job starts", "job ends"]
        assert sorted(office.journal[4:]) == ["cache closes", "pool closes"]
        assert await count_by_status(db) == {"completed": 1}
        assert not service.is_healthy
        assert not leftovers.tasks
        assert not leftovers.threads

    async def test_nothing_is_claimed_before_the_resources_are_open(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        office = Office(db, slow=providers.Resource(Journal().taking_its_time("slow")))
        office.may_end.set()
        await Monque(db).enqueue("query", None)
        async with lifespan(office.app):
            await office.journal.wait_until(lambda: "job ends" in office.journal)
        (done,) = await stored_jobs(db)
        assert (done.status, done.claims) == ("completed", 1)

    async def test_a_resource_that_needs_the_queue_lives_within_its_life(
        self, db: AsyncDatabase[dict[str, Any]], blocking_db: Database[dict[str, Any]]
    ) -> None:
        office, leftovers = Office(blocking_db), Leftovers()

        async def feed(monque: Monque) -> AsyncIterator[None]:
            office.journal.add(f"feed opens, running: {monque.is_running}")
            yield
            await monque.enqueue("last", 1)
            office.journal.add(f"feed closes, running: {monque.is_running}")

        office.app.feed = providers.Resource(feed, office.app.monque.monque)
        async with lifespan(office.app):
            assert office.journal[-1] == "feed opens, running: True"
        assert office.journal[3] == "feed closes, running: True"
        assert sorted(office.journal[4:]) == ["cache closes", "pool closes"]
        assert not leftovers.tasks
        assert not leftovers.threads

    async def test_a_container_that_holds_nothing_but_monque_is_enough(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        container = MonqueContainer(connection=providers.Object(db))
        async with lifespan(container):
            assert container.service().is_healthy
        assert not container.service().is_healthy


class TestMistakes:
    async def test_a_container_without_monque_is_reported_how_to_add_it(self) -> None:
        class Bare(containers.DeclarativeContainer):
            pool = providers.Resource(Pool)

        with pytest.raises(
            MonqueError, match=r"Bare contains no MonqueContainer.*providers\.Container"
        ):
            async with lifespan(Bare()):
                pytest.fail("it started")

    async def test_the_class_of_a_container_is_reported_to_be_an_instance(self) -> None:
        journal = Journal()

        class App(containers.DeclarativeContainer):
            pool = providers.Resource(journal.blocking("pool"))
            monque = providers.Container(MonqueContainer)

        for mistake in (App, MonqueContainer, None, "App"):
            with pytest.raises(TypeError, match="instance of a container"):
                async with lifespan(mistake):  # type: ignore[arg-type]  # the mistake
                    pytest.fail("it started")
        assert not journal


class TestFailures:
    """Whatever fails, and when: it is raised as it is, and everything is stopped and closed."""

    @pytest.mark.parametrize("how", ["at once", "in a while", "both"])
    async def test_of_a_resource_to_open(self, db: AsyncDatabase[dict[str, Any]], how: str) -> None:
        def fail() -> Iterator[None]:
            raise OSError("broken does not open")
            yield

        office, leftovers = Office(db), Leftovers()
        if how in {"at once", "both"}:
            office.app.broken = providers.Resource(fail)
        if how in {"in a while", "both"}:
            office.app.failing = providers.Resource(office.journal.failing("failing"))
        for _ in range(3):
            office.journal.clear()
            with pytest.raises(OSError, match="does not open"):
                async with lifespan(office.app):
                    pytest.fail("it started")
            _closed_what_it_opened(office.journal)
        assert not office.app.monque.monque.initialized
        assert not await db.list_collection_names()
        assert not leftovers.tasks

    async def test_of_monque_to_start(self, db: AsyncDatabase[dict[str, Any]]) -> None:
        office, leftovers = Office(db), Leftovers()
        office.app.monque.jobs.override(providers.Object([Query, Pool]))
        with pytest.raises(WiringError, match="Pool has neither @job"):
            async with lifespan(office.app):
                pytest.fail("it started")
        assert sorted(office.journal[:2]) == ["cache opens", "pool opens"]
        assert sorted(office.journal[2:]) == ["cache closes", "pool closes"]
        assert not leftovers.tasks

        office.app.monque.jobs.reset_last_overriding()
        async with lifespan(office.app):
            assert office.app.monque.service().is_healthy

    @pytest.mark.parametrize("error", [ValueError("in the body"), asyncio.CancelledError()])
    async def test_in_the_body(
        self, db: AsyncDatabase[dict[str, Any]], error: BaseException
    ) -> None:
        office, leftovers = Office(db), Leftovers()

        async def live() -> None:
            async with lifespan(office.app):
                await office.app.monque.service().enqueue("query", None)
                await office.journal.wait_until(lambda: "job starts" in office.journal)
                office.may_end.set()
                raise error

        with pytest.raises(type(error)) as raised:
            await live()
        assert raised.value is error
        assert office.journal.index("job ends") == 3
        assert sorted(office.journal[4:]) == ["cache closes", "pool closes"]
        assert await count_by_status(db) == {"completed": 1}
        assert not leftovers.tasks

    async def test_by_a_cancellation_at_any_moment_of_the_start(
        self, db: AsyncDatabase[dict[str, Any]], blocking_db: Database[dict[str, Any]]
    ) -> None:
        # PyMongo's async client leaks a socket when it is cancelled while it connects.
        office, leftovers = Office(blocking_db), Leftovers()
        has_started = False

        async def live() -> None:
            nonlocal has_started
            async with lifespan(office.app):
                has_started = True
                await asyncio.Event().wait()

        turns = 0
        while not has_started:
            office.journal.clear()
            living = asyncio.create_task(live())
            for _ in range(turns):
                await asyncio.sleep(0)
            living.cancel()
            with pytest.raises(asyncio.CancelledError):
                await living
            _closed_what_it_opened(office.journal)
            assert not leftovers.tasks
            assert not office.app.monque.service().is_healthy
            turns += 1 + turns // 5
        assert turns > 5
        assert await db["monque_jobs_meta"].count_documents({"holder": {"$exists": True}}) == 0
        async with lifespan(office.app):
            assert office.app.monque.service().is_healthy

    async def test_by_a_cancellation_of_the_stop(
        self, db: AsyncDatabase[dict[str, Any]], caplog: pytest.LogCaptureFixture
    ) -> None:
        office, leftovers = Office(db), Leftovers()
        is_over = asyncio.Event()

        async def live() -> None:
            async with lifespan(office.app):
                await office.app.monque.service().enqueue("query", None)
                await office.journal.wait_until(lambda: "job starts" in office.journal)
                is_over.set()

        living = asyncio.create_task(live())
        await is_over.wait()
        await eventually(lambda: not office.app.monque.monque.initialized)
        living.cancel()
        asyncio.get_running_loop().call_later(0.1, office.may_end.set)
        with pytest.raises(asyncio.CancelledError):
            await living
        _closed_what_it_opened(office.journal)
        assert "the pool is closed" not in caplog.text
        assert not leftovers.tasks

    @pytest.mark.parametrize("is_async", [True, False])
    async def test_of_a_resource_to_close(
        self, db: AsyncDatabase[dict[str, Any]], is_async: bool
    ) -> None:
        async def close_badly_async() -> AsyncIterator[None]:
            yield
            raise OSError("stuck")

        def close_badly() -> Iterator[None]:
            yield
            raise OSError("stuck")

        office, leftovers = Office(db), Leftovers()
        for number in range(4):
            slow = providers.Resource(office.journal.taking_its_time(f"slow{number}"))
            setattr(office.app, f"slow{number}", slow)
        office.app.stuck = providers.Resource(close_badly_async if is_async else close_badly)
        with pytest.raises(OSError, match="stuck"):
            async with lifespan(office.app):
                pass
        _closed_what_it_opened(office.journal)
        assert not office.app.monque.service().is_healthy
        assert not leftovers.tasks

    async def test_of_several_resources_to_close_are_all_told(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        async def close_badly() -> AsyncIterator[None]:
            yield
            raise OSError("stuck")

        def close_worse() -> Iterator[None]:
            yield
            raise ValueError("lost")

        office = Office(
            db, stuck=providers.Resource(close_badly), lost=providers.Resource(close_worse)
        )
        with pytest.raises(ExceptionGroup) as raised:
            async with lifespan(office.app):
                pass
        assert sorted(map(str, raised.value.exceptions)) == ["lost", "stuck"]
        _closed_what_it_opened(office.journal)

    async def test_of_a_resource_to_close_does_not_hide_why_the_body_ended(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        async def close_badly() -> AsyncIterator[None]:
            yield
            raise OSError("stuck")

        office = Office(db, stuck=providers.Resource(close_badly))
        with pytest.raises((OSError, ValueError)) as raised:
            async with lifespan(office.app):
                raise ValueError("in the body")
        assert "in the body" in repr(_chain(raised.value))

    async def test_of_a_job_is_not_a_matter_of_the_applications(
        self, db: AsyncDatabase[dict[str, Any]], caplog: pytest.LogCaptureFixture
    ) -> None:
        @job(name="fails")
        class Fails:
            async def handle(self, job: Job[None]) -> None:
                raise ValueError("no such customer")

        container = MonqueContainer(
            connection=providers.Object(db), options={"base_retry_interval": 3600}, jobs=[Fails]
        )
        async with lifespan(container):
            failed = await container.service().enqueue("fails", None)
            await eventually(lambda: caplog.records)
        (record,) = caplog.records
        assert record.levelname == "ERROR"
        assert all(word in record.getMessage() for word in ("fails", str(failed.id), "attempt 1"))
        assert record.exc_info is not None
        assert "no such customer" in str(record.exc_info[1])

    async def test_to_finish_in_time_cuts_jobs_short_before_their_pool_closes(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        office, leftovers = Office(db), Leftovers()
        office.app.monque.options.override(providers.Object({"shutdown_timeout": 0}))

        @job(name="query")
        class Stubborn(Query):
            async def handle(self, job: Job[None]) -> str:
                try:
                    return await super().handle(job)
                finally:
                    office.journal.add(f"job is cut, pool open: {self.pool.is_open}")

        office.app.monque.jobs.override(providers.Object([Stubborn]))
        async with lifespan(office.app):
            await office.app.monque.service().enqueue("query", None)
            await office.journal.wait_until(lambda: "job starts" in office.journal)
        assert office.journal[3] == "job is cut, pool open: True"
        assert sorted(office.journal[4:]) == ["cache closes", "pool closes"]
        assert not leftovers.tasks


class TestRun:
    """`run`: the main of a worker process."""

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    async def test_ends_with_a_signal_when_its_jobs_have_ended(
        self, db: AsyncDatabase[dict[str, Any]], number: signal.Signals
    ) -> None:
        office, leftovers = Office(db), Leftovers()
        running = asyncio.create_task(run(office.app))
        await Monque(db).enqueue("query", None)
        await office.journal.wait_until(lambda: "job starts" in office.journal)
        _receive(number)
        await asyncio.sleep(0.05)
        assert not running.done()
        office.may_end.set()
        await running
        assert office.journal[3] == "job ends"
        assert sorted(office.journal[4:]) == ["cache closes", "pool closes"]
        assert not leftovers.tasks

    async def test_ends_with_a_signal_while_it_starts(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        office, leftovers = Office(db), Leftovers()

        async def wait_for_ever() -> AsyncIterator[None]:
            office.journal.add("waiting")
            await asyncio.Event().wait()
            yield

        office.app.waiting = providers.Resource(wait_for_ever)
        running = asyncio.create_task(run(office.app))
        await office.journal.reach(3)
        _receive(signal.SIGTERM)
        async with asyncio.timeout(120):
            await running
        assert sorted(office.journal[3:]) == ["cache closes", "pool closes"]
        assert not leftovers.tasks

    async def test_ends_when_it_is_cancelled(self, db: AsyncDatabase[dict[str, Any]]) -> None:
        office, leftovers = Office(db), Leftovers()
        running = asyncio.create_task(run(office.app))
        await Monque(db).enqueue("query", None)
        await office.journal.wait_until(lambda: "job starts" in office.journal)
        running.cancel()
        office.may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert office.journal[3] == "job ends"
        assert sorted(office.journal[4:]) == ["cache closes", "pool closes"]
        assert not leftovers.tasks

    async def test_raises_what_keeps_it_from_starting(self) -> None:
        with pytest.raises(MonqueError, match="no connection was given"):
            await run(MonqueContainer())


class TestFastAPI:
    """A web application, served by uvicorn and asked over HTTP."""

    async def test_stores_jobs_from_its_endpoints_and_runs_them(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        office, leftovers = Office(db), Leftovers()
        async with serve(web(office.app)) as http:
            assert (await http.get("/health")).status_code == 200
            stored = (await http.post("/queries")).json()
            await office.journal.wait_until(lambda: "job starts" in office.journal)
            office.may_end.set()
            await office.journal.wait_until(lambda: "job ends" in office.journal)
        (done,) = await stored_jobs(db)
        assert (str(done.id), done.status) == (stored["id"], "completed")
        assert not leftovers.tasks

    async def test_lets_its_jobs_end_with_their_pool_open_when_it_is_stopped(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        office = Office(db)
        async with serve(web(office.app)) as http:
            await http.post("/queries")
            await office.journal.wait_until(lambda: "job starts" in office.journal)
            asyncio.get_running_loop().call_later(0.2, office.may_end.set)
        assert office.journal[2:4] == ["job starts", "job ends"]
        assert sorted(office.journal[4:]) == ["cache closes", "pool closes"]
        assert await count_by_status(db) == {"completed": 1}

    async def test_does_not_serve_when_monque_cannot_start(
        self, db: AsyncDatabase[dict[str, Any]], caplog: pytest.LogCaptureFixture
    ) -> None:
        office, leftovers = Office(db), Leftovers()
        office.app.monque.jobs.override(providers.Object([Pool]))
        server = _server(web(office.app))
        with pytest.raises(SystemExit):
            await server.serve()
        assert not server.started
        assert sorted(office.journal[2:]) == ["cache closes", "pool closes"]
        assert "Pool has neither @job" in caplog.text
        assert not leftovers.tasks

    async def test_is_served_again_after_a_stop(self, db: AsyncDatabase[dict[str, Any]]) -> None:
        office = Office(db)
        office.may_end.set()
        application = web(office.app)
        for number in range(2):
            async with serve(application) as http:
                await http.post("/queries")
                await office.journal.wait_until(partial(_has_ended, office.journal, number + 1))
            assert not office.app.monque.service().is_healthy


def web(app: Any) -> FastAPI:
    """Return a web application with the lifespan of a container."""
    api = FastAPI(lifespan=lambda _: lifespan(app))

    @api.post("/queries")
    async def post_query() -> dict[str, str]:
        stored = await app.monque.service().enqueue("query", None)
        return {"id": str(stored.id)}

    @api.get("/health")
    async def get_health() -> dict[str, str]:
        if not app.monque.service().is_healthy:
            raise HTTPException(503)
        return {"status": "ok"}

    return api


@asynccontextmanager
async def serve(application: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """Serve a web application, and give a client of it."""
    server = _server(application)
    serving = asyncio.create_task(server.serve())
    await eventually(lambda: server.started or serving.done())
    port = server.servers[0].sockets[0].getsockname()[1]
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        yield client
    server.should_exit = True
    await serving


def _receive(number: signal.Signals) -> None:
    assert signal.getsignal(number) is not signal.SIG_DFL, "it would end the tests"
    os.kill(os.getpid(), number)


def _has_ended(journal: Journal, times: int) -> bool:
    return journal.count("job ends") == times


def _server(application: FastAPI) -> uvicorn.Server:
    return uvicorn.Server(
        uvicorn.Config(application, port=0, ws="none", lifespan="on", log_config=None)
    )


def _closed_what_it_opened(journal: list[str]) -> None:
    opened = {entry.removesuffix(" opens") for entry in journal if entry.endswith(" opens")}
    closed = [entry.removesuffix(" closes") for entry in journal if entry.endswith(" closes")]
    assert sorted(closed) == sorted(opened), journal


def _chain(error: BaseException | None) -> list[BaseException]:
    found = []
    while error is not None:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found
