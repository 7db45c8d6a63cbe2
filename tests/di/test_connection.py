"""What an application has, and the native database behind it."""

from __future__ import annotations

import asyncio
import functools
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import beanie
import mongoengine
import pytest
from dependency_injector import containers, providers
from hypothesis import given, settings
from hypothesis import strategies as st
from motor.motor_asyncio import AsyncIOMotorClient
from pymongo import AsyncMongoClient, MongoClient
from pymongo.database import Database
from pymongo.errors import InvalidName

from monque_core import Job, MonqueConnectionError
from monque_di import MonqueContainer, job, lifespan, resolve_database
from tests.support.commands import CommandLog
from tests.support.tally import Tally

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from motor.motor_asyncio import AsyncIOMotorDatabase
    from pymongo.asynchronous.database import AsyncDatabase

NOWHERE = "mongodb://127.0.0.1:1"
"""For handles that are looked at and never used."""

EVERYTHING_THAT_WOULD_DO = (
    "a PyMongo Database or AsyncDatabase",
    '(client, "shop")',
    "mongoengine.connection",
    "a Motor database",
    "Beanie",
    "a provider or function",
)


@pytest.fixture
def lazy_client() -> Iterator[MongoClient[dict[str, Any]]]:
    """Return a client that never connects."""
    with MongoClient[dict[str, Any]](NOWHERE, connect=False) as client:
        yield client


@pytest.fixture
def mongoengine_client(uri: str, database_name: str) -> Iterator[MongoClient[dict[str, Any]]]:
    """Connect MongoEngine: its default alias to the test's database, another to another."""
    client = mongoengine.connect(database_name, host=uri, uuidRepresentation="standard")
    mongoengine.connect(
        f"{database_name}_archive", host=uri, alias="archive", uuidRepresentation="standard"
    )
    yield client
    client.drop_database(f"{database_name}_archive")
    mongoengine.disconnect_all()


class Order(mongoengine.Document):  # type: ignore[misc]  # MongoEngine has no types
    """A document of the default connection."""

    item = mongoengine.StringField()


class OldOrder(mongoengine.Document):  # type: ignore[misc]  # MongoEngine has no types
    """A document with an alias of its own."""

    item = mongoengine.StringField()
    meta = {"db_alias": "archive"}  # noqa: RUF012  # as MongoEngine wants it


class Anything(mongoengine.DynamicDocument):  # type: ignore[misc]  # MongoEngine has no types
    meta = {"db_alias": "archive"}  # noqa: RUF012  # as MongoEngine wants it


