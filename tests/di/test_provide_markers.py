"""The markers of dependency-injector in constructors and handlers."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from dependency_injector import containers, providers
from dependency_injector.wiring import (
    Closing,
    Provide,
    Provider,
    as_,
    as_int,
    inject,
    invariant,
    provided,
    required,
)

from monque_di import job, job_controller, lifespan
from tests.support import unseen
from tests.support.applications import (
    QUIET,
    application,
    mistakes,
    mistakes_in,
    perform,
    perform_in,
    queue_on,
)

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job
    from tests.support.unseen import Absent

    DB = AsyncDatabase[dict[str, Any]]


class Mailer:
    def __init__(self, host: str = "localhost") -> None:
        self.host = host

    def hello(self) -> str:
        return f"hello from {self.host}"


class Gateways(containers.DeclarativeContainer):
    backup = providers.Singleton(Mailer, "backup")


class App(containers.DeclarativeContainer):
    config = providers.Configuration()
    mailer = providers.Singleton(Mailer, host=config.smtp.host)
    other = providers.Singleton(Mailer, "other")
    gateways = providers.Container(Gateways)
    numbers = providers.Dict(one=providers.Object(1))
    monque = queue_on(None)


def an_app(db: object, host: str, *jobs: object) -> App:
    app = App()
    app.config.from_dict(
        {"smtp": {"host": host, "port": "25"}, "servers": {"one": "first"}, "which": "one"}
    )
    app.monque.connection.override(providers.Object(db))
    app.monque.options.override(providers.Object(QUIET))
    app.monque.jobs.override(providers.Object(jobs))
    return app


class Asked:
    given: Any

    async def handle(self, job: Job[None]) -> None:
        type(self).given = self


async def test_providers_are_named_by_text(db: DB) -> None:
    @job(name="ask")
    class Ask(Asked):
        @inject
        def __init__(
            self,
            mailer: Mailer = Provide["other"],
            nested: Mailer = Provide["gateways.backup"],
            host: str = Provide["config.smtp.host"],
            port: int = Provide["config.smtp.port", as_int()],
            size: float = Provide["config.smtp.port", as_(float)],
            must: str = Provide["config.smtp.host", required()],
            chosen: str = Provide["config.servers", invariant("config.which")],
            hello: str = Provide["mailer", provided().hello.call()],
            table: dict[str, int] = Provide["numbers"],
        ) -> None:
            self.all = (mailer.host, nested.host, host, port, size, must, chosen, hello, table)

    await perform(an_app(db, "mx", Ask), Ask)
    assert Ask.given.all == (
        "other",
        "backup",
        "mx",
        25,
        25.0,
        "mx",
        "first",
        "hello from mx",
        {"one": 1},
    )


async def test_providers_are_named_by_the_attributes_of_the_class(db: DB) -> None:
    @job(name="ask")
    class Ask(Asked):
        @inject
        def __init__(
            self,
            mailer: Mailer = Provide[App.other],
            nested: Mailer = Provide[App.gateways.backup],
            host: str = Provide[App.config.smtp.host],
            port: int = Provide[App.config.smtp.port.as_int()],
            must: str = Provide[App.config.smtp.host.required()],
            hello: str = Provide[App.mailer.provided.hello.call()],
            app: Any = Provide[App],
            same: Any = Provide["<container>"],
        ) -> None:
            self.all = (mailer.host, nested.host, host, port, must, hello)
            self.apps = (app, same)

    app = an_app(db, "mx", Ask)
    await perform(app, Ask)
    assert Ask.given.all == ("other", "backup", "mx", 25, "mx", "hello from mx")
    assert Ask.given.apps == (app, app)


async def test_markers_may_be_in_the_annotation(db: DB) -> None:
    @job(name="ask")
    class Ask(Asked):
        def __init__(
            self,
            mailer: Annotated[Mailer, Provide[App.other]],
            host: Annotated[str, "a remark", Provide["config.smtp.host"]],
            make: Annotated[Any, Provider["mailer"]],
            /,
            *,
            port: Annotated[int, Provide["config.smtp.port", as_int()]] = 3,
        ) -> None:
            self.all = (mailer.host, host, make().host, port)

    await perform(an_app(db, "mx", Ask), Ask)
    assert Ask.given.all == ("other", "mx", "mx", 25)


async def test_a_marker_is_read_from_an_annotation_of_an_unseen_class(db: DB) -> None:
    @job(name="ask")
    class Ask(Asked):
        def __init__(self, it: Annotated[Absent, Provide["chosen"]]) -> None:
            self.it = it

    app = application(
        db,
        Ask,
        it=providers.Object("a namesake"),
        chosen=providers.Factory(unseen.Absent),
    )
    await perform(app, Ask)
    assert type(Ask.given.it) is unseen.Absent


async def test_the_decorator_inject_is_not_needed(db: DB) -> None:
    @job(name="ask")
    class Ask(Asked):
        def __init__(self, mailer: Mailer = Provide[App.other]) -> None:
            self.mailer = mailer

    await perform(an_app(db, "mx", Ask), Ask)
    assert Ask.given.mailer.host == "other"


async def test_a_marker_comes_before_type_and_name_and_goes_with_them(db: DB) -> None:
    @job(name="ask")
    class Ask(Asked):
        @inject
        def __init__(
            self, gateways_backup: Mailer = Provide["other"], *, other: Mailer, table: Any = 5
        ) -> None:
            self.all = (gateways_backup.host, other.host, table)

    await perform(an_app(db, "mx", Ask), Ask)
    assert Ask.given.all == ("other", "other", 5)


async def test_provider_gives_the_provider_itself(db: DB) -> None:
    class Letter:
        def __init__(self, text: str) -> None:
            self.text = text

    @job(name="ask")
    class Ask(Asked):
        @inject
        def __init__(self, letters: Any = Provider["letter"]) -> None:
            self.letters = letters

    app = application(db, Ask, letter=providers.Factory(Letter))
    # What it lacks comes from whoever calls it.
    await perform(app, Ask)
    assert Ask.given.letters is app.letter
    assert Ask.given.letters("dear").text == "dear"


async def test_provide_calls_even_a_provider_that_is_injected_as_such_elsewhere(db: DB) -> None:
    @job(name="ask")
    class Ask(Asked):
        @inject
        def __init__(
            self, called: Any = Provide["delegated"], itself: Any = Provider["delegated"]
        ) -> None:
            self.all = (called, itself)

    app = application(db, Ask, delegated=providers.DelegatedSingleton(Mailer, "delegated"))
    await perform(app, Ask)
    assert Ask.given.all == (app.delegated(), app.delegated)


async def test_handlers_are_given_what_they_have_markers_for(db: DB) -> None:
    seen: list[Any] = []

    @job(name="one")
    class One:
        async def handle(
            self, job: Job[None], mailer: Mailer = Provide["other"], plain: int = 5
        ) -> None:
            seen.append(("one", mailer.host, plain))

    @job_controller("two")
    class Two:
        @job(name="run")  # type: ignore[arg-type]  # a marker is no default to a checker
        def run(self, job: Job[None], *, mailer: Annotated[Mailer, Provide[App.mailer]]) -> None:
            seen.append(("two", mailer.host))

    app = an_app(db, "mx", One, Two)
    async with lifespan(app):
        await perform_in(app, One, Two.run)
        with app.other.override(Mailer("fake")), app.mailer.override(Mailer("fake")):
            await perform_in(app, One, Two.run)
    assert sorted(seen) == [
        ("one", "fake", 5),
        ("one", "other", 5),
        ("two", "fake"),
        ("two", "mx"),
    ]


async def test_two_containers_of_one_class_each_give_their_own(
    db: DB, client: Any, database_name: str
) -> None:
    seen: list[tuple[str, str]] = []

    @job(name="ask")
    class Ask:
        @inject
        def __init__(
            self, mailer: Mailer = Provide[App.mailer], host: str = Provide["config.smtp.host"]
        ) -> None:
            self.all = (mailer.host, host)

        async def handle(self, job: Job[None]) -> None:
            seen.append(self.all)

    module = sys.modules[__name__]
    left = an_app(db, "left", Ask)
    right = an_app(client[f"{database_name}_right"], "right", Ask)
    # Wired to one of them, the module would give every caller that one's services.
    left.wire(modules=[module])
    try:
        async with lifespan(left), lifespan(right):
            await perform_in(left, Ask)
            await perform_in(right, Ask)
            await perform_in(left, Ask)
    finally:
        left.unwire()
        await client.drop_database(f"{database_name}_right")
    assert seen == [("left", "left"), ("right", "right"), ("left", "left")]


async def test_markers_lead_into_an_application_that_is_nested_in_another(db: DB) -> None:
    class Shop(containers.DeclarativeContainer):
        mailer = providers.Singleton(Mailer, "shop")
        monque = queue_on(db)

    class Whole(containers.DeclarativeContainer):
        shop = providers.Container(Shop)

    @job(name="ask")
    class Ask(Asked):
        def __init__(
            self,
            by_class: Mailer = Provide[Whole.shop.mailer],
            by_text: Mailer = Provide["shop.mailer"],
        ) -> None:
            self.all = (by_class.host, by_text.host)

    app: Any = Whole()
    app.shop.monque.jobs.override(providers.Object([Ask]))
    async with lifespan(app):
        await perform_in(app.shop, Ask)
    assert Ask.given.all == ("shop", "shop")


async def test_markers_of_a_nested_application_are_read_as_it_was_written(db: DB) -> None:
    class Shop(containers.DeclarativeContainer):
        mailer = providers.Singleton(Mailer, "shop")
        monque = queue_on(db)

    class Whole(containers.DeclarativeContainer):
        shop = providers.Container(Shop)

    @job(name="ask")
    class Ask(Asked):
        def __init__(self, mailer: Mailer = Provide["mailer"]) -> None:
            self.mailer = mailer

    app: Any = Whole()
    app.shop.monque.jobs.override(providers.Object([Ask]))
    async with lifespan(app):
        await perform_in(app.shop, Ask)
    assert Ask.given.mailer.host == "shop"


@pytest.mark.parametrize(
    "marker",
    [
        Provide["nothing"],
        Provide["mailer.nothing.at.all"],
        Provide["gateways.nothing"],
        Provide[Gateways.backup],
        Provider["nothing"],
        Provide[providers.Factory(Mailer)],
        Provide[""],
        Provide["mailer.provides"],
        Provide["providers"],
    ],
)
@pytest.mark.parametrize("place", ["constructor", "handler"])
def test_a_marker_that_leads_to_no_provider_is_reported(marker: Any, place: str) -> None:
    @job(name="ask")
    class Ask:
        def __init__(self, mailer: Mailer = Provide["other"]) -> None: ...

        async def handle(self, job: Job[None], mailer: Mailer = Provide["other"]) -> None: ...

    function: Any = Ask.__init__ if place == "constructor" else Ask.handle
    function.__defaults__ = (marker,)
    (problem,) = mistakes_in(an_app(None, "mx"), Ask)
    label = Ask.__qualname__ + ("" if place == "constructor" else ".handle")
    assert problem.startswith(f"{label} → mailer: Mailer → Provide")
    assert problem.endswith("] → no provider")


def test_closing_is_refused_with_what_to_do_instead() -> None:
    @job(name="ask")
    class Ask(Asked):
        def __init__(self, mailer: Mailer = Closing[Provide["mailer"]]) -> None: ...

    (problem,) = mistakes(Ask, mailer=providers.Factory(Mailer))
    assert problem == (
        f"{Ask.__qualname__} → mailer: Mailer → Closing would close the resource before the job "
        "runs: "
        "use RunScoped instead"
    )


def test_a_provider_added_to_an_instance_does_no_harm_to_markers() -> None:
    @job(name="ask")
    class Ask(Asked):
        def __init__(
            self, mailer: Mailer = Provide["other"], added: int = Provide["added"]
        ) -> None: ...

    app = an_app(None, "mx")
    app.set_provider("added", providers.Object(5))
    assert mistakes_in(app, Ask) == []


async def test_a_decorated_class_can_still_be_wired_and_made_by_hand() -> None:
    app = an_app(None, "wired")
    app.wire(modules=[sys.modules[__name__]])
    try:
        assert Wired().mailer.host == "wired"
        assert await Wired().run(None) == "wired"  # type: ignore[arg-type]
    finally:
        app.unwire()


@job_controller("wired")
class Wired:
    @inject
    def __init__(self, mailer: Mailer = Provide[App.mailer]) -> None:
        self.mailer = mailer

    @job(name="run")
    @inject
    async def run(self, job: Job[None], mailer: Mailer = Provide[App.mailer]) -> str:
        return mailer.host


async def test_the_fields_of_a_dataclass_may_have_markers(db: DB) -> None:
    seen: list[tuple[str, int]] = []

    @job(name="ask")
    @dataclass
    class Ask:
        mailer: Mailer = Provide["other"]
        port: int = Provide["config.smtp.port", as_int()]

        async def handle(self, job: Job[None]) -> None:
            seen.append((self.mailer.host, self.port))

    await perform(an_app(db, "mx", Ask), Ask)
    assert seen == [("other", 25)]


async def test_a_handlers_marker_may_be_in_any_place_that_has_a_name(db: DB) -> None:
    seen: list[tuple[str, ...]] = []

    @job(name="ask")
    class Ask:
        async def handle(
            self,
            job: Job[None],
            /,
            first: Mailer = Provide["other"],
            plain: str = "plain",
            second: Mailer = Provide["mailer"],
            *,
            third: str = Provide["config.smtp.host"],
        ) -> None:
            seen.append((job.name, first.host, plain, second.host, third))

    await perform(an_app(db, "mx", Ask), Ask)
    assert seen == [("ask", "other", "plain", "mx", "mx")]


def test_a_handlers_marker_without_a_name_to_give_it_by_is_reported() -> None:
    @job(name="ask")
    class Ask:
        async def handle(
            self, job: Job[None], plain: str = "plain", mailer: Mailer = Provide["other"], /
        ) -> None: ...

    (problem,) = mistakes_in(an_app(None, "mx"), Ask)
    assert problem == (
        f"{Ask.__qualname__}.handle → mailer → a Provide marker cannot fill a "
        "positional-only parameter"
    )
