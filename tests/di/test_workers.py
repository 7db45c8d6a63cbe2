"""Handlers built for runs on a real queue."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from dependency_injector import providers

from monque_core import Job, Monque, MonqueError
from monque_di import JobHandler, MonqueService, cron, job, job_controller, lifespan
from monque_di.registry import Registry
from monque_di.workers import Workers, handle
from tests.support.applications import QUIET, application, perform, perform_in
from tests.support.happenings import Happenings
from tests.support.samples import a_job
from tests.support.stored import stored, stored_jobs
from tests.support.tally import Tally

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from tests.conftest import AnyDatabase

    DB = AsyncDatabase[dict[str, Any]]


class Mailer:
    def __init__(self) -> None:
        self.sent: list[object] = []


async def test_async_handlers_run_on_the_loop_and_plain_ones_in_threads(
    any_db: AnyDatabase,
) -> None:
    ran: dict[str, int] = {}

    @job(name="async")
    class Async:
        def __init__(self) -> None:
            ran["built for async"] = threading.get_ident()

        async def handle(self, job: Job[None]) -> None:
            ran["async"] = threading.get_ident()

    @job_controller("plain")
    class Plain:
        def __init__(self) -> None:
            ran["built for plain"] = threading.get_ident()

        @job(name="run")
        def run(self, job: Job[None]) -> None:
            ran["plain"] = threading.get_ident()

    await perform(application(any_db, Async, Plain), Async, Plain.run)
    plain = ran.pop("plain")
    assert set(ran) == {"built for async", "async", "built for plain"}
    assert set(ran.values()) == {threading.get_ident()}
    assert plain != threading.get_ident()


async def test_a_class_is_built_for_each_run(db: DB) -> None:
    built: list[object] = []

    @job(name="fresh")
    class Fresh:
        def __init__(self) -> None:
            built.append(self)

        async def handle(self, job: Job[None]) -> None:
            assert built[-1] is self

    app = application(db, Fresh)
    async with lifespan(app):
        assert built == []
        for _ in range(3):
            await perform_in(app, Fresh)
    assert len(set(map(id, built))) == 3


async def test_a_singleton_is_built_once_at_the_start(db: DB) -> None:
    built: list[object] = []
    handled: list[object] = []

    @job(name="once", scope="singleton")
    class Once:
        def __init__(self, mailer: Mailer) -> None:
            built.append(self)

        async def handle(self, job: Job[None]) -> None:
            handled.append(self)

    @job_controller("family", scope="singleton")
    class Family:
        def __init__(self) -> None:
            built.append(self)

        @job(name="one")
        async def one(self, job: Job[None]) -> None:
            handled.append(self)

        @job(name="two")
        def two(self, job: Job[None]) -> None:
            handled.append(self)

    app = application(db, Once, Family, mailer=providers.Factory(Mailer))
    async with lifespan(app):
        once, family = built
        await perform_in(app, Once, Once, Family.one, Family.two)
    assert built == [once, family]
    assert sorted(map(id, handled)) == sorted(map(id, [once, once, family, family]))


async def test_a_singleton_that_is_falsy_is_built_once_too(db: DB) -> None:
    built: list[object] = []

    @job(name="empty", scope="singleton")
    class Empty(list[int]):
        def __init__(self) -> None:
            super().__init__()
            built.append(self)

        async def handle(self, job: Job[None]) -> None: ...

    await perform(application(db, Empty), Empty, Empty)
    assert len(built) == 1


async def test_a_new_start_builds_a_new_singleton(db: DB) -> None:
    built: list[object] = []

    @job(name="once", scope="singleton")
    class Once:
        def __init__(self) -> None:
            built.append(self)

        async def handle(self, job: Job[None]) -> None: ...

    app = application(db, Once)
    for _ in range(2):
        await perform(app, Once)
    assert len(built) == 2


async def test_two_concurrent_runs_have_instances_of_their_own(db: DB) -> None:
    together = asyncio.Barrier(20)
    seen: set[int] = set()
    kept: list[object] = []

    @job(name="meet", concurrency=20)
    class Meet:
        def __init__(self, mine: Job[int], mailer: Mailer) -> None:
            self.mine, self.mailer = mine, mailer

        async def handle(self, job: Job[int]) -> None:
            await together.wait()
            assert self.mine is job
            seen.add(id(self.mailer))
            kept.append(self.mailer)

    app = application(db, Meet, mailer=providers.Factory(Mailer))
    await perform(app, *[Meet] * 20)
    assert len(seen) == 20


async def test_the_options_of_a_job_are_those_of_its_worker(db: DB) -> None:
    at_once = 0
    most = 0

    @job(name="narrow", concurrency=2)
    class Narrow:
        async def handle(self, job: Job[None]) -> None:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            await asyncio.sleep(0.01)
            at_once -= 1

    @job(name="brief", timeout=timedelta(milliseconds=30))
    class Brief(JobHandler[None]):
        async def handle(self, job: Job[None]) -> None:
            await asyncio.sleep(3600)

    app = application(db, Narrow, Brief)
    async with lifespan(app):
        await perform_in(app, *[Narrow] * 12)
        happenings = Happenings(app.monque.service().monque)
        late = await Brief.enqueue(app.monque.service(), None)
        await happenings.reach("job:fail")
    assert most == 2
    assert "timeout of 0:00:00.03" in str((await stored(db, late)).fail_reason)


async def test_what_a_constructor_raises_fails_the_run_and_is_retried(db: DB) -> None:
    tries = Tally[int]()

    @job(name="fickle")
    class Fickle:
        def __init__(self) -> None:
            tries.add(1)
            if len(tries) == 1:
                raise ConnectionError("not yet")

        async def handle(self, job: Job[None]) -> None: ...

    app = application(db, Fickle)
    options = QUIET | {"max_retries": 3, "base_retry_interval": 0.01}
    app.monque.options.override(providers.Object(options))
    async with lifespan(app):
        happenings = Happenings(app.monque.service().monque)
        await app.monque.service().enqueue("fickle", None)
        (completed,) = await happenings.reach("job:complete")
    assert len(tries) == 2
    assert completed.job.fail_count == 1


async def test_a_job_may_enqueue_another_through_the_service(db: DB) -> None:
    done = Tally[str]()

    @job(name="second")
    class Second(JobHandler[str]):
        async def handle(self, job: Job[str]) -> None:
            done.add(job.data)

    @job(name="first")
    class First:
        def __init__(self, queue: MonqueService) -> None:
            self.queue = queue

        async def handle(self, job: Job[str]) -> None:
            await Second.enqueue(self.queue, f"{job.data} and on")

    app = application(db, First, Second)
    async with lifespan(app):
        await perform_in(app, First, data="on")
        await done.reach(1)
    assert done == ["on and on"]


async def test_workers_of_the_core_beside_the_classes_are_left_alone(db: DB) -> None:
    @job(name="class")
    class Classy:
        async def handle(self, job: Job[None]) -> None: ...

    app = application(db, Classy)
    async with lifespan(app):
        service: MonqueService = app.monque.service()
        handled = Tally[str]()

        @service.monque.worker("function")
        async def function(job: Job[str]) -> None:
            handled.add(job.data)

        await service.enqueue("function", "plain")
        await handled.reach(1)
        await perform_in(app, Classy)
    assert handled == ["plain"]


variable: ContextVar[str] = ContextVar("variable")


async def test_a_thread_sees_the_context_of_its_run(db: DB) -> None:
    seen: list[object] = []

    @job(name="plain")
    class Plain:
        def __init__(self) -> None:
            variable.set("set by the constructor")

        def handle(self, job: Job[None]) -> None:
            seen.append(variable.get())

    await perform(application(db, Plain), Plain)
    assert seen == ["set by the constructor"]


async def test_schedules_are_declared_with_everything_they_say(db: DB) -> None:
    @job(name="report")
    @cron("0 9 * * *", timezone="Europe/Berlin", data={"kind": "sales"}, priority=4)
    @cron("0 9 * * *", unique_key="again")
    class Report:
        async def handle(self, job: Job[Any]) -> None: ...

    for _ in range(2):
        async with lifespan(application(db, Report)):
            pass
    one, two = sorted(await stored_jobs(db), key=lambda job: str(job.unique_key))
    assert (one.unique_key, one.data, one.timezone, one.priority) == ("again", None, "UTC", 0)
    assert (two.unique_key, two.data, two.timezone, two.priority) == (
        "report",
        {"kind": "sales"},
        "Europe/Berlin",
        4,
    )


def test_what_the_core_refuses_of_a_worker_is_a_problem_of_its_class(db: DB) -> None:
    class Base:
        async def handle(self, job: Job[None]) -> None: ...

    @job(name="two words")
    class Spaced(Base): ...

    @job(name="none", concurrency=0)
    class Idle(Base): ...

    @job(name="never", timeout=-1)
    class Never(Base): ...

    @job_controller("")
    class Family:
        @job(name="run", concurrency="many")  # type: ignore[arg-type]
        async def run(self, job: Job[None]) -> None: ...

    workers = Workers(application(None), Registry([Spaced, Idle, Never, Family]).jobs)
    assert workers.problems == []
    workers.register(Monque(db))
    labels = [problem.partition(" → ")[0] for problem in workers.problems]
    assert labels == [
        f"{Spaced.__qualname__}.handle",
        f"{Idle.__qualname__}.handle",
        f"{Never.__qualname__}.handle",
        f"{Family.__qualname__}.run",
    ]
    for problem, told in zip(
        workers.problems, ["whitespace", "concurrency=0", "timeout=-1", "'many'"], strict=True
    ):
        assert told in problem


async def test_what_overrides_the_class_may_be_async_or_not(db: DB) -> None:
    handled: list[str] = []

    @job(name="async")
    class Async:
        async def handle(self, job: Job[None]) -> None:
            handled.append("async")

    @job(name="plain")
    class Plain:
        def handle(self, job: Job[None]) -> None:
            handled.append("plain")

    app = application(
        db, Async, Plain, first=providers.Factory(Async), second=providers.Factory(Plain)
    )
    with (
        app.first.override(providers.Factory(Plain)),
        app.second.override(providers.Factory(Async)),
    ):
        await perform(app, Async)
        await perform(app, Plain)
    assert handled == ["plain", "async"]


async def test_outside_of_a_run_there_is_not_a_handler() -> None:
    with pytest.raises(MonqueError, match="no job is running here"):
        handle(a_job())


async def test_a_singleton_may_keep_the_queue(db: DB) -> None:
    seen: list[bool] = []

    @job(name="holder", scope="singleton")
    class Keeper:
        def __init__(self, queue: MonqueService, core: Monque) -> None:
            self.queue, self.core = queue, core

        async def handle(self, job: Job[None]) -> None:
            seen.append(self.queue.monque is self.core and self.queue.is_healthy)

    app = application(db, Keeper)
    for _ in range(2):
        await perform(app, Keeper)
    assert seen == [True, True]
