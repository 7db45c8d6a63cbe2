"""What is found to be wrong with the providers behind a job, before anything is called."""

from __future__ import annotations

import functools
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict
from unittest import mock

import pytest
from dependency_injector import containers, providers, resources

from monque_di import RunScoped, WiringError, current_job, job, job_controller, lifespan
from tests.support.applications import application, mistakes, mistakes_in, perform

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job

    DB = AsyncDatabase[dict[str, Any]]


class Session: ...


class Repository:
    def __init__(self, session: Session) -> None:
        self.session = session


class Service:
    def __init__(self, repository: Repository, *, url: str) -> None:
        self.repository = repository


@contextmanager
def open_session() -> Iterator[Session]:
    yield Session()


def session_of(job: Job[Any]) -> Session:
    return Session()


class SessionOf(resources.Resource[Session]):
    def init(self, session: Session) -> Session:
        return session


@job(name="serve")
class Serve:
    def __init__(self, service: Service) -> None: ...

    async def handle(self, job: Job[None]) -> None: ...


@job(name="keep", scope="singleton")
class Keep:
    def __init__(self, session: Session) -> None: ...

    async def handle(self, job: Job[None]) -> None: ...


@job(name="store")
class Store:
    def __init__(self, session: Session) -> None: ...

    async def handle(self, job: Job[None]) -> None: ...


def test_what_a_nested_provider_lacks_is_reported_with_the_way_to_it() -> None:
    problems = mistakes(
        Serve,
        service=providers.Factory(Service, repository=providers.Factory(Repository)),
    )
    assert problems == [
        "Serve → service: Service → url: str → missing in the arguments of its Factory",
        (
            "Serve → service: Service → repository: Repository → session: Session → "
            "missing in the arguments of its Factory"
        ),
    ]


def test_positional_arguments_count_in_their_places() -> None:
    session = providers.Factory(Session)
    assert (
        mistakes(
            Serve,
            service=providers.Factory(Service, providers.Factory(Repository, session), url="x"),
        )
        == []
    )
    assert mistakes(Serve, service=providers.Singleton(Service, url="x")) == [
        (
            "Serve → service: Service → repository: Repository → missing in the arguments of its "
            "Singleton"
        )
    ]


@pytest.mark.parametrize(
    "make",
    [
        lambda: providers.Factory(Service, providers.Factory(Session), url="x", urll="y"),
        lambda: providers.Factory(Service, providers.Factory(Session), "too many", url="x"),
    ],
)
def test_what_a_provider_is_given_and_does_not_take_is_reported(make: Any) -> None:
    problems = mistakes(Serve, service=make())
    assert problems
    assert problems[0].startswith("Serve → service: Service → ")


def build(
    session: Session, /, size: int = 3, *more: int, deep: bool = False, **rest: int
) -> Service:
    return Service(Repository(session), url="")


async def build_later(session: Session) -> Service:
    return Service(Repository(session), url="")


def open_service(session: Session) -> Iterator[Service]:
    yield Service(Repository(session), url="")


@pytest.mark.parametrize(
    ("make", "function"),
    [
        (providers.Callable, build),
        (providers.Factory, build),
        (providers.Singleton, build),
        (providers.ThreadSafeSingleton, build),
        (providers.ContextLocalSingleton, build),
        (providers.Resource, open_service),
        (providers.Coroutine, build_later),
        (RunScoped, contextmanager(open_service)),
        (RunScoped, open_service),
    ],
)
def test_every_kind_of_provider_that_calls_is_looked_at(make: Any, function: Any) -> None:
    (problem,) = mistakes(Serve, service=make(function))
    assert problem.startswith(
        "Serve → service: Service → session: Session → missing in the arguments of its "
    )
    assert mistakes(Serve, service=make(function, providers.Factory(Session))) == []


