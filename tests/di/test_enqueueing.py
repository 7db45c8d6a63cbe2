"""Storing jobs by their classes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict

import pytest

from monque_core import InvalidJobError, Job, Monque, MonqueError
from monque_di import JobHandler, cron, job, job_controller, lifespan
from monque_di.enqueueing import job_name
from tests.support.applications import application
from tests.support.polling import NO_POLLS
from tests.support.stored import stored, stored_jobs

if TYPE_CHECKING:
    from pymongo import AsyncMongoClient
    from pymongo.asynchronous.database import AsyncDatabase

    DB = AsyncDatabase[dict[str, Any]]


class EmailData(TypedDict):
    to: str


@job(name="send-email")
class SendEmail(JobHandler[EmailData]):
    async def handle(self, job: Job[EmailData]) -> None: ...


@job_controller("billing")
class Billing:
    @job(name="charge")
    async def charge(self, job: Job[int]) -> None: ...

    @cron("0 0 1 * *", name="close-month")
    async def close_month(self, job: Job[None]) -> None: ...


async def test_a_class_stores_its_jobs_through_the_service_and_through_monque(db: DB) -> None:
    app = application(db)
    app.monque.options.override({"process_jobs": False})
    async with lifespan(app):
        service = app.monque.service()
        jobs = [
            await SendEmail.enqueue(queue, {"to": f"{place}@example.com"})
            for place, queue in enumerate([service, service.monque])
        ]
    assert [(job.name, job.data) for job in await stored_jobs(db)] == [
        ("send-email", {"to": "0@example.com"}),
        ("send-email", {"to": "1@example.com"}),
    ]
    assert [await stored(db, job) for job in jobs] == jobs


async def test_every_option_reaches_the_queue(db: DB) -> None:
    monque = Monque(db, **NO_POLLS)
    later = datetime(2090, 5, 5, 12, tzinfo=UTC)
    for target, data in ((SendEmail, {"to": "ada"}), (Billing.charge, 5)):
        enqueue: Any = target.enqueue
        job = await enqueue(
            monque,
            data,
            run_at=later,
            unique_key="one",
            priority=3,
            max_retries=2,
            timeout=timedelta(seconds=9),
        )
        again = await enqueue(monque, data, unique_key="one")
        assert again.deduplicated
        assert again.id == job.id
        kept = await stored(db, job)
        assert (kept.next_run_at, kept.priority, kept.max_retries) == (later, 3, 2)
        assert kept.timeout == timedelta(seconds=9)
        delayed = await enqueue(monque, data, delay=3600)
        assert delayed.next_run_at - delayed.created_at == timedelta(hours=1)


async def test_a_session_makes_it_part_of_a_transaction(
    client: AsyncMongoClient[dict[str, Any]], db: DB
) -> None:
    monque = Monque(db, **NO_POLLS)
    await monque.initialize()
    async with client.start_session() as session:
        await session.start_transaction()
        await SendEmail.enqueue(monque, {"to": "ada"}, session=session)
        await session.abort_transaction()
        async with await session.start_transaction():
            await SendEmail.enqueue(monque, {"to": "bob"}, session=session)
    assert [job.data for job in await stored_jobs(db)] == [{"to": "bob"}]


async def test_a_controllers_methods_store_jobs_of_their_full_names(db: DB) -> None:
    monque = Monque(db, **NO_POLLS)
    await Billing.charge.enqueue(monque, 5)
    await Billing.close_month.enqueue(monque, None)
    assert [(job.name, job.data) for job in await stored_jobs(db)] == [
        ("billing.charge", 5),
        ("billing.close-month", None),
    ]


async def test_a_class_without_the_base_gains_the_method_too(db: DB) -> None:
    @job(name="plain")
    class Plain:
        async def handle(self, job: Job[int]) -> None: ...

    @cron("* * * * *", name="ticking")
    class Ticking:
        async def handle(self, job: Job[None]) -> None: ...

    targets: list[Any] = [Plain, Ticking]
    for target in targets:
        await target.enqueue(Monque(db, **NO_POLLS), 1)
    assert [job.name for job in await stored_jobs(db)] == ["plain", "ticking"]


async def test_a_method_of_the_same_name_is_left_alone() -> None:
    @job(name="own")
    class Own:
        async def enqueue(self) -> str:
            return "own"

        async def handle(self, job: Job[None]) -> None: ...

    assert await Own().enqueue() == "own"


async def test_a_subclass_stores_jobs_of_its_own_name_or_none(db: DB) -> None:
    @job(name="louder")
    class Louder(SendEmail): ...

    class Undecorated(SendEmail): ...

    monque = Monque(db, **NO_POLLS)
    await Louder.enqueue(monque, {"to": "ada"})
    with pytest.raises(TypeError, match=r'Undecorated is not a job: decorate it with @job\("…"\)'):
        await Undecorated.enqueue(monque, {"to": "ada"})
    assert [job.name for job in await stored_jobs(db)] == ["louder"]


async def test_a_job_of_no_controller_is_not_stored(db: DB) -> None:
    class Undecorated(Billing): ...

    with pytest.raises(TypeError, match=r"Undecorated\.charge is not a job"):
        await Undecorated.charge.enqueue(Monque(db, **NO_POLLS), 5)
    assert await stored_jobs(db) == []


async def test_what_the_queue_refuses_is_refused(db: DB) -> None:
    monque = Monque(db, **NO_POLLS)
    with pytest.raises(InvalidJobError, match="priority"):
        await SendEmail.enqueue(monque, {"to": "ada"}, priority=-1)
    with pytest.raises(TypeError, match="prioritty"):
        await SendEmail.enqueue(monque, {"to": "ada"}, prioritty=1)  # type: ignore[call-arg]
    service = application(db).monque.service()
    with pytest.raises(MonqueError, match="Monque is not started"):
        await SendEmail.enqueue(service, {"to": "ada"})


def test_a_class_knows_the_name_of_its_job() -> None:
    @job("plain")
    class Plain: ...

    @job("letter")
    class SendLetter(SendEmail): ...

    @cron("@daily", name="daily")
    class Daily: ...

    classes: list[Any] = [SendEmail, SendLetter, Plain, Daily]
    assert [each.job_name for each in classes] == ["send-email", "letter", "plain", "daily"]
    assert SendLetter().job_name == "letter"


def test_an_attribute_of_that_name_is_left_alone() -> None:
    @job("other")
    class Named(JobHandler[None]):
        job_name = "mine"

    @job("free")
    class Free:
        name = "also mine"

    assert (Named.job_name, job_name(Named)) == ("mine", "other")
    assert Free.name == "also mine"


def test_a_class_that_is_not_a_job_has_no_name() -> None:
    class Undecorated(SendEmail): ...

    assert not hasattr(JobHandler, "job_name")
    with pytest.raises(
        AttributeError, match=r'Undecorated is not a job: decorate it with @job\("…"\)'
    ):
        _ = Undecorated.job_name
