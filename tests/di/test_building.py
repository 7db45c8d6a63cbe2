"""How a class gets what its constructor asks for."""

from __future__ import annotations

import contextlib  # noqa: F401  # read from annotations
from abc import ABC, abstractmethod
from collections import abc  # noqa: F401  # read from annotations
from dataclasses import dataclass, field
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    NewType,
    Optional,
    Protocol,
    Self,
    TypeVar,
    runtime_checkable,
)

import pydantic
import pytest
from dependency_injector import containers, providers, resources
from hypothesis import given, settings
from hypothesis import strategies as st

from monque_core import Job, Monque  # noqa: TC001  # read from annotations
from monque_di import MonqueService, job, lifespan
from monque_di.building import BuildPlanner
from monque_di.provider_index import ProviderIndex
from tests.support import unseen
from tests.support.applications import application, mistakes, perform, perform_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from pymongo.asynchronous.database import AsyncDatabase

    from tests.support.unseen import Absent, AbsentBase

    DB = AsyncDatabase[dict[str, Any]]

T = TypeVar("T")

quick = settings(max_examples=50)


class Mailer:
    def __init__(self, host: str = "localhost") -> None:
        self.host = host


class SmtpMailer(Mailer): ...


class Ledger: ...


class Clock(ABC):
    @abstractmethod
    def read(self) -> int: ...


class FixedClock(Clock):
    def read(self) -> int:
        return 7


@runtime_checkable
class Sends(Protocol):
    def send(self) -> str: ...


class Counts(Protocol):
    def count(self) -> int: ...


class Postman:
    def send(self) -> str:
        return "sent"


class Repository(Generic[T]):
    pass


class User: ...


class Order: ...


class Users(Repository[User]): ...


UserId = NewType("UserId", int)


class Asked:
    """A job that keeps what it was given, for tests to look at."""

    given: Any

    async def handle(self, job: Job[None]) -> None:
        type(self).given = self


async def built(db: DB, target: type, **offered: Any) -> Any:
    """Return the instance that handled a real run."""
    await perform(application(db, target, **offered), target)
    return vars(target)["given"]


async def test_a_provider_made_for_the_class_comes_before_everything_else(db: DB) -> None:
    @job(name="greet")
    class Greet(Asked):
        def __init__(self, mailer: Mailer, greeting: str) -> None:
            self.mailer, self.greeting = mailer, greeting

    it = await built(
        db,
        Greet,
        mailer=providers.Singleton(Mailer, "of the container"),
        greet=providers.Factory(Greet, Mailer("of the provider"), greeting="hello"),
    )
    assert (it.mailer.host, it.greeting) == ("of the provider", "hello")


async def test_the_provider_of_the_class_decides_how_long_it_lives(db: DB) -> None:
    seen: list[object] = []

    @job(name="count")
    class Count:
        async def handle(self, job: Job[None]) -> None:
            seen.append(self)

    app = application(db, Count, count=providers.Singleton(Count))
    await perform(app, Count, Count)
    assert seen == [app.count(), app.count()]


async def test_a_provider_of_the_class_may_be_async_and_in_a_nested_container(db: DB) -> None:
    @job(name="nested")
    class Nested(Asked):
        def __init__(self, mailer: Mailer) -> None:
            self.mailer = mailer

    async def connect() -> Mailer:
        return Mailer("connected")

    class Jobs(containers.DeclarativeContainer):
        nested = providers.Factory(Nested, providers.Coroutine(connect))

    it = await built(db, Nested, inner=providers.Container(Jobs), mailer=providers.Factory(Mailer))
    assert it.mailer.host == "connected"


def test_two_providers_of_the_class_are_one_too_many() -> None:
    @job(name="greet")
    class Greet(Asked): ...

    problems = mistakes(Greet, one=providers.Factory(Greet), two=providers.Singleton(Greet))
    name = Greet.__qualname__
    assert problems == [f"{name} → 2 providers build this class: one (Greet), two (Greet)"]


