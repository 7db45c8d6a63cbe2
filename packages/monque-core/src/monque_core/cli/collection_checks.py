"""What `monque doctor` asks about the jobs and their indexes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from monque_core.cli.findings import OK, PROBLEM, WARNING, Finding, check
from monque_core.cli.schedules import UNCLAIMED_AFTER
from monque_core.cli.times import brief, shown
from monque_core.jobs.job import JobStatus
from monque_core.options import Options
from monque_core.store.indexes import (
    CLAIM,
    IN_PROCESS,
    PENDING,
    PROCESSING,
    RECURRING,
    RETENTION,
    job_indexes,
)
from monque_core.store.staleness import stale
from monque_core.store.transitions import COUNTED_CLAIMS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pymongo import IndexModel
    from pymongo.asynchronous.collection import AsyncCollection

    from monque_core.cli.findings import Check, Database

_OURS = "monque_py_"
_UNUSED_FOR = timedelta(days=7)
_MANY_FINISHED = 10_000
_MANY_INTERRUPTIONS = 2
_MOST_NAMES = 5
LONGEST_MS = 30_000
_CREATE_INDEXES = "start a worker, or call initialize() of a Monque on this collection once"


async def server_now(db: Database) -> datetime:
    """Ask the server for the time."""
    server: datetime = (await db.command("hello"))["localTime"]
    return server.astimezone(UTC)


@check("indexes")
async def check_indexes(db: Database, collection: str) -> list[Finding]:
    """Ask whether all indexes are there, as they should be."""
    if collection not in await db.list_collection_names(filter={"name": collection}):
        message = f"there is no collection {collection!r} in {db.name!r} yet"
        return [Finding(WARNING, "indexes", message, "check --database and --collection")]
    wanted = job_indexes(retention=False)
    return await index_findings("indexes", db[collection], wanted, _CREATE_INDEXES)


async def index_findings(
    subject: str,
    collection: AsyncCollection[dict[str, Any]],
    indexes: Sequence[IndexModel],
    advice: str,
) -> list[Finding]:
    """Compare the indexes of a collection with those that it should have."""
    stored = {index["name"]: dict(index) async for index in await collection.list_indexes()}
    findings = []
    for wanted in (index.document for index in indexes):
        name = wanted["name"]
        found, where = stored.get(name), f"{name} of {collection.name}"
        if found is None:
            findings.append(Finding(PROBLEM, subject, f"{where} is missing", advice))
        elif _shape(found) != _shape(wanted):
            message = f"{where} has another shape"
            findings.append(Finding(PROBLEM, subject, message, f"drop it, then {advice}"))
    if findings:
        return findings
    ours = sum(name.startswith(_OURS) for name in stored)
    return [Finding(OK, subject, f"all {ours} of {collection.name} are there")]


def _shape(index: dict[str, Any]) -> tuple[object, ...]:
    return (
        [*dict(index["key"]).items()],
        bool(index.get("unique")),
        index.get("partialFilterExpression"),
    )


@check("index use")
async def check_index_use(db: Database, collection: str) -> list[Finding]:
    """Ask whether every index is of use to somebody."""
    if collection not in await db.list_collection_names(filter={"name": collection}):
        return []
    uses: dict[str, int] = {}
    since: dict[str, datetime] = {}
    # A cluster counts on every shard by itself.
    async for row in await db[collection].aggregate([{"$indexStats": {}}]):
        name, accesses = row["name"], row["accesses"]
        uses[name] = uses.get(name, 0) + int(accesses["ops"])
        since[name] = min(since.get(name, accesses["since"]), accesses["since"])
    now = await server_now(db)
    findings = [
        Finding(
            WARNING,
            "index use",
            f"{name} was not used since {shown(since[name])}",
            "every change of a job pays for it: drop it if nobody needs it",
        )
        for name, count in uses.items()
        if not count
        and not name.startswith(_OURS)
        and name != "_id_"
        and now - since[name].astimezone(UTC) > _UNUSED_FOR
    ]
    counts = ", ".join(
        f"{name.removeprefix(_OURS)} {uses[name]}" for name in sorted(uses) if _OURS in name
    )
    return findings or [Finding(OK, "index use", counts or "not counted")]


@check("retention")
async def check_retention(db: Database, collection: str) -> list[Finding]:
    """Ask whether finished jobs pile up."""
    stored = await db[collection].index_information()
    if not stored:
        return []
    if RETENTION in stored:
        return [Finding(OK, "retention", "finished jobs are deleted by their age")]
    active = sum(
        [
            await db[collection].count_documents(part, hint=index, maxTimeMS=LONGEST_MS)
            for part, index in ((PENDING, CLAIM), (PROCESSING, IN_PROCESS))
        ]
    )
    finished = max(0, await db[collection].estimated_document_count() - active)
    message = f"about {finished} finished job(s) are stored, and none is ever deleted"
    if finished < _MANY_FINISHED:
        return [Finding(OK, "retention", message)]
    advice = (
        "set job_retention on the workers; once by hand: "
        "monque jobs delete --status completed --older-than 30d"
    )
    return [Finding(WARNING, "retention", message, advice)]


@check("instances")
async def check_instances(db: Database, collection: str) -> list[Finding]:
    """Ask whether anybody is there to run jobs."""
    alive = await living_instances(db, collection)
    if alive:
        return [Finding(OK, "instances", f"{alive} alive")]
    advice = "start one: monque worker MODULE:ATTRIBUTE"
    return [Finding(WARNING, "instances", "no worker is alive", advice)]


async def living_instances(db: Database, collection: str) -> int:
    """Count the instances whose lease holds."""
    condition = {"_id": {"$regex": "^instance:"}, "$expr": {"$gt": ["$expiresAt", "$$NOW"]}}
    return await db[f"{collection}_meta"].count_documents(condition)


@check("stale jobs")
async def check_stale_jobs(db: Database, collection: str) -> list[Finding]:
    """Ask for jobs whose process died."""
    intervals = await db[collection].distinct("heartbeatInterval", PROCESSING)
    condition = stale(intervals, await server_now(db), Options().lock_timeout)
    count = await db[collection].count_documents(condition, maxTimeMS=LONGEST_MS)
    if not count:
        return [Finding(OK, "stale jobs", "none")]
    message = f"{count} job(s) are claimed by instances that are silent"
    if await living_instances(db, collection):
        advice = "a live instance brings them back within a heartbeat; look again then"
        return [Finding(WARNING, "stale jobs", message, advice)]
    advice = "start a worker, which brings them back"
    return [Finding(PROBLEM, "stale jobs", f"{message}, and nobody is alive", advice)]


@check("poison jobs")
async def check_poison_jobs(db: Database, collection: str) -> list[Finding]:
    """Ask for jobs that kill the processes they run in."""
    fails = {"$ifNull": ["$failCount", 0]}
    running = {"$cond": [{"$eq": ["$status", JobStatus.PROCESSING]}, 1, 0]}
    interruptions = {"$subtract": [COUNTED_CLAIMS, {"$add": [fails, running]}]}
    suspects = await _names(
        db,
        collection,
        {
            "status": {"$in": list(JobStatus.ACTIVE)},
            "claims": {"$gte": _MANY_INTERRUPTIONS},
            "$expr": {"$gte": [interruptions, _MANY_INTERRUPTIONS]},
        },
    )
    given_up = await _names(
        db,
        collection,
        {"status": JobStatus.FAILED, "failReason": {"$regex": "^the process running this job"}},
    )
    advice = "look at them (monque jobs list --name NAME), and at what ends the process"
    findings = []
    if suspects:
        message = f"interrupted {_MANY_INTERRUPTIONS} times or more: {told(suspects)}"
        findings.append(Finding(WARNING, "poison jobs", message, advice))
    if given_up:
        message = f"given up after ending their process again and again: {told(given_up)}"
        findings.append(Finding(PROBLEM, "poison jobs", message, advice))
    return findings or [Finding(OK, "poison jobs", "none")]


@check("overdue jobs")
async def check_overdue_jobs(db: Database, collection: str) -> list[Finding]:
    """Ask for jobs that nobody claims."""
    limit = await server_now(db) - UNCLAIMED_AFTER
    overdue = await _names(
        db,
        collection,
        {**PENDING, "nextRunAt": {"$lt": limit}, "repeatInterval": {"$not": {"$gt": ""}}},
    )
    if not overdue:
        return [Finding(OK, "overdue jobs", "none")]
    message = f"due for more than {brief(UNCLAIMED_AFTER)}: {told(overdue)}"
    advice = "start more workers; if one never shrinks, no worker has that name"
    return [Finding(WARNING, "overdue jobs", message, advice)]


@check("schedules")
async def check_schedules(db: Database, collection: str) -> list[Finding]:
    """Ask for schedules that nobody runs."""
    limit = await server_now(db) - UNCLAIMED_AFTER
    condition = {**RECURRING, **PENDING, "nextRunAt": {"$lt": limit}}
    unclaimed = await _names(db, collection, condition)
    if not unclaimed:
        active = {**RECURRING, "status": {"$in": list(JobStatus.ACTIVE)}}
        count = await db[collection].count_documents(active, maxTimeMS=LONGEST_MS)
        return [Finding(OK, "schedules", f"{count}, each claimed when due")]
    message = f"overdue, and nobody claims them: {told(unclaimed)}"
    advice = "start a worker that has the name, or monque unschedule NAME"
    return [Finding(PROBLEM, "schedules", message, advice)]


async def _names(db: Database, collection: str, condition: dict[str, Any]) -> dict[str, int]:
    """Count the jobs that meet a condition, by name, the most first."""
    pipeline = [
        {"$match": condition},
        {"$group": {"_id": "$name", "count": {"$sum": 1}}},
        {"$sort": {"count": -1, "_id": 1}},
    ]
    return {
        str(row["_id"]): row["count"]
        async for row in await db[collection].aggregate(pipeline, maxTimeMS=LONGEST_MS)
    }


def told(counts: Mapping[str, int]) -> str:
    """Give the names with the most of something, and how many each has."""
    names = [f"{name} ({count})" for name, count in [*counts.items()][:_MOST_NAMES]]
    rest = len(counts) - len(names)
    return ", ".join(names) + (f" and {rest} more names" if rest else "")


COLLECTION_CHECKS: Final[Sequence[Check]] = (
    check_indexes,
    check_index_use,
    check_retention,
    check_instances,
    check_stale_jobs,
    check_poison_jobs,
    check_overdue_jobs,
    check_schedules,
)
