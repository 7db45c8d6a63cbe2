"""Deleting finished jobs when they are old enough."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pymongo import AsyncMongoClient, MongoClient

from monque_core import JobRetention, JobStatus, Monque
from monque_core.scheduler import retention
from tests.support.commands import CommandLog
from tests.support.happenings import Happenings
from tests.support.proxy import Proxy
from tests.support.stored import jobs_in
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest
    from pymongo.asynchronous.collection import AsyncCollection
    from pymongo.asynchronous.database import AsyncDatabase

    from tests.conftest import AnyDatabase

OFTEN = 0.1


def deletes(command: Mapping[str, Any]) -> bool:
    return command.get("delete") == "monque_jobs"


def finished(status: str, age: float, **fields: object) -> dict[str, Any]:
    """Return a job that was last changed this many seconds ago, and created long before that."""
    now = datetime.now(UTC)
    return {
        "name": "work",
        "data": age,
        "status": status,
        "nextRunAt": now + timedelta(days=1),
        "failCount": 0,
        "createdAt": now - timedelta(days=30),
        "updatedAt": now - timedelta(seconds=age),
        **fields,
    }


async def ages(db: AsyncDatabase[dict[str, Any]]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {status: [] for status in JobStatus.ALL}
    async for document in jobs_in(db).find().sort("data", 1):
        found[document["status"]].append(document["data"])
    return found


async def test_each_status_is_deleted_at_its_own_age_and_unfinished_jobs_never(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
) -> None:
    fresh_claim = {"lockedAt": datetime.now(UTC), "claimedBy": "another"}
    await jobs_in(db).insert_many(
        [
            finished(status, age, **(fresh_claim if status == "processing" else {}))
            for status in JobStatus.ALL
            for age in (100, 1_000, 10_000, 10_000_000)
        ]
    )
    retention = JobRetention(completed=500, failed=timedelta(hours=1), interval=OFTEN)
    monque = Monque(any_db, job_retention=retention)
    happenings = Happenings(monque)
    async with monque:

        async def is_done() -> bool:
            left = await ages(db)
            return len(left["completed"]) == 1 and len(left["failed"]) == 2

        await eventually(is_done)
        await asyncio.sleep(3 * OFTEN)

    assert await ages(db) == {
        "pending": [100, 1_000, 10_000, 10_000_000],
        "processing": [100, 1_000, 10_000, 10_000_000],
        "completed": [100],
        "failed": [100, 1_000],
        "cancelled": [100, 1_000, 10_000, 10_000_000],
    }
    assert not happenings.of("job:error")


async def test_jobs_are_deleted_in_bounded_batches(
    db: AsyncDatabase[dict[str, Any]], uri: str
) -> None:
    await jobs_in(db).insert_many([finished("completed", 1000) for _ in range(3500)])
    log = CommandLog()
    async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
        retention = JobRetention(completed=10, interval=OFTEN)
        async with Monque(client[db.name], job_retention=retention):

            async def is_done() -> bool:
                return not await jobs_in(db).count_documents({})

            await eventually(is_done)

    sizes = [
        len(one["q"]["_id"]["$in"])
        for command in log.sent
        if deletes(command)
        for one in command["deletes"]
    ]
    assert sum(sizes) == 3500
    assert max(sizes) <= 1000


async def test_a_job_that_is_retried_just_before_its_deletion_is_kept(
    db: AsyncDatabase[dict[str, Any]], uri: str
) -> None:
    jobs = [finished("failed", 1000 + number) for number in range(3)]
    await jobs_in(db).insert_many(jobs)
    log = CommandLog()

    with MongoClient[dict[str, Any]](uri) as rescuer:

        def rescue(name: str, command: Mapping[str, Any]) -> None:
            if deletes(command):
                rescuer[db.name].monque_jobs.update_one(
                    {"_id": jobs[0]["_id"]}, {"$set": {"status": "pending"}}
                )
                rescuer[db.name].monque_jobs.update_one(
                    {"_id": jobs[1]["_id"]}, {"$set": {"updatedAt": datetime.now(UTC)}}
                )

        log.on_sending = rescue
        async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
            retention = JobRetention(failed=10, interval=OFTEN)
            async with Monque(client[db.name], job_retention=retention):

                async def is_done() -> bool:
                    return await jobs_in(db).count_documents({}) <= 2

                await eventually(is_done)
                await asyncio.sleep(2 * OFTEN)

    left = {document["_id"] async for document in jobs_in(db).find()}
    assert left == {jobs[0]["_id"], jobs[1]["_id"]}


async def test_two_instances_never_delete_at_once(
    db: AsyncDatabase[dict[str, Any]], uri: str
) -> None:
    await jobs_in(db).insert_many([finished("completed", 1000) for _ in range(10)])
    retention = JobRetention(completed=10, interval=OFTEN)
    log = CommandLog()
    async with (
        Proxy(uri) as proxy,
        AsyncMongoClient[dict[str, Any]](proxy.uri) as slow,
        AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as quick,
    ):
        deleting = proxy.strike("hold request", deletes)
        async with Monque(slow[db.name], job_retention=retention):
            await deleting.strikes()
            async with Monque(quick[db.name], job_retention=retention):
                await eventually(lambda: _asks_for_lease(log) >= 5)
                assert not any(deletes(command) for command in log.sent)
                assert await jobs_in(db).count_documents({}) == 10
                deleting.release()

                async def is_done() -> bool:
                    return not await jobs_in(db).count_documents({})

                await eventually(is_done)
                # The lease is released after each round, so the other instance gets its turn.
                await jobs_in(db).insert_one(finished("completed", 1000))
                await eventually(is_done)


def _asks_for_lease(log: CommandLog) -> int:
    return sum(
        command.get("query") == {"_id": "retention"}
        for command in log.sent
        if "findAndModify" in command
    )


async def test_the_lease_of_an_instance_that_died_runs_out(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    await jobs_in(db).insert_one(finished("completed", 1000))
    meta: AsyncCollection[dict[str, Any]] = db["monque_jobs_meta"]
    now = datetime.now(UTC)
    await meta.insert_one(
        {"_id": "retention", "holder": "dead", "expiresAt": now + timedelta(hours=1)}
    )
    async with Monque(db, job_retention=JobRetention(completed=10, interval=OFTEN)):
        await asyncio.sleep(4 * OFTEN)
        assert await jobs_in(db).count_documents({}) == 1
        await meta.update_one({"_id": "retention"}, {"$set": {"expiresAt": now}})

        async def is_done() -> bool:
            return not await jobs_in(db).count_documents({})

        await eventually(is_done)
    assert await meta.count_documents({"_id": "retention"}) == 0


class TestWithoutRetention:
    """Finished jobs are kept forever by default, and the log warns when they become many."""

    async def test_a_growing_collection_is_logged_at_the_start_and_when_it_doubled(
        self,
        uri: str,
        db: AsyncDatabase[dict[str, Any]],
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        monkeypatch.setattr(retention, "MANY_JOBS", 3)
        monkeypatch.setattr(retention, "_LOOK_INTERVAL", timedelta(seconds=OFTEN))
        await jobs_in(db).insert_many([finished("completed", age) for age in range(2)])

        def warnings() -> list[str]:
            return [text for text in caplog.messages if "never deleted" in text]

        log = CommandLog()
        async with (
            AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client,
            Monque(client[db.name]),
        ):
            await eventually(lambda: log.count()["count"] >= 2)
            assert warnings() == []
            await jobs_in(db).insert_many([finished("completed", age) for age in range(2)])
            await eventually(warnings)
            seen = log.count()["count"]
            await eventually(lambda: log.count()["count"] >= seen + 3)
            assert len(warnings()) == 1
            await jobs_in(db).insert_many([finished("completed", age) for age in range(4)])
            await eventually(lambda: len(warnings()) == 2)

        assert re.match(r"monque_jobs holds about [34] jobs, and finished ones are", warnings()[0])
        assert "JobRetention() to keep them all" in warnings()[0]

    async def test_keeping_jobs_on_purpose_causes_no_warning_and_no_index(
        self,
        db: AsyncDatabase[dict[str, Any]],
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        monkeypatch.setattr(retention, "MANY_JOBS", 1)
        await jobs_in(db).insert_one(finished("completed", 1))

        async with Monque(db, job_retention=JobRetention()) as monque:
            monque.worker("note", lambda _: None)
            await monque.enqueue("note", None)
            await monque.run_until_idle(20)

        assert "never deleted" not in caplog.text
        assert "monque_py_retention" not in await jobs_in(db).index_information()
        assert await jobs_in(db).count_documents({"status": "completed"}) == 2