async def test_a_provider_that_gives_the_class_itself_does_not_make_it(db: DB) -> None:
    @job(name="greet")
    class Greet(Asked): ...

    assert isinstance(await built(db, Greet, kind=providers.Object(Greet)), Greet)


async def test_a_provider_of_a_subclass_is_not_one_of_the_class(db: DB) -> None:
    @job(name="greet")
    class Greet(Asked): ...

    class Louder(Greet): ...

    assert type(await built(db, Greet, louder=providers.Factory(Louder))) is Greet


async def test_the_provider_of_the_class_can_be_overridden(db: DB) -> None:
    seen: list[object] = []

    @job(name="greet")
    class Greet:
        async def handle(self, job: Job[None]) -> None:
            seen.append(type(self))

    class Silent(Greet): ...

    app = application(db, Greet, greet=providers.Factory(Greet))
    async with lifespan(app):
        await perform_in(app, Greet)
        with app.greet.override(providers.Factory(Silent)):
            await perform_in(app, Greet)
        await perform_in(app, Greet)
    assert seen == [Greet, Silent, Greet]


async def test_a_parameter_is_matched_by_its_type_whatever_its_name(db: DB) -> None:
    @job(name="greet")
    class Greet(Asked):
        def __init__(self, outgoing: Mailer, book: Ledger) -> None:
            self.outgoing, self.book = outgoing, book

    it = await built(
        db,
        Greet,
        mailer=providers.Singleton(Mailer, "smtp"),
        outgoing=providers.Object("a namesake of another type"),
        ledger=providers.Factory(Ledger),
    )
    assert it.outgoing.host == "smtp"
    assert type(it.book) is Ledger


async def test_the_exact_type_is_preferred_to_a_subclass(db: DB) -> None:
    @job(name="greet")
    class Greet(Asked):
        def __init__(self, outgoing: Mailer) -> None:
            self.outgoing = outgoing

    it = await built(db, Greet, smtp=providers.Factory(SmtpMailer), plain=providers.Factory(Mailer))
    assert type(it.outgoing) is Mailer
    it = await built(db, Greet, smtp=providers.Factory(SmtpMailer))
    assert type(it.outgoing) is SmtpMailer


def test_a_base_is_never_given_where_its_subclass_is_asked_for() -> None:
    @job(name="greet")
    class Greet(Asked):
        def __init__(self, outgoing: SmtpMailer) -> None: ...

    problems = mistakes(Greet, mailer=providers.Factory(Mailer))
    assert problems == [f"{Greet.__qualname__} → outgoing: SmtpMailer → no provider"]


async def test_of_two_providers_of_one_type_the_duplicate_name_is_taken(db: DB) -> None:
    @job(name="greet")
    class Greet(Asked):
        def __init__(self, primary: Mailer, fallback: Mailer) -> None:
            self.primary, self.fallback = primary, fallback

    it = await built(
        db,
        Greet,
        fallback=providers.Factory(Mailer, "fallback"),
        primary=providers.Factory(Mailer, "primary"),
        third=providers.Factory(Mailer, "third"),
    )
    assert (it.primary.host, it.fallback.host) == ("primary", "fallback")


def test_two_providers_of_one_type_without_a_duplicate_name_are_listed() -> None:
    class Backup(containers.DeclarativeContainer):
        mailer = providers.Factory(SmtpMailer)

    @job(name="greet")
    class Greet(Asked):
        def __init__(self, outgoing: Mailer | None = None) -> None: ...

    problems = mistakes(
        Greet,
        zeta=providers.Factory(SmtpMailer),
        backup=providers.Container(Backup),
    )
    assert problems == [
        (
            f"{Greet.__qualname__} → outgoing: Mailer | None → 2 providers: "
            "backup.mailer (SmtpMailer), zeta (SmtpMailer)"
        )
    ]


