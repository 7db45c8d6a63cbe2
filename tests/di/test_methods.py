"""Methods that are jobs: ordinary on an instance, a job on the class."""

from __future__ import annotations

import abc
import copy
import functools
import inspect
import pickle
import pydoc
from functools import partialmethod
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from dependency_injector import providers
from dependency_injector.wiring import Provide, inject

from monque_di import cron, job, job_controller, run_job
from monque_di.methods import ControllerJob, JobMethod
from monque_di.registry import Registry
from tests.support.applications import application, mistakes_in
from tests.support.samples import a_job

if TYPE_CHECKING:
    from monque_core import Job


class Ledger:
    def __init__(self) -> None:
        self.lines: list[str] = []


@job_controller("billing")
class Billing:
    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    @job(name="charge", concurrency=2)
    async def charge(self, job: Job[str]) -> str:
        """Charge a customer."""
        self.ledger.lines.append(job.data)
        return "charged"

    @cron("0 0 1 * *", name="close-month")
    def close_month(self, job: Job[None]) -> str:
        return "closed"

    @job(name="refund")
    async def refund(self, job: Job[str], ledger: Ledger = Provide["ledger"]) -> Ledger:
        return ledger

    async def helper(self) -> str:
        return "no job"


@job_controller("wholesale")
class Wholesale(Billing):
    @job(name="charge")
    async def charge(self, job: Job[str]) -> str:
        return f"wholesale {await super().charge(job)}"


async def test_on_an_instance_it_is_an_ordinary_bound_method() -> None:
    billing: Any = Billing(Ledger())
    assert await billing.charge(a_job(data="ada")) == "charged"
    assert billing.close_month(a_job()) == "closed"
    assert billing.ledger.lines == ["ada"]
    assert billing.charge == billing.charge
    assert billing.charge.__self__ is billing
    assert billing.charge.__name__ == "charge"
    assert billing.charge.__doc__ == "Charge a customer."
    assert str(inspect.signature(billing.charge)) == "(job: 'Job[str]') -> 'str'"
    assert inspect.ismethod(billing.charge)


def test_on_an_instance_it_is_as_async_as_it_was_written() -> None:
    billing = Billing(Ledger())
    assert inspect.iscoroutinefunction(billing.charge)
    assert not inspect.iscoroutinefunction(billing.close_month)


async def test_an_override_may_call_its_base() -> None:
    wholesale = Wholesale(Ledger())
    assert await wholesale.charge(a_job(data="ada")) == "wholesale charged"
    assert wholesale.ledger.lines == ["ada"]


async def test_it_may_be_called_as_a_function_of_the_class() -> None:
    billing = Billing(Ledger())
    assert await Billing.charge(billing, a_job(data="ada")) == "charged"
    assert billing.ledger.lines == ["ada"]


async def test_called_on_the_class_it_takes_whatever_the_method_takes() -> None:
    billing, other = Billing(Ledger()), Ledger()
    refund: Any = Billing.refund
    assert await refund(billing, a_job(), other) is other
    assert await refund(billing, job=a_job(), ledger=other) is other


def test_on_the_class_it_looks_like_the_method() -> None:
    charge: Any = Billing.charge
    assert charge.__name__ == "charge"
    assert charge.__qualname__ == "Billing.charge"
    assert charge.__module__ == __name__
    assert charge.__doc__ == "Charge a customer."
    assert str(inspect.signature(charge)) == "(self, job: 'Job[str]') -> 'str'"
    assert "Charge a customer." in pydoc.plain(pydoc.render_doc(Billing))
    assert isinstance(charge, ControllerJob)


def test_on_the_class_it_knows_its_full_name() -> None:
    assert Billing.charge.job_name == "billing.charge"
    assert Billing.close_month.job_name == "billing.close-month"
    assert Wholesale.charge.job_name == "wholesale.charge"
    assert Wholesale.close_month.job_name == "wholesale.close-month"


def test_without_a_controller_or_a_name_it_is_not_a_job() -> None:
    class Undecorated(Billing): ...

    @job_controller("unnamed")
    class Unnamed:
        @cron("* * * * *")
        async def tick(self, job: Job[None]) -> None: ...

    for method in (Undecorated.charge, Unnamed.tick):
        with pytest.raises(TypeError, match=r"is not a job: it needs a name, and its class needs"):
            _ = method.job_name


def test_a_name_without_a_namespace_stays_as_it_is() -> None:
    @job_controller()
    class Bare:
        @job(name="tick")
        async def tick(self, job: Job[None]) -> None: ...

    assert Bare.tick.job_name == "tick"


def test_a_controller_and_what_it_is_bound_to_can_be_pickled_and_copied() -> None:
    billing = Billing(Ledger())
    billing.ledger.lines.append("a")
    assert pickle.loads(pickle.dumps(Billing)) is Billing
    bound = pickle.loads(pickle.dumps(billing.charge))
    assert bound.__self__.ledger.lines == ["a"]
    assert copy.deepcopy(billing).ledger.lines == ["a"]


def test_a_job_of_a_controller_can_be_pickled_and_copied() -> None:
    for again in (
        pickle.loads(pickle.dumps(Billing.charge)),
        copy.copy(Billing.charge),
        copy.deepcopy(Billing.charge),
    ):
        assert again.job_name == "billing.charge"
        assert again.owner is Billing


async def test_a_mock_in_its_place_is_taken_away_again() -> None:
    with mock.patch.object(Billing, "charge", mock.AsyncMock(return_value="mocked")):
        assert await Billing(Ledger()).charge(a_job()) == "mocked"
    assert Billing.charge.job_name == "billing.charge"
    assert await Billing(Ledger()).charge(a_job(data="ada")) == "charged"