@pytest.mark.parametrize(
    "wrap",
    [
        lambda broken: providers.List(broken),
        lambda broken: providers.Dict(one=broken),
        lambda broken: providers.Selector(providers.Object("one"), one=broken),
        lambda broken: broken.provided.session,
        lambda broken: broken.provided["session"],
        lambda broken: broken.provided.method.call(),
        lambda broken: providers.Factory(str, broken),
        lambda broken: providers.Factory(dict, nested=providers.List(broken)),
        lambda broken: providers.Factory(Session).add_attributes(repository=broken),
    ],
)
def test_a_mistake_is_found_behind_whatever_leads_to_it(wrap: Any) -> None:
    @job(name="find")
    class Find:
        def __init__(self, wrapped: Any) -> None: ...

        async def handle(self, job: Job[None]) -> None: ...

    problems = mistakes(Find, wrapped=wrap(providers.Factory(Repository)))
    assert len(problems) == 1
    assert problems[0].startswith(f"{Find.__qualname__} → wrapped")
    assert problems[0].endswith("session: Session → missing in the arguments of its Factory")


@pytest.mark.parametrize(
    "given",
    [
        lambda broken: broken.provider,
        lambda broken: providers.Delegate(broken),
        lambda _: providers.DelegatedFactory(Repository),
        lambda _: providers.DelegatedCallable(Repository),
        lambda broken: providers.FactoryAggregate(one=broken),
    ],
)
def test_what_is_handed_over_as_a_provider_may_get_the_rest_when_it_is_called(given: Any) -> None:
    class Shop:
        def __init__(self, make: Any) -> None: ...

    @job(name="open")
    class Open:
        def __init__(self, shop: Any) -> None: ...

        async def handle(self, job: Job[None]) -> None: ...

    make = given(providers.Factory(Repository))
    assert mistakes(Open, shop=providers.Factory(Shop, make=make)) == []


def test_a_dependency_that_is_not_defined_is_reported() -> None:
    class Core(containers.DeclarativeContainer):
        session = providers.Dependency(instance_of=Session)
        repository = providers.Factory(Repository, session)

    @job(name="read")
    class Read:
        def __init__(self, repository: Repository) -> None: ...

        async def handle(self, job: Job[None]) -> None: ...

    (problem,) = mistakes(Read, core=providers.Container(Core))
    assert problem.startswith(f"{Read.__qualname__} → repository: Repository → ")
    assert problem.endswith("its Dependency has no provider")
    defined = providers.Container(Core, session=providers.Factory(Session))
    assert mistakes(Read, core=defined) == []


def test_a_dependencies_container_that_is_not_overridden_is_reported() -> None:
    class Services(containers.DeclarativeContainer):
        core = providers.DependenciesContainer()
        repository = providers.Factory(Repository, core.session)

    class Core(containers.DeclarativeContainer):
        session = providers.Factory(Session)

    @job(name="read")
    class Read:
        def __init__(self, repository: Repository) -> None: ...

        async def handle(self, job: Job[None]) -> None: ...

    (problem,) = mistakes(Read, services=providers.Container(Services))
    assert problem.endswith("its Dependency has no provider")
    core = providers.Container(Core)
    assert mistakes(Read, core=core, services=providers.Container(Services, core=core)) == []


@pytest.mark.parametrize(
    ("make", "concrete"),
    [
        (providers.AbstractFactory, providers.Factory),
        (providers.AbstractSingleton, providers.Singleton),
        (providers.AbstractCallable, providers.Callable),
    ],
)
def test_an_abstract_provider_that_is_not_overridden_is_reported(make: Any, concrete: Any) -> None:
    app = application(None, Store, session=make(Session))
    (problem,) = mistakes_in(app, Store)
    assert problem == f"Store → session: Session → its {make.__name__} is not overridden"
    app.session.override(concrete(Session))
    assert mistakes_in(app, Store) == []