async def test_what_says_nothing_of_a_type_is_matched_by_name(db: DB) -> None:
    @job(name="greet")
    class Greet(Asked):
        def __init__(
            self,
            mailer,
            retries: int,
            tags: list[str],
            user_id: UserId,
            anything: Any,
            thing: object,
        ) -> None:
            self.all = (mailer, retries, tags, user_id, anything, thing)

    values = {
        "mailer": "m",
        "retries": 3,
        "tags": ["a"],
        "user_id": 4,
        "anything": 5,
        "thing": "t",
    }
    offered = {name: providers.Object(value) for name, value in values.items()}
    it = await built(db, Greet, unrelated=providers.Object(99), **offered)
    assert it.all == tuple(values.values())


async def test_a_duplicate_name_is_taken_from_the_outermost_container(db: DB) -> None:
    class Deep(containers.DeclarativeContainer):
        greeting = providers.Object("deep")
        only_deep = providers.Object("only deep")

    class Nested(containers.DeclarativeContainer):
        deep = providers.Container(Deep)
        greeting = providers.Object("nested")

    @job(name="greet")
    class Greet(Asked):
        def __init__(self, greeting: str, only_deep: str) -> None:
            self.all = (greeting, only_deep)

    nested = providers.Container(Nested)
    assert (await built(db, Greet, nested=nested)).all == ("nested", "only deep")
    it = await built(db, Greet, nested=nested, greeting=providers.Object("root_container"))
    assert it.all == ("root_container", "only deep")


def test_two_duplicate_names_at_one_depth_are_listed() -> None:
    class Nested(containers.DeclarativeContainer):
        greeting = providers.Object("nested")

    @job(name="greet")
    class Greet(Asked):
        def __init__(self, greeting: str) -> None: ...

    problems = mistakes(Greet, left=providers.Container(Nested), right=providers.Container(Nested))
    assert problems == [
        (
            f"{Greet.__qualname__} → greeting: str → 2 providers: "
            "left.greeting (str), right.greeting (str)"
        )
    ]


@pytest.mark.parametrize("wanted", [str, int, list, dict, object, Any, type(None)])
def test_builtin_types_are_never_matched_by_type(wanted: object) -> None:
    @job(name="greet")
    class Greet(Asked):
        def __init__(self, unnamed: Any) -> None: ...

    Greet.__init__.__annotations__["unnamed"] = wanted

    def give_anything() -> Any:
        return 5

    problems = mistakes(
        Greet,
        text=providers.Object("text"),
        number=providers.Object(5),
        values=providers.Object([1]),
        table=providers.Object({}),
        thing=providers.Object(object()),
        anything=providers.Callable(give_anything),
    )
    assert len(problems) == 1
    assert problems[0].endswith("→ no provider")


def give_strings() -> list[str]:
    return ["no recipient"]


@pytest.mark.parametrize(
    "annotation",
    ["Sequence[str]", "Mapping[str, str]", "Iterator[str]", "Sequence[Absent]", "list[Absent]"],
)
def test_values_of_builtin_types_do_not_pass_for_the_collections_they_are(
    annotation: str,
) -> None:
    @job(name="greet")
    class Greet(Asked):
        def __init__(self, recipients: Any) -> None: ...

    Greet.__init__.__annotations__["recipients"] = annotation
    problems = mistakes(
        Greet,
        greeting=providers.Object("hello"),
        table=providers.Object({}),
        strings=providers.Callable(give_strings),
        lines=providers.Object(iter(["a"])),
    )
    assert problems == [f"{Greet.__qualname__} → recipients: {annotation} → no provider"]


class Basket:
    """A class that many abstract ones of the standard library take for one of theirs."""

    def __init__(self) -> None: ...

    def __call__(self) -> None: ...

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[int]:
        return iter(())

    def __contains__(self, item: object) -> bool:
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None: ...


