"""An application that is wrong in every way learns all of it at once, and nothing is left."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from dependency_injector import containers, providers
from dependency_injector.wiring import Closing, Provide

from monque_core import Job, Monque, MonqueError
from monque_di import (
    MonqueContainer,
    MonqueService,
    RunScoped,
    WiringError,
    cron,
    job,
    job_controller,
    lifespan,
)
from tests.support.applications import QUIET, application, mistakes_in, perform
from tests.support.leftovers import Leftovers
from tests.support.polling import NO_POLLS
from tests.support.stored import stored_jobs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from pymongo.asynchronous.database import AsyncDatabase

    from tests.conftest import AnyDatabase

    DB = AsyncDatabase[dict[str, Any]]


class Session: ...


class Mailer: ...


class Service:
    def __init__(self, mailer: Mailer, url: str) -> None: ...


@contextmanager
def open_session() -> Iterator[Session]:
    yield Session()


@job(name="right")
class Right:
    async def handle(self, job: Job[None]) -> None:
        raise AssertionError("it is never claimed")


@job(name="right")
class Namesake(Right): ...


@job(name="mail")
class Mail(Right):
    def __init__(self, mailer: Mailer, backup: Session, greeting: str) -> None: ...


@job(name="serve")
class Serve(Right):
    def __init__(self, service: Service) -> None: ...


@job(name="keep", scope="singleton")
class Keep(Right):
    def __init__(self, session: Session) -> None: ...


@job(name="mark")
class Mark(Right):
    def __init__(
        self,
        one: Mailer = Provide["nowhere"],
        two: Mailer = Closing[Provide["service"]],
    ) -> None: ...


@job(name="empty")
class Empty: ...


@cron("0 9 * * *")
class Nameless(Right): ...


@job(name="spaced out", concurrency=-1)
class Spaced(Right): ...


@job(name="tick")
@cron("never ever", unique_key="one")
@cron("0 9 * * *", timezone="Mars/Olympus", unique_key="two")
@cron("0 9 * * *", unique_key="two")
class Tick(Right): ...


@job_controller("family")
class Family:
    @job(name="generate")
    async def generate(self, job: Job[None]) -> AsyncIterator[int]:
        yield 1

    @job(name="wrong")  # type: ignore[arg-type]  # that is the point
    async def wrong(self) -> None: ...

    @job(name="scoped", scope="singleton")
    async def scoped(self, job: Job[None]) -> None: ...


class Undecorated(Right): ...


WRONG = [
    Right,
    Namesake,
    Mail,
    Serve,
    Keep,
    Mark,
    Empty,
    Nameless,
    Spaced,
    Tick,
    Family,
    Undecorated,
    "text",
]

TOLD = [
    "jobs → Undecorated is not decorated, only its base Right is",
    "jobs → 'text' is not a class",
    "packages → no_such_package cannot be imported: ModuleNotFoundError",
    "'right' → 2 jobs have this name: {module}.Right.handle, {module}.Namesake.handle",
    "Mail → mailer: Mailer → no provider",
    "Mail → backup: Session → 2 providers: session (Session), spare (Session)",
    "Mail → greeting: str → no provider",
    "Serve → service: Service → mailer: Mailer → missing in the arguments of its Factory",
    "Serve → service: Service → url: str → missing in the arguments of its Factory",
    "Keep → session: Session → is run-scoped, but the singleton Keep outlives the run",
    "Mark → one: Mailer → Provide['nowhere'] → no provider",
    "Mark → two: Mailer → Closing would close the resource before the job runs",
    "Empty → no handler: it needs a method handle(self, job)",
    "Nameless.handle → has no name",
    "Spaced.handle → ",
    "Tick.handle → ",
    "Tick.handle → ",
    "Tick.handle → two @cron have the key 'two'",
    "Family.generate → is a generator function, whose body would never run",
    "Family.wrong(self) -> 'None' → cannot be called with a job",
    "Family.scoped → scope= belongs in @job_controller of its class",
]


def wrong_application(db: object) -> Any:
    class Wrong(containers.DeclarativeContainer):
        session = RunScoped(open_session)
        spare = providers.Factory(Session)
        service = providers.Factory(Service)
        monque = providers.Container(
            MonqueContainer,
            connection=providers.Object(db),
            options=providers.Object(QUIET),
            jobs=WRONG,
            packages=["no_such_package"],
        )

    return Wrong()


async def refusal_of(app: Any) -> WiringError:
    with pytest.raises(WiringError) as caught:
        async with lifespan(app):
            raise AssertionError("it has started")
    return caught.value


async def test_every_mistake_is_in_one_error(db: DB) -> None:
    problems = list((await refusal_of(wrong_application(db))).problems)
    for told in TOLD:
        expected = told.format(module=__name__)
        found = next((problem for problem in problems if problem.startswith(expected)), None)
        assert found is not None, f"{expected!r} is not among {problems}"
        problems.remove(found)
    assert problems == []


async def test_the_error_reads_as_a_list(db: DB) -> None:
    error = await refusal_of(wrong_application(db))
    first, *rest = str(error).splitlines()
    assert first == f"Monque cannot start, {len(error.problems)} problems:"
    assert rest == [f"  - {problem}" for problem in error.problems]
    assert len(error.problems) == len(TOLD)


async def test_a_single_mistake_is_one(db: DB) -> None:
    error = await refusal_of(application(db, Empty))
    assert str(error) == (
        "Monque cannot start, 1 problem:\n"
        "  - Empty → no handler: it needs a method handle(self, job)"
    )


async def test_a_bad_connection_and_bad_options_are_reported_with_the_rest(db: DB) -> None:
    for option in ({"worker_concurrency": 0}, {"worker_concurency": 5}, {"enabled": "yes"}):
        app = application(db, Empty)
        app.monque.options.override(providers.Object(option))
        (name,) = option
        error = await refusal_of(app)
        assert any(name in problem for problem in error.problems)
        assert any("Empty → no handler" in problem for problem in error.problems)
    error = await refusal_of(application(5, Empty))
    assert any("not a connection" in problem for problem in error.problems)
    assert any("Empty → no handler" in problem for problem in error.problems)


async def test_no_job_is_claimed_and_no_schedule_is_stored(any_db: AnyDatabase, db: DB) -> None:
    producer = Monque(db, **NO_POLLS)
    waiting = await producer.enqueue("right", None)
    await refusal_of(wrong_application(any_db))
    assert await stored_jobs(db) == [waiting]


async def test_nothing_is_left_running(any_db: AnyDatabase) -> None:
    leftovers = Leftovers()
    tasks, threads = asyncio.all_tasks(), set(threading.enumerate())
    app = wrong_application(any_db)
    for _ in range(3):
        await refusal_of(app)
    assert leftovers.tasks == []
    assert leftovers.threads == []
    assert asyncio.all_tasks() <= tasks
    new = {thread.name for thread in set(threading.enumerate()) - threads}
    assert not {name for name in new if "pymongo" not in name.lower()}
    service: MonqueService = app.monque.service()
    assert not service.is_healthy
    with pytest.raises(MonqueError, match="Monque is not started"):
        _ = service.monque


async def test_the_resources_of_the_application_are_shut_down_again(db: DB) -> None:
    events: list[str] = []

    def open_pool() -> Iterator[str]:
        events.append("opened")
        yield "pool"
        events.append("closed")

    async def open_later() -> AsyncIterator[str]:
        events.append("opened later")
        yield "pool"
        events.append("closed later")

    app = application(
        db, Empty, pool=providers.Resource(open_pool), later=providers.Resource(open_later)
    )
    await refusal_of(app)
    assert sorted(events) == ["closed", "closed later", "opened", "opened later"]


async def test_bare_resources_fail_in_the_same_way(db: DB) -> None:
    app = wrong_application(db)
    with pytest.raises(WiringError) as caught:
        await app.init_resources()
    assert len(caught.value.problems) == len(TOLD)
    await app.shutdown_resources()


async def test_what_was_wrong_can_be_put_right_and_started(db: DB) -> None:
    done: list[str] = []

    @job(name="mended")
    class Mended:
        def __init__(self, greeting: str) -> None:
            self.greeting = greeting

        async def handle(self, job: Job[None]) -> None:
            done.append(self.greeting)

    app = application(db, Mended)
    error = await refusal_of(app)
    assert error.problems == (f"{Mended.__qualname__} → greeting: str → no provider",)
    app.set_provider("greeting", providers.Object("hello"))
    await perform(app, Mended)
    assert done == ["hello"]


async def test_a_singleton_that_cannot_be_built_fails_the_start(db: DB) -> None:
    @job(name="once", scope="singleton")
    class Once(Right):
        def __init__(self) -> None:
            raise ConnectionError("no such host")

    leftovers = Leftovers()
    app = application(db, Once)
    with pytest.raises(ConnectionError, match="no such host"):
        async with lifespan(app):
            raise AssertionError("it has started")
    assert leftovers.tasks == []
    assert not app.monque.service().is_healthy
    assert await stored_jobs(db) == []


async def test_a_producer_is_not_asked_for_what_only_workers_need(db: DB) -> None:
    app = wrong_application(db)
    app.monque.options.override(providers.Object({"process_jobs": False}))
    async with lifespan(app):
        await app.monque.service().enqueue("right", None)
    assert [job.name for job in await stored_jobs(db)] == ["right"]


def test_the_error_is_one_of_monque() -> None:
    error = WiringError(iter(["one", "two"]))
    assert isinstance(error, MonqueError)
    assert error.problems == ("one", "two")


def test_the_error_can_be_copied_and_sent_to_another_process() -> None:
    error = WiringError(["one", "two"])
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert again.problems == error.problems
        assert str(again) == str(error)


async def test_what_is_replaced_is_not_asked_for_what_it_needs(db: DB) -> None:
    done: list[str] = []

    @job(name="mail", replace=True)
    class Instead:
        async def handle(self, job: Job[None]) -> None:
            done.append(job.name)

    await perform(application(db, Mail, Instead), Instead)
    assert done == ["mail"]


def test_a_singleton_that_waits_for_the_start_that_waits_for_it_is_reported() -> None:
    @job(name="wait", scope="singleton")
    class Wait(Right):
        def __init__(self, core: Any = Provide["monque.monque"]) -> None: ...

    @job(name="made", scope="singleton")
    class Made(Right):
        def __init__(self, core: Any) -> None: ...

    app = application(None)
    app.set_provider("made", providers.Factory(Made, app.monque.monque))
    one, two = mistakes_in(app, Wait, Made)
    waiting, made = Wait.__qualname__, Made.__qualname__
    assert one == (
        f"{waiting} → core: Any → depends on Monque, which cannot start before the singleton "
        f"{waiting}"
    )
    assert two == f"{made} → depends on Monque, which cannot start before the singleton {made}"