@pytest.mark.parametrize(
    "make_session",
    [
        lambda: RunScoped(open_session),
        lambda: providers.Callable(session_of, providers.Callable(current_job)),
        lambda: providers.Factory(session_of, job=providers.Callable(current_job)),
    ],
)
@pytest.mark.parametrize(
    ("keep", "holder"),
    [
        (lambda session: providers.Singleton(Repository, session), "Singleton"),
        (lambda session: providers.ThreadSafeSingleton(Repository, session), "ThreadSafeSingleton"),
        (
            lambda session: providers.ThreadLocalSingleton(Repository, session),
            "ThreadLocalSingleton",
        ),
        (lambda session: providers.Resource(Repository, session), "Resource"),
        (lambda session: providers.Resource(SessionOf, session), "Resource"),
        (
            lambda session: providers.Singleton(
                list, providers.List(providers.Factory(Repository, session))
            ),
            "Singleton",
        ),
    ],
)
def test_what_lives_in_a_run_is_not_kept_by_what_outlives_it(
    make_session: Any, keep: Any, holder: str
) -> None:
    @job(name="read")
    class Read:
        def __init__(self, kept: Any) -> None: ...

        async def handle(self, job: Job[None]) -> None: ...

    (problem,) = mistakes(Read, kept=keep(make_session()))
    label = f"{Read.__qualname__} → kept: Any"
    assert problem.startswith(label)
    assert problem.endswith(f"is run-scoped, but the {holder} of {label} outlives the run")


def test_a_singleton_job_keeps_nothing_of_a_run() -> None:
    assert mistakes(Keep, session=RunScoped(open_session)) == [
        "Keep → session: Session → is run-scoped, but the singleton Keep outlives the run"
    ]

    @job_controller("keep", scope="singleton")
    class Family:
        def __init__(self, mine: Job[None]) -> None: ...

        @job(name="run")
        async def run(self, job: Job[None]) -> None: ...

    name = Family.__qualname__
    assert mistakes(Family) == [
        f"{name} → mine: Job[None] → is run-scoped, but the singleton {name} outlives the run"
    ]


def test_a_job_whose_provider_is_a_singleton_keeps_nothing_of_a_run() -> None:
    (problem,) = mistakes(Store, store=providers.Singleton(Store, RunScoped(open_session)))
    assert problem == (
        "Store → Session → is run-scoped, but the Singleton of Store outlives the run"
    )


def test_an_explicit_factory_does_not_free_a_singleton_job() -> None:
    (problem,) = mistakes(Keep, keep=providers.Factory(Keep, RunScoped(open_session)))
    assert problem.endswith("is run-scoped, but the singleton Keep outlives the run")


def test_what_lives_in_a_run_may_be_had_by_everything_that_does() -> None:
    session = RunScoped(open_session)
    assert (
        mistakes(
            Serve,
            Store,
            session=session,
            service=providers.Factory(
                Service, providers.ContextLocalSingleton(Repository, session), url="x"
            ),
        )
        == []
    )


def test_a_singleton_may_have_what_makes_one_per_call() -> None:
    session = RunScoped(open_session)
    assert (
        mistakes(Serve, service=providers.Singleton(Service, repository=session.provider, url="x"))
        == []
    )


def test_a_keeper_is_found_even_if_the_provider_was_seen_without_one() -> None:
    session = RunScoped(open_session)
    problems = mistakes(
        Store,
        Serve,
        session=session,
        service=providers.Singleton(Service, providers.Factory(Repository, session), url="x"),
    )
    assert len(problems) == 1
    assert problems[0].startswith("Serve → service: Service → ")


def test_a_mistake_that_many_jobs_share_is_reported_once() -> None:
    @job(name="other")
    class Other(Serve): ...

    @job(name="again", scope="singleton")
    class Again(Serve): ...

    broken = providers.Factory(Service, providers.Object(None))
    problems = mistakes(Serve, Other, Again, service=broken)
    assert problems == [
        "Serve → service: Service → url: str → missing in the arguments of its Factory"
    ]


def test_an_override_in_force_is_what_is_looked_at() -> None:
    app = application(None, Keep, session=RunScoped(open_session))
    with app.session.override(providers.Factory(Session)):
        assert mistakes_in(app, Keep) == []
    assert len(mistakes_in(app, Keep)) == 1
    app = application(None, Keep, session=providers.Factory(Session))
    with app.session.override(RunScoped(open_session)):
        assert len(mistakes_in(app, Keep)) == 1


