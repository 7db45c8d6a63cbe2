"""The custom providers of `MonqueContainer`."""

from __future__ import annotations

import asyncio
import functools
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from dependency_injector import containers, providers
from motor.motor_asyncio import AsyncIOMotorClient
from pymongo import AsyncMongoClient, MongoClient

from monque_core import Job, Monque, MonqueConnectionError, MonqueError
from monque_di import MonqueContainer, MonqueService, job, lifespan, resolve_database
from tests.support.commands import CommandLog
from tests.support.journal import Journal
from tests.support.leftovers import Leftovers
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from pymongo.asynchronous.database import AsyncDatabase

SECRET = "correct-horse"
NOWHERE = f"mongodb://shop:{SECRET}@127.0.0.1:1/shop"


class Holder:
    """Something that has a database and must not be copied."""

    def __init__(self) -> None:
        self.db: object = None

    def get_database(self) -> object:
        return self.db

    def __call__(self) -> object:
        return self.db

    def __deepcopy__(self, memo: object) -> Holder:
        raise AssertionError("it was copied")


def give_database() -> object:
    return None


class TestTheConnection:
    @pytest.fixture
    def blocking(self) -> Iterator[MongoClient[dict[str, Any]]]:
        with MongoClient[dict[str, Any]](NOWHERE, connect=False) as client:
            yield client

    @pytest.fixture
    async def concurrent(self) -> AsyncIterator[AsyncMongoClient[dict[str, Any]]]:
        async with AsyncMongoClient[dict[str, Any]](NOWHERE, connect=False) as client:
            yield client

    async def test_as_a_raw_value_is_refused_with_the_advice_to_wrap_it(
        self,
        blocking: MongoClient[dict[str, Any]],
        concurrent: AsyncMongoClient[dict[str, Any]],
    ) -> None:
        motor = AsyncIOMotorClient[dict[str, Any]](
            NOWHERE, connect=False, io_loop=asyncio.get_running_loop()
        )
        raw_values = [
            blocking.shop,
            concurrent.shop,
            motor.shop,
            blocking,
            concurrent,
            motor,
            (blocking, "shop"),
            [blocking, "shop"],
            ModuleType("mongoengine.connection"),
            SimpleNamespace(db=blocking.shop),
            functools.partial(give_database),
            Holder(),
            Holder().get_database,
            42,
        ]
        places: list[Callable[[Any], Any]] = [
            lambda raw: MonqueContainer(connection=raw),
            lambda raw: providers.Container(MonqueContainer, connection=raw),
            lambda raw: _connection().override(raw),
            lambda raw: _connection().provided_by(raw),
        ]
        for raw in raw_values:
            for place in places:
                with pytest.raises(MonqueConnectionError) as raised:
                    place(raw)
                assert "connection=providers.Object(" in str(raised.value)
                assert type(raw).__qualname__ in str(raised.value)
                assert SECRET not in str(raised.value)
        motor.close()

    async def test_as_a_provider_of_the_same_is_given_as_it_is(
        self, blocking: MongoClient[dict[str, Any]]
    ) -> None:
        holder = Holder()
        holder.db = database = blocking.shop

        class App(containers.DeclarativeContainer):
            plain = providers.Container(MonqueContainer, connection=providers.Object(database))
            held = providers.Container(MonqueContainer, connection=providers.Object(holder))
            method = providers.Container(
                MonqueContainer, connection=providers.Object(holder.get_database)
            )

        app: Any = App()
        for nested in (app.plain, app.held, app.method):
            assert await resolve_database(nested.connection) is database

    async def test_may_be_a_text_a_class_or_a_function_as_it_is(self) -> None:
        for source in ("default", Holder, give_database):

            class App(containers.DeclarativeContainer):
                monque = providers.Container(MonqueContainer, connection=source)

            assert App().monque.connection() is source

    async def test_that_was_not_given_is_reported_at_the_start(self) -> None:
        class App(containers.DeclarativeContainer):
            monque = providers.Container(MonqueContainer)

        mistakes: list[Any] = [MonqueContainer(), MonqueContainer(connection=None), App()]
        for container in mistakes:
            with pytest.raises(MonqueConnectionError, match="no connection was given"):
                await container.init_resources()

    async def test_can_be_overridden_from_one_start_to_the_next(
        self, client: AsyncMongoClient[dict[str, Any]], database_name: str
    ) -> None:
        usual, other = client[database_name], client[f"{database_name}_other"]

        class App(containers.DeclarativeContainer):
            monque = providers.Container(MonqueContainer, connection=providers.Object(usual))

        app: Any = App()
        with app.monque.connection.override(providers.Object(other)):
            await app.init_resources()
            await app.monque.service().enqueue("there", 1)
            await app.shutdown_resources()
        await app.init_resources()
        await app.monque.service().enqueue("here", 1)
        await app.shutdown_resources()

        assert await other["monque_jobs"].distinct("name") == ["there"]
        assert await usual["monque_jobs"].distinct("name") == ["here"]
        await client.drop_database(other.name)