class TestAHandle:
    async def test_of_pymongo_is_used_as_it_is(
        self, db: AsyncDatabase[dict[str, Any]], blocking_db: Database[dict[str, Any]]
    ) -> None:
        assert await resolve_database(db) is db
        assert await resolve_database(blocking_db) is blocking_db

    async def test_of_motor_gives_the_database_in_it(
        self, motor_db: AsyncIOMotorDatabase[dict[str, Any]]
    ) -> None:
        assert await resolve_database(motor_db) is motor_db.delegate

    @pytest.mark.parametrize("kind", [MongoClient, AsyncMongoClient])
    async def test_may_be_a_client_with_the_name_of_its_database(self, kind: Any, uri: str) -> None:
        client = kind(uri)
        for source in ((client, "shop"), [client, "shop"]):
            found = await resolve_database(source)
            assert found.name == "shop"
            assert found.client is client
        await _close(client)

    @pytest.mark.parametrize("kind", [MongoClient, AsyncMongoClient])
    async def test_may_be_a_client_whose_uri_names_the_database(self, kind: Any) -> None:
        client = kind(f"{NOWHERE}/shop", connect=False)
        found = await resolve_database(client)
        assert (found.name, found.client) == ("shop", client)
        await _close(client)

    async def test_may_be_a_client_of_motor(self, uri: str) -> None:
        client = AsyncIOMotorClient[dict[str, Any]](uri, io_loop=asyncio.get_running_loop())
        found = await resolve_database((client, "shop"))
        assert isinstance(found, Database)
        assert (found.name, found.client) == ("shop", client.delegate)
        with pytest.raises(MonqueConnectionError, match="has no default database"):
            await resolve_database(client)
        client.close()

    async def test_a_client_without_a_database_is_reported_how_to_name_one(
        self, lazy_client: MongoClient[dict[str, Any]]
    ) -> None:
        with pytest.raises(MonqueConnectionError, match=r'has no default database.*client, "shop"'):
            await resolve_database(lazy_client)

    @pytest.mark.parametrize("kind", [MongoClient, AsyncMongoClient])
    @pytest.mark.parametrize("name", ["", "a b", "shop.orders", "$external?"])
    async def test_a_name_that_no_database_can_have_is_refused(self, kind: Any, name: str) -> None:
        client = kind(NOWHERE, connect=False)
        with pytest.raises(MonqueConnectionError, match="database name") as raised:
            await resolve_database((client, name))
        assert isinstance(raised.value.__cause__, InvalidName)
        await _close(client)

    @pytest.mark.parametrize("attribute", ["db", "database", "delegate"])
    async def test_is_found_where_another_odm_shows_it(
        self,
        attribute: str,
        db: AsyncDatabase[dict[str, Any]],
        blocking_db: Database[dict[str, Any]],
    ) -> None:
        assert await resolve_database(SimpleNamespace(**{attribute: db})) is db
        assert await resolve_database(SimpleNamespace(**{attribute: blocking_db})) is blocking_db

    async def test_of_a_class_that_shows_it(self, db: AsyncDatabase[dict[str, Any]]) -> None:
        assert await resolve_database(type("Model", (), {"database": db})) is db

    async def test_is_found_beside_an_attribute_that_is_not_a_database(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        assert await resolve_database(SimpleNamespace(db="shop", database=db)) is db

    async def test_that_is_not_open_yet_is_reported_with_its_reason(self) -> None:
        class Extension:
            @property
            def db(self) -> object:
                raise RuntimeError("call init_app first")

        with pytest.raises(MonqueConnectionError, match="call init_app first") as raised:
            await resolve_database(Extension())
        assert isinstance(raised.value.__cause__, RuntimeError)


@pytest.mark.usefixtures("mongoengine_client")
class TestMongoEngine:
    async def test_by_an_alias(self, database_name: str) -> None:
        for alias, name in (("default", database_name), ("archive", f"{database_name}_archive")):
            found = await resolve_database(alias)
            assert found is mongoengine.connection.get_db(alias)
            assert found.name == name

    @pytest.mark.parametrize("module", [mongoengine, mongoengine.connection])
    async def test_by_its_module_is_the_default_connection(self, module: ModuleType) -> None:
        assert await resolve_database(module) is mongoengine.connection.get_db()

    async def test_by_its_client_and_a_name(
        self, mongoengine_client: MongoClient[dict[str, Any]], database_name: str
    ) -> None:
        found = await resolve_database((mongoengine_client, database_name))
        assert found == mongoengine.connection.get_db()
        assert found.client is mongoengine_client

    @pytest.mark.parametrize(
        ("document", "alias"), [(Order, "default"), (OldOrder, "archive"), (Anything, "archive")]
    )
    async def test_by_a_document_whose_own_alias_counts(self, document: type, alias: str) -> None:
        assert await resolve_database(document) is mongoengine.connection.get_db(alias)

    async def test_by_a_document_that_is_switched_to_another_alias(self) -> None:
        with mongoengine.context_managers.switch_db(Order, "archive") as switched:
            assert await resolve_database(switched) is mongoengine.connection.get_db("archive")
        assert await resolve_database(Order) is mongoengine.connection.get_db()

    @pytest.mark.parametrize("alias", ["nobody", "", "défaut"])
    async def test_an_alias_that_is_not_connected_is_reported(self, alias: str) -> None:
        with pytest.raises(MonqueConnectionError) as raised:
            await resolve_database(alias)
        assert repr(alias) in str(raised.value)
        assert "mongoengine.connect(" in str(raised.value)
        assert raised.value.__cause__ is not None

    async def test_a_document_whose_alias_is_not_connected_is_reported(self) -> None:
        mongoengine.disconnect("archive")
        with pytest.raises(MonqueConnectionError, match="alias 'archive'"):
            await resolve_database(OldOrder)

    async def test_a_default_connection_that_is_not_there_is_reported(self) -> None:
        mongoengine.disconnect()
        for source in (mongoengine, mongoengine.connection, Order, "default"):
            with pytest.raises(MonqueConnectionError, match="alias 'default'"):
                await resolve_database(source)

    async def test_a_part_of_a_document_is_not_a_connection(self) -> None:
        part = type("Line", (mongoengine.EmbeddedDocument,), {})
        with pytest.raises(MonqueConnectionError, match="Line is not a connection"):
            await resolve_database(part)

    async def test_keeps_working_while_monque_runs_on_its_connection_and_after(
        self, mongoengine_client: MongoClient[dict[str, Any]], database_name: str
    ) -> None:
        ended: Tally[str] = Tally()

        @job(name="ship")
        class Ship:
            def handle(self, job: Job[str]) -> None:
                order = Order.objects.get(id=job.data)
                order.update(set__item=f"{order.item}, shipped")
                ended.add(job.data)

        container = MonqueContainer(
            connection=providers.Object(mongoengine.connection), jobs=providers.Object([Ship])
        )
        async with lifespan(container):
            orders = [Order(item=f"book {number}").save() for number in range(10)]
            service = container.service()
            await service.enqueue_many("ship", [str(order.id) for order in orders])
            while len(ended) < 10:
                assert Order.objects.count() == 10
                await asyncio.sleep(0.01)

        assert mongoengine.connection.get_connection() is mongoengine_client
        assert mongoengine.connection.get_db().name == database_name
        assert {order.item for order in Order.objects} == {
            f"book {number}, shipped" for number in range(10)
        }
        assert Order(item="another").save().reload().item == "another"


class TestWithoutMongoEngine:
    @pytest.fixture(autouse=True)
    def _not_installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "mongoengine"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "mongoengine", None)

    async def test_an_alias_is_reported_what_to_install(self) -> None:
        with pytest.raises(MonqueConnectionError) as raised:
            await resolve_database("default")
        assert "pip install 'monque-di[mongoengine]'" in str(raised.value)
        assert isinstance(raised.value.__cause__, ImportError)

    async def test_everything_else_works(self, db: AsyncDatabase[dict[str, Any]]) -> None:
        assert await resolve_database(lambda: SimpleNamespace(db=db)) is db
        with pytest.raises(MonqueConnectionError, match="int is not a connection"):
            await resolve_database(int)


