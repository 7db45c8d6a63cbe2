"""Monque in the container of an application."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from dependency_injector import containers, providers
from pymongo import AsyncMongoClient, MongoClient

from monque_core import Job, Monque, MonqueConnectionError, MonqueError
from monque_di import MonqueContainer, MonqueService, WiringError, cron, job, lifespan
from tests.support.commands import CommandLog
from tests.support.leftovers import Leftovers
from tests.support.stored import jobs_in, stored_jobs
from tests.support.tally import Tally

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pymongo.asynchronous.database import AsyncDatabase
    from pymongo.database import Database

    AnyApp = Any  # what a declarative container makes has the attributes of its class


class Mailer:
    """A service."""

    def __init__(self) -> None:
        self.sent: Tally[Any] = Tally()


@job(name="send")
class Send:
    def __init__(self, mailer: Mailer, queue: MonqueService) -> None:
        self.mailer = mailer
        self.queue = queue

    async def handle(self, job: Job[Any]) -> None:
        self.mailer.sent.add((job.data, self.queue))


@job(name="report")
@cron("0 9 * * *")
class Report:
    async def handle(self, job: Job[None]) -> None: ...


async def sends(app: AnyApp, mailer: Mailer, service: MonqueService) -> None:
    """Start an application, send through it, and see that its own service was injected."""
    async with lifespan(app):
        await service.enqueue("send", "hello")
        await mailer.sent.reach(1)
        assert service.is_healthy
    assert mailer.sent == [("hello", service)]
    assert not service.is_healthy


class TestItsPlace:
    async def test_may_be_in_the_applications_container(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        class App(containers.DeclarativeContainer):
            mailer = providers.Singleton(Mailer)
            monque = providers.Container(
                MonqueContainer, connection=providers.Object(db), jobs=[Send]
            )

        app = App()
        await sends(app, app.mailer(), app.monque.service())

    async def test_may_be_in_a_container_within_it(self, db: AsyncDatabase[dict[str, Any]]) -> None:
        class Infrastructure(containers.DeclarativeContainer):
            config = providers.Configuration()
            monque = providers.Container(
                MonqueContainer,
                connection=providers.Object(db),
                options=config.monque,
                jobs=[Send],
            )

        class Services(containers.DeclarativeContainer):
            mailer = providers.Singleton(Mailer)

        class App(containers.DeclarativeContainer):
            config = providers.Configuration()
            services = providers.Container(Services)
            infrastructure = providers.Container(Infrastructure, config=config.infrastructure)

        app: AnyApp = App(config={"infrastructure": {"monque": {"collection_name": "tasks"}}})
        await sends(app, app.services.mailer(), app.infrastructure.monque.service())
        assert "tasks" in await db.list_collection_names()
        assert "monque_jobs" not in await db.list_collection_names()

    async def test_may_be_three_containers_deep(self, db: AsyncDatabase[dict[str, Any]]) -> None:
        class Inner(containers.DeclarativeContainer):
            connection = providers.Dependency[Any]()
            monque = providers.Container(MonqueContainer, connection=connection, jobs=[Send])

        class Middle(containers.DeclarativeContainer):
            connection = providers.Dependency[Any]()
            inner = providers.Container(Inner, connection=connection)

        class App(containers.DeclarativeContainer):
            mailer = providers.Singleton(Mailer)
            connection = providers.Object(db)
            middle = providers.Container(Middle, connection=connection)

        app: AnyApp = App()
        await sends(app, app.mailer(), app.middle.inner.monque.service())

    async def test_may_be_its_own_application(self, db: AsyncDatabase[dict[str, Any]]) -> None:
        @job(name="note")
        class Note:
            async def handle(self, job: Job[int]) -> None:
                noted.add(job.data)

        noted: Tally[int] = Tally()
        container = MonqueContainer(connection=providers.Object(db), jobs=[Note])
        async with lifespan(container):
            await container.service().enqueue("note", 1)
            await noted.reach(1)

    async def test_may_be_the_base_of_the_application(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        class App(MonqueContainer):
            mailer = providers.Singleton(Mailer)

        app: AnyApp = App(connection=providers.Object(db), jobs=[Send])
        await sends(app, app.mailer(), app.service())

    async def test_may_be_a_base_whose_inputs_the_application_sets(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        class App(MonqueContainer):
            mailer = providers.Singleton(Mailer)
            connection: providers.Provider[Any] = providers.Object(db)
            options = providers.Object({"collection_name": "tasks"})
            jobs = providers.Object([Send])

        app: AnyApp = App()
        await sends(app, app.mailer(), app.service())
        assert "monque_jobs" not in await db.list_collection_names()

        class Shop(containers.DeclarativeContainer):
            queue = providers.Container(App)

        shop = Shop()
        await sends(shop, shop.queue.mailer(), shop.queue.service())

    async def test_a_copy_of_it_is_reported_to_be_a_subclass(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        @containers.copy(MonqueContainer)
        class App(containers.DeclarativeContainer):
            connection = providers.Object(db)

        with pytest.raises(MonqueError, match="MonqueContainer"):
            async with lifespan(App()):
                pytest.fail("it started")

    async def test_may_be_in_an_application_that_is_subclassed_or_overridden(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        class FakeMailer(Mailer): ...

        class App(containers.DeclarativeContainer):
            mailer = providers.Singleton(Mailer)
            monque = providers.Container(
                MonqueContainer, connection=providers.Object(db), jobs=[Send]
            )

        class Fakes(containers.DeclarativeContainer):
            mailer = providers.Singleton(FakeMailer)

        class FakeApp(App):
            mailer = providers.Singleton(FakeMailer)

        overridden = App()
        overridden.override(Fakes())
        for app in (FakeApp(), overridden):
            assert isinstance(app.mailer(), FakeMailer)
            await sends(app, app.mailer(), app.monque.service())

    async def test_may_be_in_a_container_that_was_made_by_hand(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        app: AnyApp = containers.DynamicContainer()
        app.mailer = providers.Singleton(Mailer)
        app.monque = providers.Container(
            MonqueContainer, connection=providers.Object(db), jobs=[Send]
        )
        await sends(app, app.mailer(), app.monque.service())

    async def test_two_instances_of_one_application_share_nothing(
        self, db: AsyncDatabase[dict[str, Any]], blocking_db: Database[dict[str, Any]]
    ) -> None:
        class App(containers.DeclarativeContainer):
            config = providers.Configuration()
            database = providers.Dependency[Any]()
            mailer = providers.Singleton(Mailer)
            monque = providers.Container(
                MonqueContainer, connection=database, options=config, jobs=[Send]
            )

        one = App(config={"collection_name": "one"}, database=providers.Object(db))
        other = App(config={"collection_name": "other"}, database=providers.Object(blocking_db))
        async with lifespan(one), lifespan(other):
            for app in (one, other):
                await app.monque.service().enqueue("send", app.config.collection_name())
                await app.mailer().sent.reach(1)
            assert one.monque.service().monque is not other.monque.service().monque
        assert one.mailer().sent == [("one", one.monque.service())]
        assert other.mailer().sent == [("other", other.monque.service())]


class TestSeveralInOneApplication:
    async def test_each_runs_its_own_jobs_on_its_own_connection(
        self, db: AsyncDatabase[dict[str, Any]], blocking_db: Database[dict[str, Any]]
    ) -> None:
        ran: Tally[tuple[str, Any]] = Tally()

        @job(name="work")
        class Fast:
            async def handle(self, job: Job[Any]) -> None:
                ran.add(("fast", job.data))

        @job(name="work")
        class Slow:
            def handle(self, job: Job[Any]) -> None:
                ran.add(("slow", job.data))

        class App(containers.DeclarativeContainer):
            fast = providers.Container(
                MonqueContainer,
                connection=providers.Object(db),
                options={"collection_name": "fast"},
                jobs=[Fast],
            )
            slow = providers.Container(
                MonqueContainer,
                connection=providers.Object(blocking_db),
                options={"collection_name": "slow"},
                jobs=[Slow],
            )

        app, leftovers = App(), Leftovers()
        async with lifespan(app):
            await app.fast.service().enqueue("work", 1)
            await app.slow.service().enqueue("work", 2)
            await ran.reach(2)
        assert sorted(ran) == [("fast", 1), ("slow", 2)]
        assert not leftovers.tasks
        assert not leftovers.threads

    async def test_one_that_fails_to_start_stops_the_others(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        class App(containers.DeclarativeContainer):
            first = providers.Container(MonqueContainer, connection=providers.Object(db))
            second = providers.Container(MonqueContainer, connection=providers.Object(db))
            broken = providers.Container(MonqueContainer, connection="nobody")

        app, leftovers = App(), Leftovers()
        with pytest.raises(MonqueConnectionError, match="nobody"):
            async with lifespan(app):
                pytest.fail("it started")
        assert not leftovers.tasks
        assert await _leases(db) == []

    async def test_a_job_says_by_name_or_marker_whose_service_it_wants(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        class App(containers.DeclarativeContainer):
            mailer = providers.Singleton(Mailer)
            fast = providers.Container(
                MonqueContainer, connection=providers.Object(db), jobs=[Send]
            )
            slow = providers.Container(
                MonqueContainer,
                connection=providers.Object(db),
                options={"collection_name": "slow"},
            )

        with pytest.raises(WiringError) as raised:
            async with lifespan(App()):
                pytest.fail("it started")
        (problem,) = raised.value.problems
        assert "Send → queue: MonqueService" in problem
        assert "fast.service" in problem
        assert "slow.service" in problem


class TestDisabled:
    async def test_connects_to_nothing_and_says_so(self) -> None:
        def connect() -> object:
            pytest.fail("it connected")

        @job(name="broken")
        class Broken:
            def __init__(self, nobody: Mailer) -> None: ...

        class App(containers.DeclarativeContainer):
            monque = providers.Container(
                MonqueContainer,
                connection=connect,
                options={"enabled": False},
                jobs=[Broken],
                packages=["no.such.package"],
            )

        app, leftovers = App(), Leftovers()
        for _ in range(2):
            async with lifespan(app):
                assert await app.monque.monque() is None
                service = app.monque.service()
                with pytest.raises(MonqueError, match=r"disabled: set the option enabled to True"):
                    await service.enqueue("send", 1)
                with pytest.raises(MonqueError, match="disabled"):
                    _ = service.monque
                assert not leftovers.tasks
            with pytest.raises(MonqueError, match="not started"):
                await app.monque.service().enqueue("send", 1)

    async def test_needs_no_connection(self) -> None:
        async with lifespan(MonqueContainer(options={"enabled": False})):
            pass

    async def test_opens_the_applications_resources_all_the_same(self) -> None:
        opened = []

        async def open_pool() -> AsyncIterator[None]:
            opened.append(1)
            yield
            opened.append(2)

        class App(containers.DeclarativeContainer):
            pool = providers.Resource(open_pool)
            monque = providers.Container(MonqueContainer, options={"enabled": False})

        async with lifespan(App()):
            assert opened == [1]
        assert opened == [1, 2]

    async def test_can_be_enabled_at_the_next_start(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        container: AnyApp = MonqueContainer(
            connection=providers.Object(db), options={"enabled": False}
        )
        async with lifespan(container):
            pass
        container.options.override({"enabled": True})
        async with lifespan(container):
            assert container.service().is_healthy


class TestAProducer:
    async def test_stores_jobs_and_runs_none(self, db: AsyncDatabase[dict[str, Any]]) -> None:
        class App(containers.DeclarativeContainer):
            config = providers.Configuration()
            mailer = providers.Singleton(Mailer)
            monque = providers.Container(
                MonqueContainer,
                connection=providers.Object(db),
                options=config.monque,
                jobs=[Send, Report],
            )

        producer = App(config={"monque": {"process_jobs": False}})
        worker = App()
        async with lifespan(producer):
            service = producer.monque.service()
            await service.enqueue("send", "hello")
            assert service.is_healthy
            assert not service.monque.is_running
            async with lifespan(worker):
                await worker.mailer().sent.reach(1)
            await service.enqueue("send", "is there anybody?")
        assert not service.is_healthy
        assert not producer.mailer().sent
        (waiting,) = await stored_jobs(db, name="send", status="pending")
        assert waiting.data == "is there anybody?"

    async def test_declares_no_cron_and_claims_no_instance_id(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        container = MonqueContainer(
            connection=providers.Object(db), options={"process_jobs": False}, jobs=[Report]
        )
        async with lifespan(container):
            assert await _leases(db) == []
        assert await stored_jobs(db) == []

    async def test_can_store_schedules_for_others(self, db: AsyncDatabase[dict[str, Any]]) -> None:
        container = MonqueContainer(
            connection=providers.Object(db), options={"process_jobs": False}
        )
        async with lifespan(container):
            await container.service().schedule("@daily", "sweep", None)
        (schedule,) = await stored_jobs(db)
        assert schedule.name == "sweep"

    async def test_does_not_ask_what_its_jobs_need(self, db: AsyncDatabase[dict[str, Any]]) -> None:
        container = MonqueContainer(
            connection=providers.Object(db),
            options={"process_jobs": False},
            jobs=[Send],
            packages=["no.such.package"],
        )
        async with lifespan(container):
            assert container.service().is_healthy


@job(name="unbuildable", scope="singleton")
class Unbuildable:
    def __init__(self) -> None:
        raise RuntimeError("the licence has run out")

    async def handle(self, job: Job[None]) -> None: ...


@job(name="unstorable")
@cron("@daily", data=object())
class Unstorable:
    async def handle(self, job: Job[None]) -> None: ...


@job(name="unprovided")
class Unprovided:
    def __init__(self, nobody: Mailer) -> None: ...

    async def handle(self, job: Job[None]) -> None: ...


class TestAStartThatFails:
    """Whatever the reason, nothing runs afterwards."""

    @pytest.mark.parametrize(
        ("wrong", "error"),
        [
            ({"jobs": [Unprovided]}, WiringError),
            ({"jobs": [Unbuildable]}, RuntimeError),
            ({"jobs": [Unstorable]}, MonqueError),
            ({"jobs": [Report, Unstorable]}, MonqueError),
            ({"jobs": [Mailer]}, WiringError),
            ({"jobs": "Report"}, WiringError),
            ({"packages": ["no.such.package"]}, WiringError),
            ({"options": {"worker_concurrency": 0}}, ValueError),
            ({"connection": "nobody"}, MonqueConnectionError),
            ({"connection": lambda: 1 / 0}, MonqueConnectionError),
            ({"connection": lambda: 42}, MonqueConnectionError),
        ],
        ids=range(11),
    )
    async def test_leaves_nothing_running(
        self,
        db: AsyncDatabase[dict[str, Any]],
        blocking_db: Database[dict[str, Any]],
        wrong: dict[str, Any],
        error: type[Exception],
    ) -> None:
        right: dict[str, Any] = {"connection": providers.Object(blocking_db), "jobs": [Report]}

        class App(containers.DeclarativeContainer):
            monque = providers.Container(MonqueContainer, **{**right, **wrong})

        app, leftovers = App(), Leftovers()
        for _ in range(2):
            with pytest.raises(error):
                async with lifespan(app):
                    pytest.fail("it started")
            assert not leftovers.tasks
            assert not leftovers.threads
            assert await _leases(db) == []
            with pytest.raises(MonqueError, match="not started"):
                await app.monque.service().enqueue("send", 1)

    @pytest.mark.parametrize("kind", ["db", "blocking_db"])
    async def test_because_another_has_its_id_leaves_nothing_running(
        self, request: pytest.FixtureRequest, kind: str, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        container = MonqueContainer(
            connection=providers.Object(request.getfixturevalue(kind)),
            options={"scheduler_instance_id": "taken"},
        )
        async with Monque(db, scheduler_instance_id="taken", heartbeat_interval=0.1):
            leftovers = Leftovers()
            with pytest.raises(MonqueConnectionError, match="another live instance"):
                async with lifespan(container):
                    pytest.fail("it started")
            assert await _leases(db) == ["taken"]
        # The other instance creates tasks as well while it runs.
        assert not leftovers.tasks
        assert not leftovers.threads
        async with lifespan(container):
            assert await _leases(db) == ["taken"]
        assert await _leases(db) == []

    async def test_can_be_put_right_and_repeated(self, db: AsyncDatabase[dict[str, Any]]) -> None:
        container: AnyApp = MonqueContainer(connection=providers.Object(db), jobs=[Unprovided])
        with pytest.raises(WiringError):
            async with lifespan(container):
                pytest.fail("it started")
        container.jobs.override([Report])
        async with lifespan(container):
            assert container.service().is_healthy

    async def test_without_mongodb_leaves_nothing_running(self, absent_uri: str) -> None:
        leftovers = Leftovers()
        with MongoClient[dict[str, Any]](absent_uri) as client:
            container = MonqueContainer(connection=providers.Object(client.nowhere), jobs=[Report])
            with pytest.raises(MonqueConnectionError) as raised:
                async with lifespan(container):
                    pytest.fail("it started")
            assert raised.value.__cause__ is not None
        assert not leftovers.tasks
        assert not leftovers.threads

    async def test_because_it_is_cancelled_leaves_nothing_running(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        connecting = asyncio.Event()

        async def connect() -> object:
            connecting.set()
            return await asyncio.Event().wait()

        async def start() -> None:
            async with lifespan(container):
                pytest.fail("it started")

        leftovers = Leftovers()
        container: AnyApp = MonqueContainer(connection=connect, jobs=[Report])
        starting = asyncio.create_task(start())
        await connecting.wait()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert not leftovers.tasks
        container.connection.override(providers.Object(db))
        async with lifespan(container):
            assert container.service().is_healthy

    async def test_because_it_is_cancelled_at_the_last_moment_leaves_nothing_running(
        self, uri: str, database_name: str
    ) -> None:
        log, leftovers = CommandLog(), Leftovers()

        async def start() -> None:
            async with lifespan(container):
                pytest.fail("it started")

        def cancel_when_the_lease_is_taken(name: str, command: Any) -> None:
            if name == "findAndModify" and command["findAndModify"].endswith("_meta"):
                starting.cancel()

        async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
            container: AnyApp = MonqueContainer(
                connection=providers.Object(client[database_name]),
                options={"scheduler_instance_id": "mine"},
                jobs=[Report],
            )
            starting = asyncio.create_task(start())
            log.on_sending = cancel_when_the_lease_is_taken
            with pytest.raises(asyncio.CancelledError):
                await starting
            log.on_sending = lambda *_: None
            assert not leftovers.tasks
            with pytest.raises(MonqueError, match="not started"):
                _ = container.service().monque


class TestARestart:
    async def test_of_the_same_container_is_a_new_life(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        class App(containers.DeclarativeContainer):
            mailer = providers.Singleton(Mailer)
            monque = providers.Container(
                MonqueContainer,
                connection=providers.Object(db),
                options={"scheduler_instance_id": "mine"},
                jobs=[Send, Report],
            )

        app, leftovers, lives = App(), Leftovers(), []
        for number in range(3):
            async with lifespan(app):
                service = app.monque.service()
                lives.append(service.monque)
                await service.enqueue("send", number)
                await app.mailer().sent.reach(number + 1)
                assert service is app.monque.service()
            assert not leftovers.tasks
        assert len(set(map(id, lives))) == 3
        assert not any(monque.is_running for monque in lives)
        assert app.mailer().sent == [(number, app.monque.service()) for number in range(3)]

    async def test_leaves_nothing_of_the_life_before(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        class App(containers.DeclarativeContainer):
            mailer = providers.Singleton(Mailer)
            monque = providers.Container(
                MonqueContainer, connection=providers.Object(db), jobs=[Send]
            )

        app = App()
        async with lifespan(app):
            before = weakref.ref(app.monque.service().monque)
            await app.monque.service().enqueue("send", 1)
            await app.mailer().sent.reach(1)
        gc.collect()
        assert before() is None

    def test_in_another_event_loop_is_the_same(self, blocking_db: Database[dict[str, Any]]) -> None:
        ran: list[tuple[int, int]] = []

        @job(name="note")
        class Note:
            async def handle(self, job: Job[int]) -> None:
                ran.append((job.data, threading.get_ident()))

        class App(containers.DeclarativeContainer):
            monque = providers.Container(
                MonqueContainer, connection=providers.Object(blocking_db), jobs=[Note]
            )

        app = App()

        async def run(number: int) -> None:
            async with lifespan(app):
                await app.monque.service().enqueue("note", number)
                await app.monque.service().monque.run_until_idle()

        for number in range(3):
            asyncio.run(run(number))
        assert [number for number, _ in ran] == [0, 1, 2]


class TestACron:
    async def test_is_declared_once_by_ten_that_start_at_once(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        apps = [MonqueContainer(connection=providers.Object(db), jobs=[Report]) for _ in range(10)]
        spans = [lifespan(app) for app in apps]
        await asyncio.gather(*(span.__aenter__() for span in spans))
        assert all(app.service().is_healthy for app in apps)
        schedules = await stored_jobs(db)
        await asyncio.gather(*(span.__aexit__(None, None, None) for span in spans))
        (schedule,) = schedules
        assert (schedule.name, schedule.unique_key) == ("report", "report")
        assert (schedule.repeat_interval, schedule.status) == ("0 9 * * *", "pending")

    async def test_is_left_alone_by_another_start(self, db: AsyncDatabase[dict[str, Any]]) -> None:
        container = MonqueContainer(connection=providers.Object(db), jobs=[Report])
        async with lifespan(container):
            (first,) = await jobs_in(db).find().to_list()
        async with lifespan(container):
            pass
        assert await jobs_in(db).find().to_list() == [first]

    async def test_that_has_changed_moves_at_the_next_start(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        @job(name="report")
        @cron("0 17 * * *", timezone="Asia/Kolkata", data={"kind": "late"}, priority=3)
        class LaterReport(Report): ...

        async with lifespan(MonqueContainer(connection=providers.Object(db), jobs=[Report])):
            (before,) = await stored_jobs(db)
        async with lifespan(MonqueContainer(connection=providers.Object(db), jobs=[LaterReport])):
            (after,) = await stored_jobs(db)
        assert after.id == before.id
        assert after.repeat_interval == "0 17 * * *"
        assert after.data == {"kind": "late"}
        assert after.next_run_at.astimezone(UTC).strftime("%H:%M") == "11:30"
        assert after.next_run_at > datetime.now(UTC)

    async def test_that_is_removed_from_the_code_stays_stored_and_unclaimed(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        ran: Tally[str] = Tally()

        @job(name="old")
        @cron("0 9 * * *")
        class Old:
            async def handle(self, job: Job[None]) -> None:
                ran.add(job.name)

        @job(name="kept")
        @cron("0 9 * * *")
        class Kept:
            async def handle(self, job: Job[None]) -> None:
                ran.add(job.name)

        async with lifespan(MonqueContainer(connection=providers.Object(db), jobs=[Old, Kept])):
            pass
        await jobs_in(db).update_many(
            {}, {"$set": {"nextRunAt": datetime.now(UTC) - timedelta(seconds=1)}}
        )
        container = MonqueContainer(connection=providers.Object(db), jobs=[Kept])
        async with lifespan(container):
            await ran.reach(1)
            await container.service().monque.run_until_idle()
            schedules = await container.service().get_schedules()
            views = await container.service().get_queue_view_summaries()
        assert ran == ["kept"]
        assert [found.name for found in schedules] == ["kept", "old"]
        assert {view.name: view.worker is not None for view in views} == {
            "kept": True,
            "old": False,
        }
        (old,) = await stored_jobs(db, name="old")
        assert (old.status, old.claimed_by, old.claims) == ("pending", None, 0)
        assert old.repeat_interval == "0 9 * * *"
        assert old.next_run_at < datetime.now(UTC)

    async def test_that_is_removed_can_be_unscheduled_from_the_application(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        async with lifespan(MonqueContainer(connection=providers.Object(db), jobs=[Report])):
            pass
        container = MonqueContainer(connection=providers.Object(db))
        async with lifespan(container):
            assert await container.service().unschedule("report") == 1
        assert not await stored_jobs(db, status="pending")


async def _leases(db: AsyncDatabase[dict[str, Any]]) -> list[str]:
    """Return the instance ids with a lease."""
    found: list[str] = []
    for name in await db.list_collection_names():
        if name.endswith("_meta"):
            held = await db[name].find({"holder": {"$exists": True}}).to_list()
            found += [str(document["_id"]).removeprefix("instance:") for document in held]
    return sorted(found)