class Site:
    """A job that runs until it may end, in an application with resources."""

    def __init__(self, journal: Journal) -> None:
        self.may_end = may_end = asyncio.Event()

        @job(name="dig")
        class Dig:
            async def handle(self, job: Job[None]) -> None:
                journal.add("job starts")
                await may_end.wait()
                # Whatever is to close before the job ends would do so in this while.
                await asyncio.sleep(0.1)
                journal.add("job ends")

        self.jobs = [Dig]


class TestWithBareInitAndShutdown:
    """`init_resources` and `shutdown_resources`, which know nothing of Monque."""

    async def test_resources_are_open_before_monque_starts_and_until_its_jobs_have_ended(
        self, uri: str, database_name: str
    ) -> None:
        journal, leftovers, log = Journal(), Leftovers(), CommandLog()
        site = Site(journal)
        log.on_sending = lambda *_: None if "mongo" in journal else journal.add("mongo")
        async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:

            class Storage(containers.DeclarativeContainer):
                disk = providers.Resource(journal.taking_its_time("disk"))

            class App(containers.DeclarativeContainer):
                pool = providers.Resource(journal.taking_its_time("pool"))
                cache = providers.Resource(journal.blocking("cache"))
                storage = providers.Container(Storage)
                monque = providers.Container(
                    MonqueContainer,
                    connection=providers.Object(client[database_name]),
                    jobs=site.jobs,
                )

            app: Any = App()
            await app.init_resources()
            assert journal[-1] == "mongo"
            assert sorted(journal[:-1]) == ["cache opens", "disk opens", "pool opens"]

            await app.monque.service().enqueue("dig", None)
            await journal.wait_until(lambda: "job starts" in journal)
            ending = asyncio.create_task(_awaited(app.shutdown_resources()))
            await asyncio.sleep(0)
            site.may_end.set()
            await ending
            ended = journal.index("job ends")
            assert sorted(journal[ended + 1 :]) == ["cache closes", "disk closes", "pool closes"]
            assert "closes" not in " ".join(journal[:ended])
        assert not leftovers.tasks

    async def test_what_a_resource_needs_closes_after_it(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        journal = Journal()

        class App(containers.DeclarativeContainer):
            pool = providers.Resource(journal.taking_its_time("pool"))
            session = providers.Resource(journal.taking_its_time("session"), pool)
            monque = providers.Container(MonqueContainer, connection=providers.Object(db))

        app: Any = App()
        await app.init_resources()
        await app.shutdown_resources()
        assert journal == ["pool opens", "session opens", "session closes", "pool closes"]

    @pytest.mark.parametrize("is_async", [True, False])
    async def test_a_connection_that_is_a_resource_outlives_monque(
        self, uri: str, database_name: str, is_async: bool
    ) -> None:
        journal = Journal()
        site = Site(journal)

        async def connect_async() -> AsyncIterator[object]:
            async with AsyncMongoClient[dict[str, Any]](uri) as client:
                yield client[database_name]
            journal.add("connection closes")

        def connect() -> Iterator[object]:
            with MongoClient[dict[str, Any]](uri) as client:
                yield client[database_name]
            journal.add("connection closes")

        class App(containers.DeclarativeContainer):
            connection = providers.Resource(connect_async if is_async else connect)
            monque = providers.Container(MonqueContainer, connection=connection, jobs=site.jobs)

        app: Any = App()
        await app.init_resources()
        await app.monque.service().enqueue("dig", None)
        await journal.wait_until(lambda: "job starts" in journal)
        site.may_end.set()
        await app.shutdown_resources()
        assert journal == ["job starts", "job ends", "connection closes"]

        with MongoClient[dict[str, Any]](uri) as client:
            (document,) = client[database_name]["monque_jobs"].find()
            assert document["status"] == "completed"
            assert not list(client[database_name]["monque_jobs_meta"].find({"holder": {"$gt": ""}}))

    async def test_a_resource_that_needs_the_queue_lives_within_its_life(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        journal = Journal()

        async def feed(monque: Monque) -> AsyncIterator[None]:
            journal.add(f"feed opens, running: {monque.is_running}")
            yield
            await monque.enqueue("last", 1)
            journal.add(f"feed closes, running: {monque.is_running}")

        class App(containers.DeclarativeContainer):
            pool = providers.Resource(journal.taking_its_time("pool"))
            monque = providers.Container(MonqueContainer, connection=providers.Object(db))
            feed_ = providers.Resource(feed, monque.monque)

        app: Any = App()
        for _ in range(2):
            journal.clear()
            await app.init_resources()
            await app.shutdown_resources()
            assert journal == [
                "pool opens",
                "feed opens, running: True",
                "feed closes, running: True",
                "pool closes",
            ]

    async def test_a_resource_that_needs_the_queue_by_way_of_others_is_not_a_deadlock(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        class Outbox:
            def __init__(self, monque: Monque) -> None:
                self.monque = monque

        async def poll(outbox: Outbox) -> AsyncIterator[Outbox]:
            await outbox.monque.enqueue("first", 1)
            yield outbox

        class App(containers.DeclarativeContainer):
            monque = providers.Container(MonqueContainer, connection=providers.Object(db))
            outbox = providers.Factory(Outbox, monque.monque)
            poller = providers.Resource(poll, outbox=outbox)
            watcher = providers.Resource(poll, outbox=providers.Callable(lambda it: it, outbox))

        app: Any = App()
        async with asyncio.timeout(120):
            await app.init_resources()
        assert (await app.poller()).monque is app.monque.service().monque
        assert await db["monque_jobs"].count_documents({}) == 2
        await app.shutdown_resources()

    async def test_jobs_can_use_a_resource_that_needs_the_queue(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        journal = Journal()

        class Feed:
            def __init__(self, monque: Monque) -> None:
                self.monque = monque

        async def open_feed(monque: Monque) -> AsyncIterator[Feed]:
            yield Feed(monque)

        @job(name="dig")
        class Dig:
            def __init__(self, feed: Feed) -> None:
                self.feed = feed

            async def handle(self, job: Job[None]) -> None:
                journal.add(f"running: {self.feed.monque.is_running}")

        class App(containers.DeclarativeContainer):
            monque = providers.Container(
                MonqueContainer, connection=providers.Object(db), jobs=[Dig]
            )
            feed = providers.Resource(open_feed, monque.monque)

        app: Any = App()
        await app.init_resources()
        await app.monque.service().enqueue("dig", None)
        await journal.reach(1)
        await app.shutdown_resources()
        assert journal == ["running: True"]

    async def test_what_monque_needs_at_its_start_cannot_need_monque(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        class Feed:
            def __init__(self, monque: Monque) -> None: ...

        @job(name="dig", scope="singleton")
        class Dig:
            def __init__(self, feed: Feed) -> None: ...

            async def handle(self, job: Job[None]) -> None: ...

        async def find_database(monque: Monque) -> AsyncIterator[object]:
            yield db

        class Keen(containers.DeclarativeContainer):
            monque = providers.Container(
                MonqueContainer, connection=providers.Object(db), jobs=[Dig]
            )
            feed = providers.Factory(Feed, monque.monque)

        class Circular(containers.DeclarativeContainer):
            database = providers.Dependency[Any]()
            monque = providers.Container(MonqueContainer, connection=database)
            found = providers.Resource(find_database, monque.monque)

        circular: Any = Circular()
        circular.database.override(circular.found)
        for app in (Keen(), circular):
            with pytest.raises(MonqueError) as raised:
                async with asyncio.timeout(120), lifespan(app):
                    pytest.fail("it started")
            assert "monque" in str(raised.value).lower()

    async def test_a_resource_that_holds_the_service_opens_before_the_queue(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        journal = Journal()

        async def open_api(service: MonqueService) -> AsyncIterator[MonqueService]:
            journal.add(f"healthy: {service.is_healthy}")
            yield service
            journal.add(f"healthy: {service.is_healthy}")

        class App(containers.DeclarativeContainer):
            monque = providers.Container(MonqueContainer, connection=providers.Object(db))
            api = providers.Resource(open_api, monque.service)

        app: Any = App()
        await app.init_resources()
        assert (await app.api()).is_healthy
        await app.shutdown_resources()
        assert journal == ["healthy: False", "healthy: False"]

    @pytest.mark.parametrize("attempt", range(5))
    async def test_many_resources_all_close_after_monque(
        self, db: AsyncDatabase[dict[str, Any]], attempt: int
    ) -> None:
        # dependency-injector goes through them in the order of their addresses.
        journal = Journal()
        site = Site(journal)
        names = [f"resource{number}" for number in range(10)]
        app: Any = containers.DynamicContainer()
        for number, name in enumerate(names):
            make = journal.taking_its_time if number % 2 else journal.blocking
            setattr(app, name, providers.Resource(make(name)))
        app.monque = providers.Container(
            MonqueContainer, connection=providers.Object(db), jobs=site.jobs
        )
        await app.init_resources()
        await app.monque.service().enqueue("dig", None)
        await journal.wait_until(lambda: "job starts" in journal)
        site.may_end.set()
        await app.shutdown_resources()
        assert journal[10:12] == ["job starts", "job ends"]
        assert sorted(journal[:10]) == sorted(f"{name} opens" for name in names)
        assert sorted(journal[12:]) == sorted(f"{name} closes" for name in names)

    async def test_a_resource_that_fails_to_open_keeps_monque_from_starting(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        journal, leftovers = Journal(), Leftovers()

        class App(containers.DeclarativeContainer):
            cache = providers.Resource(journal.taking_its_time("cache"))
            pool = providers.Resource(journal.failing("pool"))
            monque = providers.Container(MonqueContainer, connection=providers.Object(db))

        app: Any = App()
        with pytest.raises(OSError, match="pool does not open"):
            await app.init_resources()
        # dependency-injector raises the first error without waiting for the other starts.
        await eventually(lambda: not app.monque.monque.initialized)
        await app.shutdown_resources()
        assert journal == ["cache opens", "cache closes"]
        assert not app.monque.service().is_healthy
        assert "monque_jobs" not in await db.list_collection_names()
        assert not leftovers.tasks

    async def test_monque_that_fails_to_start_can_be_started_later(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        journal = Journal()

        class App(containers.DeclarativeContainer):
            config = providers.Configuration()
            pool = providers.Resource(journal.taking_its_time("pool"))
            monque = providers.Container(
                MonqueContainer, connection=providers.Object(db), options=config.monque
            )

        app: Any = App(config={"monque": {"poll_interval": -1}})
        with pytest.raises(ValueError, match="poll_interval"):
            await app.init_resources()
        await app.shutdown_resources()
        app.config.from_dict({"monque": {"poll_interval": 1}})
        await app.init_resources()
        assert app.monque.service().monque.is_running
        await app.shutdown_resources()
        assert journal == ["pool opens", "pool closes"] * 2

    async def test_the_instance_is_had_from_the_resource(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        class App(containers.DeclarativeContainer):
            monque = providers.Container(MonqueContainer, connection=providers.Object(db))
            queue = monque.monque

        app: Any = App()
        await app.init_resources()
        monque = await app.monque.monque()
        assert monque is app.monque.service().monque
        assert monque is await app.queue()
        await app.shutdown_resources()
        assert not monque.is_running

    async def test_a_running_container_starts_no_second_instance(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        container: Any = MonqueContainer(connection=providers.Object(db))
        await container.init_resources()
        monque = container.service().monque
        await container.init_resources()
        assert await asyncio.gather(*(container.monque() for _ in range(5))) == [monque] * 5
        await container.shutdown_resources()
        await container.shutdown_resources()
        assert not monque.is_running

    async def test_asking_for_the_instance_while_it_stops_makes_no_second_one(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        journal, leftovers = Journal(), Leftovers()
        is_over = asyncio.Event()

        @job(name="dig")
        class Dig:
            async def handle(self, job: Job[None]) -> None:
                journal.add("job starts")
                await is_over.wait()
                await eventually(lambda: not container.monque.initialized)
                try:
                    await container.monque()
                except MonqueError as error:
                    journal.add(str(error))

        container: Any = MonqueContainer(connection=providers.Object(db), jobs=[Dig])
        await container.init_resources()
        await container.service().enqueue("dig", None)
        await journal.reach(1)
        is_over.set()
        await container.shutdown_resources()
        assert len(journal) == 2
        assert "Monque is stopping" in journal[1]
        assert not container.monque.initialized
        assert not leftovers.tasks


def _connection() -> Any:
    return MonqueContainer().connection


async def _awaited(promise: Any) -> None:
    await promise
