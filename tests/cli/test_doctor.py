"""`monque doctor`: what it finds, and what it advises."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from monque_core import LocalMongo
from tests.support.stored import jobs_in

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Monque
    from tests.support.command_line import CommandLine, Ended

    Db = AsyncDatabase[dict[str, Any]]


def levels(told: Ended) -> dict[str, str]:
    """Give the worst level of each subject."""
    order = ["ok", "warning", "problem"]
    found: dict[str, str] = {}
    for finding in json.loads(told.out):
        subject, level = finding["subject"], finding["level"]
        found[subject] = max(found.get(subject, "ok"), level, key=order.index)
    return found


def about(told: Ended, subject: str) -> str:
    """Give what is said of a subject."""
    return " ".join(
        f"{finding['message']} {finding.get('advice', '')}"
        for finding in json.loads(told.out)
        if finding["subject"] == subject
    )


async def test_a_sound_queue_with_a_worker_is_ok(monque: CommandLine, queue: Monque) -> None:
    queue.worker("report", lambda _: None)
    async with queue:
        await queue.schedule("@daily", "report", None)
        told = await monque("doctor", "--json")
        text = await monque("doctor")

    assert told.code == 0
    assert set(levels(told).values()) == {"ok"}, told.out
    assert about(told, "instances").startswith("1 alive")
    assert "ok       server: MongoDB " in text.out
    assert text.out.endswith("0 problem(s), 0 warning(s)\n")


async def test_an_empty_database_is_only_a_warning(monque: CommandLine) -> None:
    told = await monque("doctor", "--json")

    assert told.code == 0
    assert levels(told)["indexes"] == "warning"
    assert "--collection" in about(told, "indexes")


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
    reason = "the process running this job died or stalled 3 time(s), as often as the job may run"
    await jobs.update_one({"_id": poison.id}, {"$set": {"status": "failed", "failReason": reason}})
    await jobs.drop_index("monque_py_unique")
    await jobs.drop_index("monque_py_claim")
    await jobs.create_index("data", name="monque_py_claim")

    told = await monque("doctor", "--json")
    text = await monque("doctor")

    assert told.code == text.code == 1
    found = levels(told)
    assert found["server"] == found["topology"] == found["clock"] == "ok"
    assert found["indexes"] == found["stale jobs"] == found["schedules"] == "problem"
    assert found["poison jobs"] == "problem"
    assert found["overdue jobs"] == found["instances"] == "warning"
    assert "monque_py_unique is missing" in about(told, "indexes")
    assert "monque_py_claim has another shape" in about(told, "indexes")
    assert "suspect (1)" in about(told, "poison jobs")
    assert "poison (1)" in about(told, "poison jobs")
    assert "forgotten (1)" in about(told, "schedules")
    assert about(told, "overdue jobs").count("(1)") == 1
    assert "→ start a worker that has the name" in text.out


async def test_a_weak_write_concern_is_a_warning(
    monque: CommandLine, uri: str, queue: Monque
) -> None:
    await queue.initialize()

    told = await monque("doctor", "--json", MONQUE_URI=f"{uri}&w=1")

    assert levels(told)["write concern"] == "warning"


async def test_a_standalone_server_is_a_warning(monque: CommandLine) -> None:
    async with LocalMongo(standalone=True) as mongo:
        told = await monque("doctor", "--json", MONQUE_URI=mongo.uri)

    assert told.code == 0
    assert levels(told)["topology"] == "warning"
    assert levels(told)["write concern"] == "ok"