async def test_mongoengine_and_motor_are_imported_only_for_a_source_of_theirs() -> None:
    program = (
        "import asyncio, sys, pymongo, monque_di\n"
        f"client = pymongo.MongoClient({NOWHERE!r}, connect=False)\n"
        "asyncio.run(monque_di.resolve_database((client, 'shop')))\n"
        "print([name for name in ('beanie', 'mongoengine', 'motor') if name in sys.modules])\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert output.decode().strip() == "[]"


class TestBeanie:
    async def test_by_a_document_that_is_initialized(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        class Invoice(beanie.Document):
            total: int

        await beanie.init_beanie(database=db, document_models=[Invoice])
        assert await resolve_database(Invoice) == db

        @job(name="book")
        class Book:
            async def handle(self, job: Job[int]) -> None:
                await Invoice(total=job.data).insert()

        container = MonqueContainer(
            connection=providers.Object(Invoice), jobs=providers.Object([Book])
        )
        async with lifespan(container):
            await container.service().enqueue("book", 3)
            await container.service().monque.run_until_idle()
        assert [invoice.total async for invoice in Invoice.find_all()] == [3]

    async def test_by_one_that_is_not_is_reported_to_initialize_it(self) -> None:
        class Receipt(beanie.Document):
            total: int

        with pytest.raises(MonqueConnectionError, match="init_beanie") as raised:
            await resolve_database(Receipt)
        assert "Receipt is not initialized" in str(raised.value)
        assert raised.value.__cause__ is not None


class TestAProviderOrFactory:
    async def test_may_be_any_of_dependency_injector(
        self, db: AsyncDatabase[dict[str, Any]], uri: str
    ) -> None:
        def open_resource() -> Iterator[object]:
            yield db

        async def open_async_resource() -> AsyncIterator[object]:
            await asyncio.sleep(0)
            yield db

        async def make() -> object:
            await asyncio.sleep(0)
            return db

        provide: dict[str, providers.Provider[Any]] = {
            "an object": providers.Object(db),
            "a callable": providers.Callable(lambda: db),
            "a factory": providers.Factory(lambda: db),
            "a singleton": providers.Singleton(lambda: db),
            "an async singleton": providers.Singleton(make),
            "a coroutine": providers.Coroutine(make),
            "a resource": providers.Resource(open_resource),
            "an async resource": providers.Resource(open_async_resource),
            "an attribute": providers.Object(SimpleNamespace(inner=db)).provided.inner,
            "a delegate": providers.Object(db).provider,
            "a dependency": providers.Dependency(default=providers.Object(db)),
            "a selector": providers.Selector(lambda: "mine", mine=providers.Object(db)),
        }
        found = {name: await resolve_database(given) for name, given in provide.items()}
        assert found == dict.fromkeys(provide, db)
        assert all(native is db for native in found.values())
        for name in ("a resource", "an async resource"):
            ending = provide[name].shutdown()  # type: ignore[attr-defined]  # a resource
            if ending is not None:
                await ending

    @pytest.mark.usefixtures("mongoengine_client")
    async def test_may_be_driven_by_a_configuration(self, uri: str) -> None:
        config = providers.Configuration()
        config.from_dict({"alias": "archive", "uri": f"{NOWHERE}/shop", "lazy": {"connect": False}})
        assert await resolve_database(config.alias) is mongoengine.connection.get_db("archive")

        client = providers.Singleton(MongoClient, config.uri, connect=config.lazy.connect)
        found = await resolve_database(client)
        assert (found.name, found.client) == ("shop", client())
        client().close()

    async def test_may_be_any_callable(self, db: AsyncDatabase[dict[str, Any]]) -> None:
        class Maker:
            def __call__(self) -> object:
                return db

            def make(self) -> object:
                return db

            @staticmethod
            async def make_async() -> object:
                return db

        async def make(found: object) -> object:
            await asyncio.sleep(0)
            return found

        future = asyncio.get_running_loop().create_future()
        future.set_result(db)
        factories: list[Callable[[], object]] = [
            lambda: db,
            Maker(),
            Maker().make,
            Maker.make_async,
            functools.partial(make, db),
            lambda: future,
        ]
        for factory in factories:
            assert await resolve_database(factory) is db

    async def test_is_called_once(self, db: AsyncDatabase[dict[str, Any]]) -> None:
        calls = []

        def make() -> object:
            calls.append(1)
            return db

        await resolve_database(make)
        assert len(calls) == 1

    @settings(max_examples=50)
    @given(st.lists(st.sampled_from(["object", "function", "coroutine", "singleton"]), max_size=3))
    def test_may_give_another(self, wrappings: list[str]) -> None:
        with MongoClient[dict[str, Any]](NOWHERE, connect=False) as client:
            source: Any
            source = database = client.shop
            for wrapping in wrappings:
                source = _wrap(source, wrapping)
            assert asyncio.run(resolve_database(source)) is database

    async def test_that_leads_to_itself_for_ever_is_reported(self) -> None:
        def endless() -> object:
            return endless

        async def endless_async() -> object:
            return endless_async

        provider = providers.Callable(lambda: provider)
        for source in (endless, endless_async, provider):
            with pytest.raises(MonqueConnectionError, match="does not lead to a database"):
                await resolve_database(source)

    async def test_that_fails_is_reported_with_its_reason(self) -> None:
        def make() -> object:
            raise OSError("no route to host")

        async def make_async() -> object:
            raise OSError("no route to host")

        sources = [
            make,
            make_async,
            providers.Callable(make),
            providers.Coroutine(make_async),
            providers.Singleton(make_async),
            providers.Resource(make),
        ]
        for source in sources:
            with pytest.raises(MonqueConnectionError, match="OSError: no route to host") as raised:
                await resolve_database(source)
            assert isinstance(raised.value.__cause__, OSError)

    async def test_whose_own_connection_error_is_left_as_it_is(self) -> None:
        error = MonqueConnectionError("the vault is sealed")

        def make() -> object:
            raise error

        with pytest.raises(MonqueConnectionError) as raised:
            await resolve_database(make)
        assert raised.value is error

    async def test_that_is_cancelled_stays_cancelled(self) -> None:
        async def make() -> object:
            raise asyncio.CancelledError

        with pytest.raises(asyncio.CancelledError):
            await resolve_database(make)

    async def test_that_needs_arguments_is_reported(self) -> None:
        def make(host: str) -> object:
            return host

        with pytest.raises(MonqueConnectionError, match=r"make.*missing.*'host'"):
            await resolve_database(make)

    async def test_that_gives_none_is_named(self) -> None:
        def get_nothing() -> None:
            return None

        async def get_nothing_async() -> None:
            return None

        for source in (get_nothing, get_nothing_async):
            with pytest.raises(MonqueConnectionError, match=f"{source.__name__} returned None"):
                await resolve_database(source)
        with pytest.raises(MonqueConnectionError, match="returned None"):
            await resolve_database(providers.Configuration().missing)

    async def test_that_is_a_generator_is_reported_to_be_a_resource(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        def generate() -> Iterator[object]:
            yield db

        async def generate_async() -> AsyncIterator[object]:
            yield db

        for source in (generate, generate_async):
            with pytest.raises(MonqueConnectionError, match=r"generator.*providers\.Resource"):
                await resolve_database(source)


class TestWhatIsNoConnection:
    @pytest.mark.parametrize("source", [None, (), []])
    async def test_nothing(self, source: object) -> None:
        with pytest.raises(MonqueConnectionError, match="no connection was given") as raised:
            await resolve_database(source)
        _says_what_would_do(raised.value)

    async def test_two(
        self, db: AsyncDatabase[dict[str, Any]], blocking_db: Database[dict[str, Any]]
    ) -> None:
        pairs: dict[str, object] = {
            "AsyncDatabase, a pymongo.synchronous.database.Database": (db, blocking_db),
            "AsyncDatabase, 'default'": [db, "default"],
            "'default', 'archive'": ("default", "archive"),
        }
        for shown, source in pairs.items():
            with pytest.raises(MonqueConnectionError, match=r"one connection, got 2") as raised:
                await resolve_database(source)
            assert shown in str(raised.value)
            _says_what_would_do(raised.value)

    @pytest.mark.parametrize(
        ("source", "name"),
        [
            (42, "int"),
            (True, "bool"),
            (b"default", "bytes"),
            ({"host": "localhost"}, "dict"),
            ({"default"}, "set"),
            (object(), "object"),
            (int, "int"),
            (asyncio, "asyncio"),
            (ModuleType("mongoengine_extras"), "mongoengine_extras"),
            (SimpleNamespace(db="shop"), "SimpleNamespace"),
            (SimpleNamespace(database=None), "SimpleNamespace"),
            (providers.Object(42), "int"),
            (lambda: "", "''"),
            (lambda: 42, "int"),
        ],
    )
    async def test_something_else_entirely(self, source: object, name: str) -> None:
        with pytest.raises(MonqueConnectionError) as raised:
            await resolve_database(source)
        assert name in str(raised.value)


SECRET = "correct-horse"
URI = f"mongodb://shop:{SECRET}@db.example.com/shop"


class TestAPassword:
    @pytest.mark.parametrize(
        "source",
        [
            URI,
            URI.replace("mongodb:", "mongodb+srv:"),
            (URI, "shop"),
            [URI, URI],
            providers.Object(URI),
            lambda: URI,
            {"host": URI},
            SimpleNamespace(db=URI, uri=URI),
            providers.Callable(MongoClient, URI, connect=False, misspelt=True),
        ],
        ids=range(9),
    )
    async def test_is_repeated_by_no_message(self, source: object) -> None:
        with pytest.raises(MonqueConnectionError) as raised:
            await resolve_database(source)
        assert SECRET not in str(raised.value)

    async def test_of_a_client_without_a_database_is_not_repeated(self) -> None:
        uri = f"mongodb://shop:{SECRET}@127.0.0.1:1"
        with MongoClient[dict[str, Any]](uri, connect=False) as client:
            for source in (client, (client, client), (client, "a b")):
                with pytest.raises(MonqueConnectionError) as raised:
                    await resolve_database(source)
                assert SECRET not in str(raised.value)

    @pytest.mark.parametrize(
        "password", ["battery", "staple@battery", "staple/battery", "a:battery"]
    )
    async def test_in_the_error_of_a_factory_is_not_repeated(self, password: str) -> None:
        def make() -> object:
            raise OSError(
                f"cannot reach mongodb://me:{password}@db.example.com/x: no route to host"
            )

        with pytest.raises(MonqueConnectionError, match="no route to host") as raised:
            await resolve_database(make)
        assert "battery" not in str(raised.value)
        assert "db.example.com" in str(raised.value)

    async def test_a_connection_string_is_reported_what_to_do_with_it(self) -> None:
        with pytest.raises(MonqueConnectionError) as raised:
            await resolve_database(URI)
        assert "alias" not in str(raised.value).partition("expected is")[0]
        assert "client" in str(raised.value)


class TestAConnectionOfTheApplication:
    """Whatever it is, jobs run through it and it is open afterwards."""

    @pytest.fixture(
        params=["blocking_db", "db", "motor_db", "alias", "module", "client", "document"]
    )
    def source(self, request: pytest.FixtureRequest, database_name: str) -> Any:
        if request.param.endswith("db"):
            return request.getfixturevalue(request.param)
        client = request.getfixturevalue("mongoengine_client")
        return {
            "alias": "default",
            "module": mongoengine.connection,
            "client": (client, database_name),
            "document": Order,
        }[request.param]

    async def test_runs_jobs_and_stays_open(
        self, source: Any, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        ran: Tally[int] = Tally()

        @job(name="note")
        class Note:
            async def handle(self, job: Job[int]) -> None:
                ran.add(job.data)

        class App(containers.DeclarativeContainer):
            monque = providers.Container(
                MonqueContainer, connection=providers.Object(source), jobs=[Note]
            )

        app = App()
        for number in range(2):
            async with lifespan(app):
                await app.monque.service().enqueue("note", number)
                await ran.reach(number + 1)
        assert ran == [0, 1]
        assert await db["monque_jobs"].count_documents({"status": "completed"}) == 2

        native = await resolve_database(source)
        pong = native.command("ping")
        assert (await pong if asyncio.iscoroutine(pong) else pong)["ok"] == 1

    async def test_is_not_touched_before_the_start(self, uri: str, database_name: str) -> None:
        log = CommandLog()
        async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
            container = MonqueContainer(connection=providers.Object(client[database_name]))
            container.service()
            await resolve_database(container.connection)
            assert not log.sent
            async with lifespan(container):
                pass
            assert log.sent


def _says_what_would_do(error: MonqueConnectionError) -> None:
    for expected in EVERYTHING_THAT_WOULD_DO:
        assert expected in str(error)


def _wrap(source: object, wrapping: str) -> object:
    async def make() -> object:
        return source

    if wrapping == "object":
        return providers.Object(source)
    if wrapping == "singleton":
        return providers.Singleton(lambda: source)
    return make if wrapping == "coroutine" else lambda: source


async def _close(client: Any) -> None:
    closing = client.close()
    if closing is not None:
        await closing
