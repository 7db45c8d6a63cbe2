"""Node writes what the page on the document format prescribes for other programs."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from monque_core import Monque
from tests.docs.contract import Promise, promises
from tests.support.stored import jobs_in

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from tests.interop.conftest import StartNodeWorker

_OF_ABANDONED = {"lockedAt", "lastHeartbeat", "heartbeatInterval"}


async def _writes(db: AsyncDatabase[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the filter and the update of every update that was sent to the server."""
    seen = []
    async for entry in db["system.profile"].find({"ns": f"{db.name}.monque_jobs"}):
        command = entry["command"]
        if "findAndModify" in command or "findandmodify" in command:
            seen.append((command["query"], command["update"]))
        elif entry["op"] == "update":
            seen.append((command["q"], command["u"]))
    return seen


def _fits(promise: Promise, query: dict[str, Any], update: dict[str, Any]) -> bool:
    """Return whether a write matches this row: every required field, and no undocumented one."""
    sets, removes = update.get("$set", {}), update.get("$unset", {})
    changed = {sets["status"]} if "status" in sets else set()
    demanded = query.keys() - (_OF_ABANDONED if promise.filter.is_of_abandoned else set())
    status = query.get("status")
    demanded_statuses = set(status["$in"]) if isinstance(status, dict) else {status}
    return (
        demanded_statuses == promise.filter.statuses
        and changed == promise.sets.statuses
        and promise.filter.needed <= demanded <= promise.filter.all
        and promise.sets.needed <= sets.keys() <= promise.sets.all
        and promise.removes.needed <= removes.keys() <= promise.removes.all
    )


async def test_every_write_of_node_is_in_the_table_of_transitions(
    start_node_worker: StartNodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(db)
    long_ago = datetime.now(UTC) - timedelta(days=3)
    lost = await monque.enqueue("lost", None)
    claim = {"claimedBy": "dead", "lockedAt": long_ago, "lastHeartbeat": long_ago}
    await jobs_in(db).update_one({"_id": lost.id}, {"$set": {"status": "processing", **claim}})
    schedule = await monque.schedule("@daily", "works", "again", unique_key="daily")
    await monque.reschedule_job(schedule.id, long_ago)
    await monque.enqueue("works", "once")
    await monque.enqueue("fails", "for the first time")
    last = await monque.enqueue("fails", "for the last time")
    await jobs_in(db).update_one({"_id": last.id}, {"$set": {"failCount": 9}})

    await db.command("profile", 2)
    node_worker = await start_node_worker(heartbeatInterval=100)
    assert node_worker.recovered == 1
    await node_worker.enqueue("later", None, uniqueKey="key")
    await node_worker.work("works")
    await node_worker.work("fails", "fails")
    await node_worker.hear("ended", 4)
    await node_worker.retry(last)
    await node_worker.hear("heartbeat")
    await node_worker.kill()
    await db.command("profile", 0)

    told = promises()
    kinds: Counter[str] = Counter()
    for query, update in await _writes(db):
        if "$setOnInsert" in update:
            assert query.keys() == {"name", "uniqueKey", "status"}
            assert set(query["status"]["$in"]) == {"pending", "processing"}
            kinds["store under a key"] += 1
            continue
        (kind,) = [name for name, promise in told.items() if _fits(promise, query, update)]
        kinds[kind] += 1

    often = {"heartbeat", "claim", "fail, runs left"}
    assert {kind: count for kind, count in kinds.items() if kind not in often} == {
        "store under a key": 1,
        "complete": 1,
        "next tick": 1,
        "fail, no runs left": 1,
        "recover": 1,
        "retry_job": 1,
    }
    assert kinds["claim"] >= 4
    assert kinds["heartbeat"] >= 1
    assert kinds["fail, runs left"] >= 1


async def test_node_has_its_ten_indexes_beside_those_of_python(
    start_node_worker: StartNodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    await Monque(db).initialize()
    of_python = set(await jobs_in(db).index_information())
    await start_node_worker()
    assert len(set(await jobs_in(db).index_information()) - of_python) == 10
