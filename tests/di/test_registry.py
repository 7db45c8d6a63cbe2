"""Which jobs classes declare, and what can be wrong with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monque_di import cron, job, job_controller
from monque_di.registry import Registry
from tests.support.applications import application, perform
from tests.support.stored import stored_jobs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job

    DB = AsyncDatabase[dict[str, Any]]

quick = settings(max_examples=100)


class Base:
    async def handle(self, job: Job[None]) -> None: ...


@job_controller("billing")
class Billing:
    @job(name="charge")
    async def charge(self, job: Job[None]) -> str:
        return "charged"

    @cron("0 0 1 * *", name="close-month")
    def close_month(self, job: Job[None]) -> None: ...

    @job(name="remind")
    @cron("0 9 * * 1", unique_key="monday", data={"tone": "soft"})
    @cron("0 9 * * 5", unique_key="friday", data={"tone": "stern"}, timezone="Europe/Berlin")
    async def remind(self, job: Job[dict[str, str]]) -> None: ...

    async def audit(self) -> None: ...


def names(*classes: type) -> list[str]:
    registry = Registry(classes)
    assert registry.problems == []
    return sorted(declared.name for declared in registry.jobs)


def problem(*classes: type) -> str:
    (found,) = Registry(classes).problems
    return found


def test_a_controller_declares_a_job_for_each_marked_method() -> None:
    assert names(Billing) == ["billing.charge", "billing.close-month", "billing.remind"]
    by_name = {declared.name: declared for declared in Registry([Billing]).jobs}
    assert by_name["billing.charge"].is_async
    assert not by_name["billing.close-month"].is_async
    assert [mark.unique_key for mark in by_name["billing.remind"].crons] == ["monday", "friday"]


async def test_the_jobs_and_crons_of_a_controller_are_there_under_its_namespace(db: DB) -> None:
    app = application(db, Billing)
    done = await perform(app, Billing.charge, Billing.close_month, Billing.remind)
    assert [job.name for job in done] == ["billing.charge", "billing.close-month", "billing.remind"]
    schedules = await stored_jobs(db, repeatInterval={"$exists": True})
    assert {
        (schedule.name, schedule.unique_key, schedule.repeat_interval, schedule.timezone)
        for schedule in schedules
    } == {
        ("billing.close-month", "billing.close-month", "0 0 1 * *", "UTC"),
        ("billing.remind", "monday", "0 9 * * 1", "UTC"),
        ("billing.remind", "friday", "0 9 * * 5", "Europe/Berlin"),
    }
    assert [schedule.data for schedule in schedules if schedule.unique_key == "friday"] == [
        {"tone": "stern"}
    ]


def test_a_controller_inherits_the_jobs_of_its_base_under_its_own_namespace() -> None:
    @job_controller("wholesale")
    class Wholesale(Billing):
        @job(name="deliver")
        async def deliver(self, job: Job[None]) -> None: ...

    assert names(Wholesale) == [
        "wholesale.charge",
        "wholesale.close-month",
        "wholesale.deliver",
        "wholesale.remind",
    ]
    assert len(names(Billing, Wholesale)) == 7


def test_a_mixin_brings_its_jobs_without_being_a_controller() -> None:
    class Audited:
        @job(name="audit")
        async def audit_all(self, job: Job[None]) -> None: ...

    @job_controller("stock")
    class Stock(Audited):
        @job(name="count")
        async def count(self, job: Job[None]) -> None: ...

    assert names(Stock) == ["stock.audit", "stock.count"]


def test_an_override_without_a_mark_is_not_a_job() -> None:
    @job_controller("quiet")
    class Quiet(Billing):
        async def remind(self, job: Job[dict[str, str]]) -> None: ...

        close_month = None  # type: ignore[assignment]  # that is the point

    assert names(Quiet) == ["quiet.charge"]


def test_an_override_with_a_mark_of_its_own_takes_the_place() -> None:
    @job_controller("other")
    class Other(Billing):
        @job(name="collect", concurrency=3)
        def charge(self, job: Job[None]) -> str:  # type: ignore[override]  # another kind
            return "collected"

    by_name = {declared.name: declared for declared in Registry([Other]).jobs}
    assert sorted(by_name) == ["other.close-month", "other.collect", "other.remind"]
    assert not by_name["other.collect"].is_async


async def test_an_inherited_job_runs_on_the_class_that_inherits_it(db: DB) -> None:
    seen: list[tuple[str, str]] = []

    class Shop:
        @job(name="open")
        async def open_shop(self, job: Job[None]) -> None:
            seen.append((type(self).__name__, job.name))

    @job_controller("north")
    class North(Shop): ...

    @job_controller("south")
    class South(Shop): ...

    await perform(application(db, North, South), North.open_shop, South.open_shop)
    assert sorted(seen) == [("North", "north.open"), ("South", "south.open")]


def test_two_jobs_of_one_name_are_reported_with_their_places() -> None:
    @job(name="same")
    class One(Base): ...

    @job(name="same")
    class Two(Base): ...

    @job_controller()
    class Three:
        @job(name="same")
        async def run(self, job: Job[None]) -> None: ...

    assert problem(One, Two, Three) == (
        "'same' → 3 jobs have this name: "
        f"{__name__}.{One.__qualname__}.handle, {__name__}.{Two.__qualname__}.handle, "
        f"{__name__}.{Three.__qualname__}.run"
    )


def test_a_namespace_may_make_the_same_name() -> None:
    @job(name="billing.charge")
    class Charge(Base): ...

    assert problem(Billing, Charge).startswith("'billing.charge' → 2 jobs have this name")


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
async def test_one_that_replaces_takes_the_place_of_its_duplicate_name(
    db: DB, order: list[int]
) -> None:
    seen: list[str] = []

    @job(name="same")
    @cron("0 0 1 1 *")
    class Original:
        async def handle(self, job: Job[None]) -> None:
            seen.append("original")

    @job(name="same", replace=True)
    class Substitute:
        async def handle(self, job: Job[None]) -> None:
            seen.append("substitute")

    both = [Original, Substitute]
    await perform(application(db, *(both[place] for place in order)), Substitute)
    assert seen == ["substitute"]
    # What it takes the place of is gone with its schedule.
    assert await stored_jobs(db, repeatInterval={"$exists": True}) == []


def test_two_that_replace_are_one_too_many() -> None:
    @job(name="same", replace=True)
    class One(Base): ...

    @job(name="same", replace=True)
    class Two(Base): ...

    assert problem(One, Two).startswith("'same' → 2 jobs have this name")
    assert names(One) == ["same"]


def test_a_class_without_a_handler_is_reported() -> None:
    @job(name="empty")
    class Empty: ...

    assert (
        problem(Empty) == f"{Empty.__qualname__} → no handler: it needs a method handle(self, job)"
    )

    @job(name="broken")
    class Broken:
        handle = "text"

    assert "no handler" in problem(Broken)

    @job_controller("nothing")
    class Nothing: ...

    assert problem(Nothing) == (
        f"{Nothing.__qualname__} → no handler: none of its methods has @job or @cron"
    )


def test_a_handler_may_be_inherited() -> None:
    @job(name="inherited")
    class Inherited(Base): ...

    assert names(Inherited) == ["inherited"]


class Obliging:
    """An object with every attribute, as proxies have; it gives up when asked too often."""

    def __init__(self, asked: int = 0) -> None:
        self.asked = asked

    def __getattr__(self, name: str) -> Obliging:
        if self.asked > 10_000:
            raise AssertionError(f"asked for {name} for ever")
        return Obliging(self.asked + 1)


def test_an_attribute_that_has_every_attribute_is_looked_at_to_an_end() -> None:
    @job_controller("proxy")
    class Proxied:
        proxy = Obliging()

        @job(name="run")
        async def run(self, job: Job[None]) -> None: ...

    assert names(Proxied) == ["proxy.run"]


def test_jobs_among_the_methods_want_a_controller() -> None:
    @job(name="confused")
    class Confused(Base):
        @job(name="inner")
        async def inner(self, job: Job[None]) -> None: ...

    assert problem(Confused) == (
        f"{Confused.__qualname__} → has methods with @job or @cron: add @job_controller to the "
        "class"
    )


def test_a_controller_is_not_a_job_itself() -> None:
    @job(name="both")
    @job_controller("both")
    class Both:
        @job(name="run")
        async def run(self, job: Job[None]) -> None: ...

    assert (
        problem(Both) == f"{Both.__qualname__} → is a controller: put @job and @cron on its methods"
    )


def test_the_scope_of_a_controller_is_reported_by_the_controller() -> None:
    @job_controller("scoped")
    class Scoped:
        @job(name="run", scope="singleton")
        async def run(self, job: Job[None]) -> None: ...

    assert (
        problem(Scoped)
        == f"{Scoped.__qualname__}.run → scope= belongs in @job_controller of its class"
    )


def test_a_job_without_a_name_or_with_two_is_reported() -> None:
    @cron("* * * * *")
    class Unnamed(Base): ...

    @job(name="one")
    @cron("* * * * *", name="two")
    class Twice(Base): ...

    @cron("* * * * *", name="named")
    class Named(Base): ...

    assert problem(Unnamed) == f"{Unnamed.__qualname__}.handle → has no name: name it in one @job"
    assert problem(Twice) == (
        f"{Twice.__qualname__}.handle → has several names, one, two: name it in one @job"
    )
    assert names(Named) == ["named"]


@pytest.mark.parametrize("name", [5, None, b"bytes", ["list"]])
def test_a_name_that_is_not_a_text_is_refused_where_it_is_written(name: Any) -> None:
    with pytest.raises(TypeError, match="name"):
        job(name=name)
    if name is not None:
        with pytest.raises(TypeError, match="name"):
            cron("* * * * *", name=name)


def test_generators_never_run_and_are_reported() -> None:
    @job(name="plain")
    class Plain:
        def handle(self, job: Job[None]) -> Iterator[int]:
            yield 1

    @job_controller("family")
    class Family:
        @job(name="async")
        async def run(self, job: Job[None]) -> AsyncIterator[int]:
            yield 1

    assert Registry([Plain, Family]).problems == [
        f"{Plain.__qualname__}.handle → is a generator function, whose body would never run",
        f"{Family.__qualname__}.run → is a generator function, whose body would never run",
    ]


class Signatures:
    async def none(self) -> None: ...
    async def bare() -> None: ...  # type: ignore[misc]
    async def two(self, job: Job[None], other: int) -> None: ...
    async def keyword(self, *, job: Job[None]) -> None: ...
    async def extra(self, job: Job[None], *, more: int) -> None: ...


@pytest.mark.parametrize("method", ["none", "bare", "two", "keyword", "extra"])
def test_a_handler_that_cannot_be_called_with_a_job_is_reported(method: str) -> None:
    @job(name="wrong")
    class Wrong:
        handle = vars(Signatures)[method]

    assert problem(Wrong).startswith(f"{Wrong.__qualname__}.handle(")
    assert "→ cannot be called with a job: " in problem(Wrong)


class Acceptable:
    async def plain(self, job: Job[None]) -> None: ...
    async def renamed(self, task: Job[None], /) -> None: ...
    async def defaulted(self, job: Job[None], more: int = 1, *, less: int = 0) -> None: ...
    async def variadic(self, *args: Any, **kwargs: Any) -> None: ...
    async def all_variadic(*args: Any) -> None: ...

    @staticmethod
    async def static(job: Job[None]) -> None: ...

    @classmethod
    async def classy(cls, job: Job[None]) -> None: ...


@pytest.mark.parametrize("method", [name for name in vars(Acceptable) if not name.startswith("_")])
def test_a_handler_that_can_be_called_with_a_job_will_do(method: str) -> None:
    @job(name="right")
    class Right:
        handle = vars(Acceptable)[method]

    assert names(Right) == ["right"]


@pytest.mark.parametrize(
    ("expression", "timezone", "told"),
    [
        ("not a cron", "UTC", "not a cron"),
        ("61 * * * *", "UTC", "61"),
        ("0 0 31 2 *", "UTC", "0 0 31 2 *"),
        ("", "UTC", ""),
        ("0 9 * * *", "Europe/Berlim", "did you mean 'Europe/Berlin'"),
        ("0 9 * * *", "", ""),
        (5, "UTC", "5"),
        (None, "UTC", "None"),
        ("0 9 * * *", None, "None"),
        ("0 9 * * *", 5, "5"),
    ],
)
def test_a_cron_that_does_not_parse_is_reported_with_its_handler(
    expression: Any, timezone: Any, told: str
) -> None:
    def declare() -> type:
        @job(name="tick")
        @cron(expression, timezone=timezone)
        class Tick(Base): ...

        return Tick

    if isinstance(expression, str):
        found = problem(declare())
        assert found.startswith(f"{declare().__qualname__}.handle → ")
        assert told in found
    else:
        with pytest.raises(TypeError, match=str(expression)):
            declare()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"priority": -1}, "priority=-1"),
        ({"priority": "high"}, "priority='high'"),
        ({"unique_key": "x" * 2000}, "unique_key="),
        ({"unique_key": 5}, "unique_key=5"),
        ({"data": object()}, "data"),
    ],
)
async def test_a_schedule_that_cannot_be_stored_is_reported_with_its_handler(
    db: DB, options: dict[str, Any], told: str
) -> None:
    @job(name="tick")
    @cron("0 9 * * *", **options)
    class Tick(Base): ...

    with pytest.raises(Exception, match=rf"Tick\.handle → .*{told}"):
        await perform(application(db, Tick), Tick)


def test_two_crons_of_one_job_need_two_keys() -> None:
    @job(name="tick")
    @cron("0 9 * * *")
    @cron("0 10 * * *")
    class Tick(Base): ...

    assert problem(Tick) == (
        f"{Tick.__qualname__}.handle → two @cron have the key 'tick': set a unique_key"
    )


def test_two_jobs_may_have_one_key_as_keys_are_a_jobs_own() -> None:
    @job(name="one")
    @cron("0 9 * * *", unique_key="daily")
    class One(Base): ...

    @job(name="two")
    @cron("0 9 * * *", unique_key="daily")
    class Two(Base): ...

    assert names(One, Two) == ["one", "two"]


TEXT = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=20)


@quick
@given(st.lists(TEXT, min_size=1, max_size=6), st.none() | TEXT)
def test_names_are_the_namespace_and_the_name_and_collide_only_with_themselves(
    drawn: list[str], namespace: str | None
) -> None:
    async def run(self: object, job: Job[None]) -> None: ...

    run.__qualname__ = "Drawn.run"
    methods = {f"m{place}": job(name=name)(run) for place, name in enumerate(drawn)}
    target: Any = job_controller(namespace)(type("Drawn", (), methods))
    registry = Registry([target])

    expected = [name if namespace is None else f"{namespace}.{name}" for name in drawn]
    assert [declared.name for declared in registry.jobs] == list(dict.fromkeys(expected))
    told = [told.split(" → ")[0] for told in registry.problems]
    twice = {name for name in expected if expected.count(name) > 1}
    assert sorted(told) == sorted(repr(name) for name in twice)
    for attribute, name in zip(methods, expected, strict=True):
        assert getattr(target, attribute).job_name == name
