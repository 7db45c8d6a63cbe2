"""`monque doctor`: what it finds, and what it advises."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pymongo import AsyncMongoClient

from monque_core import JobRetention, LocalMongo, Monque
from monque_core.store.tasks.transitions import DIED
from tests.support.stored import jobs_in
from tests.support.task_records import META, declare, put_record

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from tests.support.command_line import CommandLine, Ended

    Db = AsyncDatabase[dict[str, Any]]


def levels(result: Ended) -> dict[str, str]:
    """Return the worst level of each subject."""
    order = ["ok", "warning", "problem"]
    found: dict[str, str] = {}
    for finding in json.loads(result.out):
        subject, level = finding["subject"], finding["level"]
        found[subject] = max(found.get(subject, "ok"), level, key=order.index)
    return found


def about(result: Ended, subject: str) -> str:
    """Return the messages about a subject."""
    return " ".join(
        f"{finding['message']} {finding.get('advice', '')}"
        for finding in json.loads(result.out)
        if finding["subject"] == subject
    )


async def test_a_sound_queue_with_a_worker_is_ok(monque: CommandLine, queue: Monque) -> None:
    queue.worker("report", lambda _: None)
    queue.reactive("orders", lambda _: None, name="invoice")
    async with queue:
        await queue.schedule("@daily", "report", None)
        await queue.run_until_idle()
        result = await monque("doctor", "--json")
        text = await monque("doctor")

    assert result.code == 0
    assert set(levels(result).values()) == {"ok"}, result.out
    assert about(result, "instances").startswith("1 alive")
    assert about(result, "leader").strip() == f"{queue.scheduler_instance_id} is the leader"
    assert about(result, "change streams").startswith("available, and planning is up to date")
    assert "ok       server: MongoDB " in text.out
    assert text.out.endswith("0 problem(s), 0 warning(s)\n")


async def test_an_empty_database_is_only_a_warning(monque: CommandLine) -> None:
    result = await monque("doctor", "--json")

    assert result.code == 0
    assert levels(result)["indexes"] == "warning"
    assert "--collection" in about(result, "indexes")
    assert "reactive tasks" not in levels(result)


async def test_what_is_wrong_is_found_and_ends_with_1(
    db: Db, monque: CommandLine, queue: Monque
) -> None:
    now = datetime.now(UTC)
    long_ago = now - timedelta(hours=1)
    jobs = jobs_in(db)
    overdue = await queue.enqueue("overdue", None)
    forgotten = await queue.schedule("@daily", "forgotten", None)
    for job in (overdue, forgotten):
        await jobs.update_one({"_id": job.id}, {"$set": {"nextRunAt": long_ago}})
    stale = await queue.enqueue("stale", None)
    claim = {"lockedAt": long_ago, "lastHeartbeat": long_ago, "heartbeatInterval": 1000}
    await jobs.update_one(
        {"_id": stale.id}, {"$set": {"status": "processing", "claimedBy": "dead", **claim}}
    )
    suspect = await queue.enqueue("suspect", None, delay=3600)
    await jobs.update_one({"_id": suspect.id}, {"$set": {"claims": 4, "failCount": 1}})
    poison = await queue.enqueue("poison", None)
    reason = "the process running this job died or stalled 3 time(s); it may run 3 time(s) in all"
    await jobs.update_one({"_id": poison.id}, {"$set": {"status": "failed", "failReason": reason}})
    await jobs.drop_index("monque_py_unique")
    await jobs.drop_index("monque_py_claim")
    await jobs.create_index("data", name="monque_py_claim")

    result = await monque("doctor", "--json")
    text = await monque("doctor")

    assert result.code == text.code == 1
    found = levels(result)
    assert found["server"] == found["topology"] == found["clock"] == "ok"
    assert found["indexes"] == found["stale jobs"] == found["schedules"] == "problem"
    assert found["poison jobs"] == "problem"
    assert found["overdue jobs"] == found["instances"] == "warning"
    assert "monque_py_unique of monque_jobs is missing" in about(result, "indexes")
    assert "monque_py_claim of monque_jobs has a different definition" in about(result, "indexes")
    assert "suspect (1)" in about(result, "poison jobs")
    assert "poison (1)" in about(result, "poison jobs")
    assert "forgotten (1)" in about(result, "schedules")
    assert about(result, "overdue jobs").count("(1)") == 1
    assert "→ start a worker that handles the name" in text.out


async def test_a_weak_write_concern_is_a_warning(
    monque: CommandLine, uri: str, queue: Monque
) -> None:
    await queue.initialize()

    result = await monque("doctor", "--json", MONQUE_URI=f"{uri}&w=1")

    assert levels(result)["write concern"] == "warning"


async def test_a_standalone_server_is_a_warning(monque: CommandLine) -> None:
    async with (
        LocalMongo(standalone=True) as mongo,
        AsyncMongoClient[dict[str, Any]](mongo.uri) as client,
    ):
        await declare(client[monque.environment["MONQUE_DATABASE"]])
        result = await monque("doctor", "--json", MONQUE_URI=mongo.uri)

    assert result.code == 0
    assert levels(result)["topology"] == levels(result)["change streams"] == "warning"
    assert "replica set" in about(result, "change streams")
    assert levels(result)["write concern"] == "ok"


async def test_what_is_wrong_with_reactive_tasks_is_found(
    db: Db, monque: CommandLine, queue: Monque
) -> None:
    now = datetime.now(UTC)
    long_ago = now - timedelta(days=2)
    for name in ("invoice", "index", "renamed"):
        await declare(db, name)
    await put_record(db, 1, status="failed", lastError="ValueError: no")
    await put_record(db, 2, status="failed", lastError=f"{DIED}, and no run is left after 5")
    await put_record(db, 3, status="pending", nextRunAt=now - timedelta(minutes=5))
    meta = db[META]
    await meta.update_one({"task": "renamed"}, {"$set": {"seenAt": long_ago}})
    await meta.update_one({"task": "index"}, {"$set": {"error": "unknown operator $foo"}})
    await meta.update_one({"task": "invoice"}, {"$set": {"reconcile.askedAt": long_ago}})
    parked = {"task": "invoice", "database": db.name, "collection": "orders", "at": now}
    await meta.insert_one(
        {"_id": "reactive:parked:1", **parked, "sourceDocId": 4, "error": "$abs of a string"}
    )
    await db["orders_tasks"].drop_index("monque_py_tasks_due")

    async with queue:
        result = await monque("doctor", "--json")

    assert result.code == 1
    found = levels(result)
    assert found["leader"] == found["broken tasks"] == found["task indexes"] == "problem"
    assert found["failed tasks"] == "problem"
    assert found["reactive tasks"] == found["reconciliation"] == found["overdue tasks"] == "warning"
    assert found["parked documents"] == "warning"
    assert found["change streams"] == "ok"
    assert "worker of the application" in about(result, "leader")
    assert "index cannot be planned: unknown operator $foo" in about(result, "broken tasks")
    assert "monque_py_tasks_due of orders_tasks is missing" in about(result, "task indexes")
    assert "invoice (1)" in about(result, "failed tasks")
    assert "invoice (2)" in about(result, "failed tasks")
    assert "monque reactive retry" in about(result, "failed tasks")
    assert "renamed is no longer planned" in about(result, "reactive tasks")
    assert "the task is new" in about(result, "reconciliation")
    assert "invoice (1)" in about(result, "overdue tasks")
    assert "such as 4 of invoice: $abs of a string" in about(result, "parked documents")


async def test_tasks_without_any_worker_or_behind_the_changes_are_a_warning(
    db: Db, monque: CommandLine, queue: Monque
) -> None:
    await queue.initialize()
    await declare(db)

    alone = await monque("doctor", "--json")
    now = datetime.now(UTC)
    lease = {"holder": "somebody", "expiresAt": now + timedelta(minutes=5), "term": 1}
    place = {"database": db.name, "token": {}, "upTo": now - timedelta(minutes=10)}
    await db[META].insert_many(
        [{"_id": "reactive:leader", **lease}, {"_id": f"reactive:stream:{db.name}", **place}]
    )
    behind = await monque("doctor", "--json")

    assert (alone.code, behind.code) == (0, 0)
    assert levels(alone)["leader"] == "warning"
    assert levels(alone)["change streams"] == "ok"
    assert levels(behind)["leader"] == "ok"
    assert "planning is 10m" in about(behind, "change streams")
    assert "behind the changes" in about(behind, "change streams")


async def test_finished_jobs_that_pile_up_are_reported(
    monque: CommandLine, queue: Monque, db: Db
) -> None:
    await queue.enqueue("waiting", None)
    result = await monque("doctor", "--json")
    assert levels(result)["retention"] == "ok"
    assert about(result, "retention").startswith("about 0 finished job(s) are stored")

    await jobs_in(db).insert_many([{"status": "completed"} for _ in range(10_000)])
    result = await monque("doctor", "--json")
    assert result.code == 0
    assert levels(result)["retention"] == "warning"
    assert "about 10000 finished job(s) are stored, and none is deleted automatically" in result.out
    assert "set job_retention" in about(result, "retention")

    await Monque(db, job_retention=JobRetention(completed=60)).initialize()
    result = await monque("doctor", "--json")
    assert levels(result)["retention"] == "ok"
    assert about(result, "retention").startswith(
        "finished jobs are deleted after the retention period"
    )
