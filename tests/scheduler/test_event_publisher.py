"""Events, and log records for errors without a listener."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pymongo import AsyncMongoClient

from monque_core import LocalMongo, Monque, MonqueConnectionError
from monque_core.events import (
    ChangeStreamChanged,
    JobCompleted,
    JobErrored,
    JobFailed,
    JobStarted,
    StaleRecovered,
)
from tests.support.happenings import Happenings
from tests.support.polling import NO_POLLS, QUICK_POLLS
from tests.support.stored import jobs_in, stored
from tests.support.tally import Tally
from tests.support.waiting import eventually

if TYPE_CHECKING:
    import pytest
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job
    from monque_core.local.node import Node
    from tests.conftest import AnyDatabase


async def test_a_success_emits_events_at_its_start_and_after_its_write(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(any_db, **NO_POLLS)
    seen_by_handler = Tally[Any]()

    @monque.worker("fine")
    async def note(job: Job[int]) -> None:
        seen_by_handler.add(job)

    happenings = Happenings(monque)
    jobs = await monque.enqueue_many("fine", range(3))
    async with monque:
        await happenings.reach("job:complete", 3)
        as_stored = {job.id: await stored(db, job) for job in jobs}

    assert happenings.of("job:start") == [JobStarted(job) for job in seen_by_handler]
    for completed in happenings.of("job:complete"):
        assert isinstance(completed, JobCompleted)
        assert completed.job == as_stored[completed.job.id]
        assert completed.job.status == "completed"
        assert isinstance(completed.duration, timedelta)
        assert timedelta(0) < completed.duration < timedelta(seconds=20)
    jobs_told = [name for name in happenings.names if name.startswith("job:")]
    assert sorted(jobs_told) == ["job:complete"] * 3 + ["job:start"] * 3


async def test_a_success_is_emitted_only_after_its_write(
    blocking_db: Any, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(db, **NO_POLLS)
    told = Tally[tuple[str, Any]]()

    @monque.worker("fine")
    async def succeed(job: Job[None]) -> None:
        pass

    @monque.worker("bad")
    async def fail(job: Job[None]) -> None:
        raise ValueError

    def look(event: Any) -> None:
        document = blocking_db.monque_jobs.find_one({"_id": event.job.id})
        told.add((document["status"], document.get("failReason")))

    monque.on("job:complete", look)
    monque.on("job:fail", look)
    async with monque:
        await monque.enqueue("fine", None)
        await told.reach(1)
        await monque.enqueue("bad", None, max_retries=1)
        await told.reach(2)

    assert told == [("completed", None), ("failed", "ValueError")]


async def test_a_failure_is_emitted_with_its_error_and_whether_it_will_be_retried(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(any_db, base_retry_interval=0.001, max_retries=2, **QUICK_POLLS)
    errors = Tally[ValueError]()
    stored_then = Tally[Any]()

    @monque.worker("bad")
    async def fail(job: Job[None]) -> None:
        if job.fail_count:
            stored_then.add(await stored(db, job))
        errors.add(ValueError("of this very run"))
        raise errors[-1]

    happenings = Happenings(monque)
    job = await monque.enqueue("bad", None)
    async with monque:
        first, second = await happenings.reach("job:fail", 2)
        after = await stored(db, job)

    assert first == JobFailed(first.job, errors[0], will_retry=True)
    assert (first.job.status, first.job.fail_count) == ("pending", 1)
    assert first.job.next_run_at == stored_then[0].next_run_at
    assert first.job.fail_reason == "ValueError: of this very run"
    assert second == JobFailed(after, errors[1], will_retry=False)


async def test_recovered_jobs_are_counted(db: AsyncDatabase[dict[str, Any]]) -> None:
    monque = Monque(db, **NO_POLLS)
    jobs = await monque.enqueue_many("abandoned", range(3))
    await jobs_in(db).update_many(
        {},
        {
            "$set": {
                "status": "processing",
                "claimedBy": "a dead instance",
                "lockedAt": datetime.now(UTC) - timedelta(hours=1),
                "claims": 1,
            }
        },
    )
    successor = Monque(db, **NO_POLLS)
    happenings = Happenings(successor)
    await successor.initialize()

    assert happenings.all == [("stale:recovered", StaleRecovered(3))]
    assert {(await stored(db, job)).status for job in jobs} == {"pending"}


async def test_errors_of_the_scheduler_are_emitted_without_a_job(
    frail_mongo: LocalMongo, node: Node
) -> None:
    async with AsyncMongoClient[dict[str, Any]](
        frail_mongo.uri, serverSelectionTimeoutMS=1000
    ) as client:
        monque = Monque(client[f"outage_{uuid4().hex}"], heartbeat_interval=0.1, **QUICK_POLLS)

        @monque.worker("unused")
        async def unused(job: Job[None]) -> None:
            raise AssertionError("there is no job")

        happenings = Happenings(monque)
        async with monque:
            await happenings.reach("changestream:connected")
            await asyncio.to_thread(node.kill)
            (error, *_) = await happenings.reach("job:error")
            await eventually(lambda: not monque.is_healthy)
            await asyncio.to_thread(node.start)
            await eventually(lambda: monque.is_healthy)

    assert error == JobErrored(error.error, None)
    assert isinstance(error.error, MonqueConnectionError)
    # One outage, reported once, not once by every component that hits it.
    assert len(happenings.of("job:error")) == 1


async def test_events_of_the_stream_have_an_error_and_a_reason(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque = Monque(db, **NO_POLLS)

    @monque.worker("unused")
    async def unused(job: Job[None]) -> None:
        raise AssertionError("there is no job")

    happenings = Happenings(monque)
    async with monque:
        await happenings.reach("changestream:connected")

    assert happenings.all == [
        ("changestream:connected", ChangeStreamChanged(error=None, reason=None)),
        ("changestream:closed", ChangeStreamChanged(error=None, reason=None)),
    ]


async def test_failures_without_a_listener_are_logged(
    db: AsyncDatabase[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    monque = Monque(db, base_retry_interval=0.001, max_retries=2, **QUICK_POLLS)

    @monque.worker("bad")
    async def fail(job: Job[None]) -> None:
        raise ValueError("in vain")

    job = await monque.enqueue("bad", None)
    with caplog.at_level(logging.INFO, logger="monque"):
        async with monque:

            async def is_failed() -> bool:
                return (await stored(db, job)).status == "failed"

            await eventually(is_failed)

    told = [record for record in caplog.records if record.name == "monque"]
    assert [record.levelname for record in told] == ["WARNING", "WARNING"]
    first, last = (record.getMessage() for record in told)
    for text in (first, last):
        assert f"bad {job.id}" in text
        assert "ValueError: in vain" in text
    assert "will be retried" in first
    assert "given up" in last
    assert all(record.exc_info and record.exc_info[0] is ValueError for record in told)


async def test_failures_with_a_listener_are_not_logged(
    db: AsyncDatabase[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    monque = Monque(db, max_retries=1, **NO_POLLS)

    @monque.worker("bad")
    async def fail(job: Job[None]) -> None:
        raise ValueError("in vain")

    happenings = Happenings(monque)
    with caplog.at_level(logging.DEBUG, logger="monque"):
        async with monque:
            await monque.enqueue("bad", None)
            await happenings.reach("job:fail")

    assert not [record for record in caplog.records if record.name == "monque"]


async def test_errors_without_a_listener_are_logged(
    db: AsyncDatabase[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    monque = Monque(db, **NO_POLLS)
    started = Tally[int]()

    @monque.worker("endless")
    async def wait(job: Job[None]) -> None:
        started.add(1)
        await eventually(lambda: False, seconds=3600)

    await monque.enqueue("endless", None)
    await monque.start()
    await started.reach(1)
    await monque.stop(timeout=0)

    (record,) = [record for record in caplog.records if record.name == "monque"]
    assert record.levelname == "ERROR"
    assert "stopped with 1 unfinished job(s): endless" in record.getMessage()