@pytest.mark.parametrize(
    "annotation",
    [
        "abc.Callable",
        "abc.Iterable[Ledger]",
        "abc.Collection[Ledger]",
        "abc.Sized",
        "abc.Hashable",
        "contextlib.AbstractContextManager[Ledger]",
        "Callable[[], Ledger]",
        "Iterable[Ledger]",
        # A class of somebody's own by such a name, imported for type checkers alone.
        "Collection",
        "Container",
        "Iterable",
    ],
)
def test_what_merely_has_the_methods_is_not_given_for_a_collection(annotation: str) -> None:
    @job(name="greet")
    class Greet(Asked):
        def __init__(self, things: Any) -> None: ...

    Greet.__init__.__annotations__["things"] = annotation
    problems = mistakes(Greet, basket=providers.Factory(Basket))
    assert problems == [f"{Greet.__qualname__} → things: {annotation} → no provider"]


async def test_an_unseen_class_may_have_the_name_of_one_in_the_standard_library(db: DB) -> None:
    class Collection: ...

    @job(name="greet")
    class Greet(Asked):
        def __init__(self, people: Collection, others: Collection | None) -> None:
            self.all = (type(people), type(others))

    assert (await built(db, Greet, users=providers.Factory(Collection))).all == (
        Collection,
        Collection,
    )


@pytest.mark.parametrize(
    "annotation",
    [
        "Optional[Mailer]",
        "Optional['Mailer']",
        "Mailer | None",
        "None | Mailer",
        "Annotated[Mailer, 'a remark']",
        "Annotated[Mailer | None, 'a remark']",
        "Mailer | Ledger",
        "'Mailer'",
    ],
)
@pytest.mark.parametrize("is_text", [True, False])
async def test_a_type_is_seen_through_what_is_written_around_it(
    annotation: str, is_text: bool
) -> None:
    @job(name="greet")
    class Greet(Asked):
        def __init__(self, outgoing: Any = None) -> None: ...

    read: Any = annotation if is_text else eval(annotation)
    Greet.__init__.__annotations__["outgoing"] = read
    app = application(None, Greet, mailer=providers.Factory(Mailer, "smtp"))
    plan = BuildPlanner(ProviderIndex(app)).plan_class(Greet, is_singleton=False)
    assert plan.kwargs == {"outgoing": app.mailer}


async def test_an_optional_parameter_gets_what_there_is_and_else_its_default(db: DB) -> None:
    @job(name="greet")
    class Greet(Asked):
        def __init__(
            self,
            outgoing: Optional[Mailer] = None,  # noqa: UP045  # as many have it
            *,
            book: Ledger | None = None,
            retries: int = 3,
        ) -> None:
            self.all = (outgoing and outgoing.host, book, retries)

    it = await built(db, Greet, mailer=providers.Factory(Mailer, "smtp"))
    assert it.all == ("smtp", None, 3)
    it = await built(db, Greet, retries=providers.Object(9))
    assert it.all == (None, None, 9)


async def test_an_abstract_class_and_a_protocol_get_what_implements_them(db: DB) -> None:
    @job(name="greet")
    class Greet(Asked):
        def __init__(self, watch: Clock, sender: Sends, tally: Counts) -> None:
            self.all = (watch.read(), sender.send(), tally)

    it = await built(
        db,
        Greet,
        fixed=providers.Singleton(FixedClock),
        post=providers.Singleton(Postman),
        # A protocol that is not for run time can only be told by name.
        tally=providers.Object("by name"),
    )
    assert it.all == (7, "sent", "by name")


async def test_a_generic_class_is_matched_by_the_class(db: DB) -> None:
    @job(name="greet")
    class Greet(Asked):
        def __init__(self, people: Repository[User]) -> None:
            self.people = people

    assert type((await built(db, Greet, users=providers.Factory(Users))).people) is Users
    it = await built(db, Greet, users=providers.Factory(Repository[User]))
    assert type(it.people) is Repository