def test_providers_that_lead_back_to_themselves_are_reported() -> None:
    first: Any = providers.Factory(Repository)
    second: Any = providers.Factory(Repository, first)
    first.add_kwargs(session=second)

    @job(name="turn")
    class Turn:
        def __init__(self, first: Any) -> None: ...

        async def handle(self, job: Job[None]) -> None: ...

    problems = mistakes(Turn, first=first, second=second)
    assert len(problems) == 1
    assert problems[0].startswith(f"{Turn.__qualname__} → first: Any → ")


def test_configuration_and_builtins_are_no_mistakes() -> None:
    config = providers.Configuration()
    assert (
        mistakes(
            Serve,
            config=config,
            service=providers.Factory(
                Service,
                providers.Factory(dict, size=config.size.as_int()),
                url=config.url.required(),
            ),
        )
        == []
    )


def test_nothing_is_called_by_looking() -> None:
    def refuse(*args: object) -> Service:
        raise AssertionError("called")

    assert (
        mistakes(
            Serve,
            service=providers.Factory(
                refuse, providers.Singleton(refuse), providers.Resource(refuse)
            ),
        )
        == []
    )


async def test_a_captive_dependency_fails_the_start(db: DB) -> None:
    app = application(db, Keep, session=RunScoped(open_session))
    with pytest.raises(WiringError, match="the singleton Keep outlives the run"):
        async with lifespan(app):
            raise AssertionError("it has started")


async def test_what_is_found_to_be_right_runs(db: DB) -> None:
    app = application(db, Store, Keep, session=providers.Factory(Session))
    assert len(await perform(app, Store)) == 1


class Pool:
    def __init__(self, size: int, /, host: str, *addresses: str, **options: int) -> None: ...

    def open(self, name: str) -> Session:
        return Session()

    @classmethod
    def create(cls, size: int) -> Pool:
        return cls(size, "localhost")


@dataclass(kw_only=True)
class Settings:
    size: int
    hosts: list[str] = field(default_factory=list)


class Named(NamedTuple):
    one: int


class Permissive:
    def __init__(self, *args: object, **kwargs: object) -> None: ...


@pytest.mark.parametrize(
    "make",
    [
        lambda: providers.Factory(Pool, 3, "localhost", "a", "b", timeout=3),
        lambda: providers.Factory(Pool, 3, host="localhost", size=4),
        lambda: providers.Factory(functools.partial(Pool, 3), "localhost"),
        lambda: providers.Factory(functools.partial(Pool, 3, host="x")),
        lambda: providers.Factory(functools.partial(Pool, 3, host="x"), host="y"),
        lambda: providers.Factory(Pool.create, 3),
        lambda: providers.Callable(Pool(3, "x").open, "name"),
        lambda: providers.Singleton(Settings, size=3),
        lambda: providers.Singleton(Permissive, 1, 2, three=3),
        lambda: providers.Singleton(mock.Mock, name="a mock"),
        lambda: providers.Object(mock.MagicMock()),
        lambda: providers.Factory(mock.MagicMock(), 1, two=2),
        lambda: providers.Factory(dict, one=1),
        lambda: providers.Factory(int, "5"),
        lambda: providers.Factory(datetime, 2026, 1, 1, tzinfo=UTC),
        lambda: providers.Factory(TypedDict("Typed", {"one": int}), one=1),  # type: ignore[operator]
        lambda: providers.Factory(Named, 1),
        lambda: providers.Callable(len, []),
        lambda: providers.Callable(print, "text", end=""),
        lambda: providers.Resource(SessionOf, 1),
        lambda: providers.Resource(SessionOf, session=1),
        lambda: providers.Factory(list[int], [1]),
    ],
)
def test_what_can_be_called_is_not_a_mistake(make: Any) -> None:
    @job(name="use")
    class Use:
        def __init__(self, it: Any) -> None: ...

        async def handle(self, job: Job[None]) -> None: ...

    make()()
    assert mistakes(Use, it=make()) == []