def test_it_can_be_abstract() -> None:
    class Base(abc.ABC):
        @job(name="charge")
        @abc.abstractmethod
        async def charge(self, job: Job[None]) -> None: ...

    with pytest.raises(TypeError, match="abstract"):
        Base()  # type: ignore[abstract]

    class Concrete(Base):
        @job(name="charge")
        async def charge(self, job: Job[None]) -> None: ...

    assert inspect.ismethod(Concrete().charge)


def test_a_controller_that_is_still_abstract_cannot_start() -> None:
    @job_controller("abstract")
    class Base(abc.ABC):
        @job(name="charge")
        async def charge(self, job: Job[None]) -> None:
            self.amount()

        @abc.abstractmethod
        def amount(self) -> int: ...

    problems = mistakes_in(application(None), Base)
    assert len(problems) == 1
    assert "abstract" in problems[0]
    assert "amount" in problems[0]


async def test_the_other_methods_are_left_alone() -> None:
    assert await Billing(Ledger()).helper() == "no job"
    assert inspect.isfunction(Billing.helper)


def test_functools_sees_a_method() -> None:
    class Bound(Billing):
        refund_ada = partialmethod(Billing.refund.function, ledger=None)

    assert functools.partial(Bound(Ledger()).charge, a_job()).func.__name__ == "charge"
    assert callable(Bound(Ledger()).refund_ada)


def test_the_marks_are_kept_whatever_the_order() -> None:
    @job_controller("both")
    class Both:
        @job(name="tick")
        @cron("1 * * * *", unique_key="below")
        @cron("2 * * * *", unique_key="last")
        async def job_first(self, job: Job[None]) -> None: ...

        @cron("1 * * * *", unique_key="above")
        @job(name="tock")
        async def cron_first(self, job: Job[None]) -> None: ...

    one, two = sorted(Registry([Both]).jobs, key=lambda declared: declared.name)
    assert (one.name, [mark.unique_key for mark in one.crons]) == ("both.tick", ["below", "last"])
    assert (two.name, [mark.unique_key for mark in two.crons]) == ("both.tock", ["above"])


async def test_injected_methods_are_injected_and_stay_async() -> None:
    @job_controller("injected")
    class Injected:
        @job(name="one")
        @inject
        async def one(self, job: Job[None], ledger: Ledger = Provide["ledger"]) -> Ledger:
            return ledger

        @job(name="two")
        @inject
        def two(self, job: Job[None], *, ledger: Ledger = Provide["ledger"]) -> Ledger:
            return ledger

    app = application(None, ledger=providers.Singleton(Ledger))
    assert {declared.name: declared.is_async for declared in Registry([Injected]).jobs} == {
        "injected.one": True,
        "injected.two": False,
    }
    assert await run_job(app, Injected.one) is app.ledger()
    assert await run_job(app, Injected.two) is app.ledger()


class Later:
    """A handler that is an object, not a function."""

    async def __call__(self, job: Job[None]) -> str:
        return "later"


async def test_a_handler_may_be_an_object() -> None:
    @job(name="object")
    class Objective:
        handle = Later()

    app = application(None)
    assert mistakes_in(app, Objective) == []
    assert Registry([Objective]).jobs[0].is_async
    assert await run_job(app, Objective) == "later"


async def test_a_handler_may_be_any_kind_of_method() -> None:
    @job(name="partial")
    class Partial:
        async def _handle(self, job: Job[None], word: str) -> str:
            return word

        handle = partialmethod(_handle, word="part")

    @job(name="static")
    class Static:
        @staticmethod
        async def handle(job: Job[None]) -> str:
            return f"static {job.name}"

    @job(name="class")
    class Classy:
        @classmethod
        async def handle(cls, job: Job[None]) -> str:
            return f"{cls.__name__} {job.name}"

    @job(name="returned")
    class Returned:
        def handle(self, job: Job[None]) -> Any:
            return Later()(job)

    app = application(None)
    assert mistakes_in(app, Partial, Static, Classy, Returned) == []
    targets = {Partial: "part", Static: "static static", Classy: "Classy class", Returned: "later"}
    for target, expected in targets.items():
        assert await run_job(app, target) == expected


def test_a_decorator_on_top_does_not_lose_the_job_in_silence() -> None:
    def traced(function: Any) -> Any:
        @functools.wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            return await function(*args, **kwargs)

        return wrapper

    @job_controller("traced")
    class Traced:
        @traced
        @job(name="charge")
        async def charge(self, job: Job[None]) -> None: ...

        @job(name="refund")
        async def refund(self, job: Job[None]) -> None: ...

    problems = Registry([Traced]).problems
    assert len(problems) == 1
    assert f"{Traced.__qualname__}.charge" in problems[0]


@pytest.mark.parametrize("kind", [classmethod, staticmethod])
def test_a_kind_of_method_on_top_does_not_lose_the_job_in_silence(kind: Any) -> None:
    def charge(self: object, job: Job[None]) -> None: ...

    charge.__qualname__ = "Family.charge"

    class Family:
        lost = kind(job(name="charge")(charge))

        @job(name="refund")
        async def refund(self, job: Job[None]) -> None: ...

    problems = Registry([job_controller("family")(Family)]).problems
    assert len(problems) == 1
    assert "Family.lost" in problems[0]


def test_a_second_name_for_one_method_is_a_second_job_of_its_name() -> None:
    @job_controller("alias")
    class Alias:
        @job(name="charge")
        async def charge(self, job: Job[None]) -> None: ...

        collect = charge

    assert isinstance(vars(Alias)["collect"], JobMethod)
    (problem,) = Registry([Alias]).problems
    assert problem.startswith("'alias.charge' → 2 jobs have this name: ")