def test_a_generic_class_is_not_matched_by_one_of_another_parameter() -> None:
    @job(name="greet")
    class Greet(Asked):
        def __init__(self, orders: Repository[Order]) -> None: ...

    problems = mistakes(Greet, users=providers.Factory(Users))
    assert len(problems) == 1
    assert problems[0].endswith("→ no provider")


async def test_a_generic_class_of_an_unseen_one_is_matched(db: DB) -> None:
    class Absents(Repository[unseen.Absent]): ...

    @job(name="greet")
    class Greet(Asked):
        def __init__(self, those: Repository[Absent], all_of_them: Repository[Any]) -> None:
            self.all = (type(those), type(all_of_them))

    it = await built(db, Greet, absents=providers.Factory(Absents))
    assert it.all == (Absents, Absents)


async def test_a_name_imported_for_type_checkers_alone_is_compared_by_the_class_name(
    db: DB,
) -> None:
    @job(name="greet")
    class Greet(Asked):
        def __init__(
            self,
            one: Absent,
            two: Absent | None,
            three: Optional[Absent],  # noqa: UP045  # as many have it
            four: Absent | None,
            five: Annotated[Absent, "a remark"],
        ) -> None:
            self.all = [one, two, three, four, five]

    it = await built(db, Greet, provided=providers.Factory(unseen.Absent))
    assert [type(each) for each in it.all] == [unseen.Absent] * 5


async def test_the_exact_class_is_preferred_by_its_name_too(db: DB) -> None:
    @job(name="greet")
    class Greet(Asked):
        def __init__(self, one: AbsentBase) -> None:
            self.one = one

    derived, base = providers.Factory(unseen.Derived), providers.Factory(unseen.AbsentBase)
    assert type((await built(db, Greet, derived=derived, base=base)).one) is unseen.AbsentBase
    assert type((await built(db, Greet, derived=derived)).one) is unseen.Derived


async def test_every_kind_of_parameter_is_given_in_its_own_way(db: DB) -> None:
    @job(name="greet")
    class Greet(Asked):
        def __init__(
            self, mailer: Mailer, /, book: Ledger, *args: Mailer, watch: Clock, **kwargs: Ledger
        ) -> None:
            self.all = (type(mailer), type(book), args, type(watch), kwargs)

    it = await built(
        db,
        Greet,
        mailer=providers.Factory(Mailer),
        args=providers.Factory(Mailer),
        kwargs=providers.Factory(Ledger),
        watch=providers.Factory(FixedClock),
    )
    assert it.all == (Mailer, Ledger, (), FixedClock, {})


async def test_a_positional_parameter_left_to_its_default_keeps_the_places_of_the_rest(
    db: DB,
) -> None:
    @job(name="greet")
    class Greet(Asked):
        def __init__(
            self, retries: int = 3, mailer: Mailer | None = None, factor: float = 0.5, /
        ) -> None:
            self.all = (retries, type(mailer), factor)

    it = await built(db, Greet, mailer=providers.Factory(Mailer))
    assert it.all == (3, Mailer, 0.5)
    it = await built(db, Greet, factor=providers.Object(2.0))
    assert it.all == (3, type(None), 2.0)


async def test_a_dataclass_is_built_by_its_fields(db: DB) -> None:
    @dataclass(slots=True, kw_only=True)
    @job(name="charge")
    class Charge:
        book: Ledger
        mailer: Mailer
        retries: int = 3
        log: list[str] = field(default_factory=list)
        ended: bool = field(init=False, default=False)

        async def handle(self, job: Job[None]) -> None:
            seen.append(self)

    seen: list[Charge] = []
    app = application(db, Charge, mailer=providers.Factory(Mailer), books=providers.Factory(Ledger))
    await perform(app, Charge)
    (it,) = seen
    assert (type(it.book), type(it.mailer), it.retries, it.log) == (Ledger, Mailer, 3, [])


