"""What the decorators do to a class, and what they refuse."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monque_di import JobHandler, cron, job, job_controller
from monque_di.metadata import ClassMetadata, CronMetadata, JobMetadata
from monque_di.methods import JobMethod
from monque_di.registry import Registry
from tests.support.samples import a_job

if TYPE_CHECKING:
    from monque_core import Job

quick = settings(max_examples=20)


class Mailer:
    def __init__(self) -> None:
        self.sent: list[str] = []


@job(name="send-email", concurrency=10)
class SendEmail(JobHandler[str]):
    """Print a greeting."""

    def __init__(self, mailer: Mailer) -> None:
        self.mailer = mailer

    async def handle(self, job: Job[str]) -> str:
        self.mailer.sent.append(job.data)
        return "sent"


async def test_a_decorated_class_is_tested_like_any_other() -> None:
    mailer = Mailer()
    assert await SendEmail(mailer).handle(a_job(data="ada@example.com")) == "sent"
    assert mailer.sent == ["ada@example.com"]


def test_the_name_of_a_job_needs_no_keyword() -> None:
    @job("send-letter", concurrency=2)
    class SendLetter:
        async def handle(self, job: Job[None]) -> None: ...

    (declared,) = Registry([SendLetter]).jobs
    assert (declared.name, declared.metadata and declared.metadata.concurrency) == (
        "send-letter",
        2,
    )


def test_a_decorator_gives_back_the_very_class() -> None:
    class Plain:
        async def handle(self, job: Job[None]) -> None: ...

    decorated = job(name="plain")(cron("* * * * *")(Plain))
    assert decorated is Plain
    assert job_controller("family")(decorated) is Plain


def test_nothing_that_identifies_a_class_is_changed() -> None:
    assert SendEmail.__name__ == "SendEmail"
    assert SendEmail.__module__ == __name__
    assert SendEmail.__doc__ == "Print a greeting."
    assert SendEmail.__mro__ == (SendEmail, *JobHandler.__mro__)


def test_every_option_is_written_down() -> None:
    @job(name="all", concurrency=2, timeout=timedelta(seconds=3), replace=True, scope="singleton")
    @cron(
        "0 9 * * *",
        name="all",
        data={"kind": "sales"},
        timezone="Europe/Berlin",
        unique_key="daily",
        priority=4,
    )
    class Everything: ...

    assert ClassMetadata.of(Everything) == ClassMetadata(
        job=JobMetadata(
            name="all",
            concurrency=2,
            timeout=timedelta(seconds=3),
            replace=True,
            scope="singleton",
        ),
        crons=(
            CronMetadata(
                expression="0 9 * * *",
                name="all",
                data={"kind": "sales"},
                timezone="Europe/Berlin",
                unique_key="daily",
                priority=4,
            ),
        ),
    )


@quick
@given(st.permutations(["job", "first", "second"]))
def test_the_order_of_decorators_counts_only_among_crons(order: list[str]) -> None:
    decorators: dict[str, Any] = {
        "job": job(name="any"),
        "first": cron("1 * * * *", unique_key="first"),
        "second": cron("2 * * * *", unique_key="second"),
    }

    class Any_: ...  # noqa: N801

    for name in reversed(order):
        decorators[name](Any_)
    marks = ClassMetadata.of(Any_)
    assert marks is not None
    assert marks.job is not None
    assert [mark.unique_key for mark in marks.crons] == [name for name in order if name != "job"]


def test_a_decorated_class_may_be_made_a_dataclass_with_slots() -> None:
    # Such a dataclass is another class than the one that was decorated.
    @dataclass(slots=True)
    @job(name="slotted")
    class Slotted:
        mailer: Mailer

        async def handle(self, job: Job[None]) -> None: ...

    (declared,) = Registry([Slotted]).jobs
    assert declared.owner is Slotted
    assert hasattr(Slotted, "enqueue")


def test_a_subclass_is_not_a_job_by_its_base() -> None:
    class Louder(SendEmail): ...

    assert ClassMetadata.of(Louder) is None


def test_a_subclass_has_its_own_name() -> None:
    @job(name="louder")
    class Louder(SendEmail): ...

    names = [declared.name for declared in Registry([SendEmail, Louder]).jobs]
    assert names == ["send-email", "louder"]


def test_a_class_has_one_job_and_one_controller() -> None:
    with pytest.raises(TypeError, match=r"Twice has two @job decorators: remove one"):

        @job(name="one")
        @job(name="two")
        class Twice: ...

    with pytest.raises(TypeError, match=r"Twin has two @job_controller"):

        @job_controller("one")
        @job_controller("two")
        class Twin: ...


def test_a_method_has_one_job() -> None:
    with pytest.raises(TypeError, match=r"Billing\.charge has two @job decorators: remove one"):

        class Billing:
            @job(name="one")
            @job(name="two")
            async def charge(self, job: Job[None]) -> None: ...


@pytest.mark.parametrize("decorate", [job, cron])
def test_parentheses_are_not_optional(decorate: Any) -> None:
    with pytest.raises(TypeError, match=rf'write @{decorate.__name__}\("'):

        @decorate
        class Bare: ...

    with pytest.raises(TypeError, match=rf'write @{decorate.__name__}\("'):

        @decorate  # type: ignore[untyped-decorator]  # it is both in turn
        async def handle(self: object, job: Job[None]) -> None: ...


def test_a_controller_without_parentheses_is_reported_how_to_write_it() -> None:
    with pytest.raises(TypeError, match=r'write @job_controller\("billing"\)'):

        @job_controller  # type: ignore[arg-type]  # that is the point
        class Bare: ...


@pytest.mark.parametrize("scope", ["request", "Singleton", "", 5])
def test_an_unknown_scope_is_refused_where_it_is_written(scope: Any) -> None:
    with pytest.raises(ValueError, match='it must be "run" or "singleton"'):
        job(name="any", scope=scope)
    with pytest.raises(ValueError, match='it must be "run" or "singleton"'):
        job_controller("any", scope=scope)


@pytest.mark.parametrize("kind", [classmethod, staticmethod])
@pytest.mark.parametrize("decorate", [job(name="any"), cron("* * * * *", name="any")])
def test_a_method_without_an_instance_is_refused(kind: Any, decorate: Any) -> None:
    def charge(cls: object, job: Job[None]) -> None: ...

    with pytest.raises(TypeError, match=rf"is a {kind.__name__}: a job must be an instance method"):
        decorate(kind(charge))


def standalone(job: Job[None]) -> None: ...


@pytest.mark.parametrize("target", [standalone, lambda _: None])
def test_a_function_is_sent_to_the_core(target: Any) -> None:
    with pytest.raises(TypeError, match=r"register a function with Monque\.worker"):
        job(name="any")(target)


@pytest.mark.parametrize("target", [None, 5, "handle", object()])
def test_what_is_neither_class_nor_method_is_refused(target: Any) -> None:
    with pytest.raises(TypeError, match="decorate a class or a method, not"):
        cron("* * * * *")(target)


def test_a_method_may_be_decorated_by_others_below() -> None:
    def unwrapped(function: Any) -> Any:
        async def wrapper(self: object, job: Job[None]) -> Any:
            return await function(self, job)

        return wrapper

    @job_controller("billing")
    class Billing:
        @job(name="charge")
        @unwrapped
        async def charge(self, job: Job[None]) -> str:
            return "charged"

    assert isinstance(vars(Billing)["charge"], JobMethod)
    registry = Registry([Billing])
    assert registry.problems == []
    assert [declared.name for declared in registry.jobs] == ["billing.charge"]