def attributes(target: type) -> type:
    """Write a constructor as attrs does: from source, with globals of its own."""
    names = target.__annotations__
    assigned = "; ".join(f"self.{name} = {name}" for name in names)
    scope: dict[str, Any] = {}
    exec(f"def __init__(self, {', '.join(names)}): {assigned}", scope)
    made = scope["__init__"]
    made.__annotations__ = dict(names)
    made.__module__ = target.__module__
    target.__init__ = made  # type: ignore[misc]  # that is how it is done
    return target


async def test_a_constructor_may_be_written_by_a_decorator(db: DB) -> None:
    @job(name="charge")
    @attributes
    class Charge(Asked):
        outgoing: Mailer
        book: Ledger | None

    it = await built(db, Charge, mailer=providers.Factory(Mailer), ledger=providers.Factory(Ledger))
    assert (type(it.outgoing), type(it.book)) == (Mailer, Ledger)


async def test_a_constructor_may_be_that_of_a_pydantic_model(db: DB) -> None:
    @job(name="charge")
    class Charge(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
        outgoing: Mailer
        retries: int = 3

        async def handle(self, job: Job[None]) -> None:
            seen.append(self)

    seen: list[Charge] = []
    await perform(application(db, Charge, mailer=providers.Factory(Mailer, "smtp")), Charge)
    assert (seen[0].outgoing.host, seen[0].retries) == ("smtp", 3)


async def test_a_class_may_inherit_its_constructor(db: DB) -> None:
    class Base(Asked):
        def __init__(self, outgoing: Mailer) -> None:
            self.outgoing = outgoing

    @job(name="greet")
    class Greet(Base): ...

    it = await built(db, Greet, mailer=providers.Factory(Mailer))
    assert type(it.outgoing) is Mailer


async def test_a_class_may_be_made_by_new(db: DB) -> None:
    @job(name="greet")
    class Greet(Asked):
        outgoing: Mailer

        def __new__(cls, outgoing: Mailer) -> Self:
            made = super().__new__(cls)
            made.outgoing = outgoing
            return made

    it = await built(db, Greet, mailer=providers.Factory(Mailer))
    assert type(it.outgoing) is Mailer


async def test_the_job_the_queue_and_the_instance_are_there_for_every_constructor(db: DB) -> None:
    @job(name="greet")
    class Greet(Asked):
        def __init__(self, mine: Job[None], queue: MonqueService, core: Monque) -> None:
            self.mine, self.queue, self.core = mine, queue, core

        async def handle(self, job: Job[None]) -> None:
            await super().handle(job)
            assert self.mine is job

    app = application(db, Greet)
    async with lifespan(app):
        (done,) = await perform_in(app, Greet)
        assert Greet.given.mine.id == done.id
        assert Greet.given.queue is app.monque.service()
        assert Greet.given.core is app.monque.service().monque


def test_a_duplicate_name_of_the_job_is_not_given_the_job_when_it_asks_for_another_class() -> None:
    @job(name="greet")
    class Greet(Asked):
        def __init__(self, job: Ledger) -> None: ...

    problems = mistakes(Greet)
    assert problems == [f"{Greet.__qualname__} → job: Ledger → no provider"]


def test_two_queues_are_one_too_many_for_a_type() -> None:
    @job(name="greet")
    class Greet(Asked):
        def __init__(self, queue: MonqueService) -> None: ...

    second = application(None).monque
    problems = mistakes(Greet, second=second)
    assert problems == [
        (
            f"{Greet.__qualname__} → queue: MonqueService → 2 providers: "
            "monque.service (MonqueService), second.service (MonqueService)"
        )
    ]


async def test_nested_factories_are_resolved_by_the_container(db: DB) -> None:
    class Service:
        def __init__(self, mailer: Mailer, people: Repository[User]) -> None:
            self.mailer, self.people = mailer, people

    @job(name="greet")
    class Greet(Asked):
        def __init__(self, service: Service) -> None:
            self.service = service

    config = providers.Configuration()
    config.from_dict({"smtp": {"host": "mx"}})
    it = await built(
        db,
        Greet,
        config=config,
        service=providers.Factory(
            Service,
            mailer=providers.Factory(Mailer, host=config.smtp.host),
            people=providers.Singleton(Users),
        ),
    )
    assert it.service.mailer.host == "mx"
    assert type(it.service.people) is Users


async def connect() -> Mailer:
    return Mailer("connected")


def open_ledger() -> Iterator[Ledger]:
    yield Ledger()


async def open_mailer(host: str) -> AsyncIterator[SmtpMailer]:
    yield SmtpMailer(host)


class Clocks(resources.AsyncResource[Clock]):
    async def init(self) -> Clock:
        return FixedClock()


async def test_async_providers_and_resources_are_awaited(db: DB) -> None:
    @job(name="greet")
    class Greet(Asked):
        def __init__(
            self, one: SmtpMailer, book: Ledger, watch: Clock, mailer: Mailer, post: Postman
        ) -> None:
            self.all = (one.host, type(book), type(watch), mailer.host, type(post))

        def handle(self, job: Job[None]) -> None:  # type: ignore[override]  # in a thread
            type(self).given = self

    it = await built(
        db,
        Greet,
        first=providers.Resource(open_mailer, "opened"),
        book=providers.Resource(open_ledger),
        clocks=providers.Resource(Clocks),
        mailer=providers.Coroutine(connect),
        # One that becomes async because of what it draws from.
        post=providers.Factory(lambda _: Postman(), providers.Singleton(connect)),
    )
    assert it.all == ("opened", Ledger, FixedClock, "connected", Postman)


async def test_what_a_provider_raises_fails_the_run(db: DB) -> None:
    @job(name="greet")
    class Greet(Asked):
        def __init__(self, ledger: Ledger) -> None: ...

    def refuse() -> Ledger:
        raise LookupError("the ledger is closed")

    with pytest.raises(LookupError, match="the ledger is closed"):
        await built(db, Greet, ledger=providers.Factory(refuse))


async def test_an_override_takes_effect_on_the_next_run(db: DB) -> None:
    hosts: list[str] = []

    @job(name="greet")
    class Greet:
        def __init__(self, mailer: Mailer) -> None:
            hosts.append(mailer.host)

        async def handle(self, job: Job[None]) -> None: ...

    app = application(db, Greet, mailer=providers.Singleton(Mailer, "real"))
    async with lifespan(app):
        await perform_in(app, Greet)
        with app.mailer.override(providers.Object(Mailer("fake"))):
            await perform_in(app, Greet)
            with app.mailer.override(providers.Object(Mailer("faker"))):
                await perform_in(app, Greet)
            await perform_in(app, Greet)
        await perform_in(app, Greet)

        app.override_providers(mailer=Mailer("by the container"))
        await perform_in(app, Greet)
        app.reset_override()
        await perform_in(app, Greet)

        class Fakes(containers.DeclarativeContainer):
            mailer = providers.Factory(Mailer, "of another container")

        app.override(Fakes())
        await perform_in(app, Greet)
        app.reset_override()
        await perform_in(app, Greet)
    assert hosts == [
        "real",
        "fake",
        "faker",
        "fake",
        "real",
        "by the container",
        "real",
        "of another container",
        "real",
    ]


async def test_an_override_reaches_what_lies_behind_other_providers(db: DB) -> None:
    class Service:
        def __init__(self, mailer: Mailer) -> None:
            self.mailer = mailer

    @job(name="greet")
    class Greet(Asked):
        def __init__(self, service: Service) -> None:
            self.service = service

    mailer = providers.Factory(Mailer, "real")
    app = application(db, Greet, mailer=mailer, service=providers.Factory(Service, mailer))
    async with lifespan(app):
        with app.mailer.override(providers.Coroutine(connect)):
            await perform_in(app, Greet)
            assert Greet.given.service.mailer.host == "connected"
        await perform_in(app, Greet)
        assert Greet.given.service.mailer.host == "real"


async def test_an_override_made_before_the_start_is_not_a_mistake(db: DB) -> None:
    @job(name="greet")
    class Greet(Asked):
        def __init__(self, mailer: Mailer) -> None:
            self.mailer = mailer

    app = application(db, Greet, mailer=providers.AbstractFactory(Mailer))
    app.mailer.override(providers.Factory(SmtpMailer, "smtp"))
    await perform(app, Greet)
    assert Greet.given.mailer.host == "smtp"


async def test_a_provider_meant_to_be_injected_as_such_is(db: DB) -> None:
    class Letter:
        def __init__(self, text: str) -> None:
            self.text = text

    @job(name="greet")
    class Greet(Asked):
        def __init__(self, letters: Any, kinds: Any) -> None:
            self.all = (letters("a").text, kinds("letter", "b").text)

    it = await built(
        db,
        Greet,
        letters=providers.DelegatedFactory(Letter),
        kinds=providers.FactoryAggregate(letter=providers.Factory(Letter)),
    )
    assert it.all == ("a", "b")


def test_a_class_without_a_constructor_asks_for_nothing() -> None:
    @job(name="greet")
    class Greet(Asked): ...

    assert mistakes(Greet) == []


def test_every_parameter_without_a_provider_is_reported() -> None:
    @job(name="greet")
    class Greet(Asked):
        def __init__(
            self, bare, mailer: Mailer, retries: int, people: Repository[User], unseen: Absent
        ) -> None: ...

    name = Greet.__qualname__
    assert mistakes(Greet) == [
        f"{name} → bare → no provider",
        f"{name} → mailer: Mailer → no provider",
        f"{name} → retries: int → no provider",
        f"{name} → people: Repository[User] → no provider",
        f"{name} → unseen: Absent → no provider",
    ]


KINDS = ["positional", "either", "keyword"]
PARAMETERS = st.lists(st.tuples(st.sampled_from(KINDS), st.booleans(), st.booleans()), max_size=7)


@quick
@given(PARAMETERS)
async def test_whatever_the_signature_each_parameter_gets_its_own(
    drawn: list[tuple[str, bool, bool]],
) -> None:
    """Draw signatures: the kind of each parameter, whether it has a default and a provider."""
    drawn = sorted(drawn, key=lambda each: (KINDS.index(each[0]), each[0] != "keyword" and each[1]))
    has_default_seen = False
    written: list[str] = []
    expected: dict[str, str] = {}
    offered: dict[str, Any] = {}
    lacking: list[str] = []
    for place, (kind, may_default, is_offered) in enumerate(drawn):
        name = f"{kind}_{place}"
        has_default = may_default or (has_default_seen and kind != "keyword")
        has_default_seen |= has_default and kind != "keyword"
        if kind != "positional" and place and drawn[place - 1][0] == "positional":
            written.append("/")
        if kind == "keyword" and (not place or drawn[place - 1][0] != "keyword"):
            written.append("*")
        written.append(f"{name}='default of {name}'" if has_default else name)
        expected[name] = f"default of {name}"
        if is_offered:
            offered[name] = providers.Object(f"value of {name}")
            expected[name] = f"value of {name}"
        elif not has_default:
            lacking.append(name)
    if drawn and drawn[-1][0] == "positional":
        written.append("/")
    code = f"class Drawn:\n    def __init__(self, {', '.join(written)}): self.got = locals()"
    if not drawn:
        code = "class Drawn:\n    def __init__(self): self.got = locals()"
    names: dict[str, Any] = {}
    exec(code, names)  # signatures are what is drawn

    planner = BuildPlanner(ProviderIndex(application(None, **offered)))
    plan = planner.plan_class(names["Drawn"], is_singleton=False)
    assert planner.problems == [f"Drawn → {name} → no provider" for name in lacking]
    if not lacking:
        got = (await plan.build()).got
        assert {name: got[name] for name in expected} == expected
