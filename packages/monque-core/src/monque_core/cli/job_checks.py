"""The checks of `monque doctor` for jobs and their indexes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from monque_core.cli.doctor import CheckResult, check, ok, problem, warning
from monque_core.cli.schedules import UNCLAIMED_AFTER
from monque_core.cli.times import format_duration, format_time
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
from monque_core.store.stale_jobs import stale
from monque_core.store.transitions import COUNTED_CLAIMS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pymongo import IndexModel
    from pymongo.asynchronous.collection import AsyncCollection

    from monque_core.cli.doctor import Check, Database

_INDEX_PREFIX = "monque_py_"
_UNUSED_FOR = timedelta(days=7)
_MANY_FINISHED = 10_000
_MANY_INTERRUPTIONS = 2
_MOST_NAMES = 5
QUERY_LIMIT_MS = 30_000
_CREATE_INDEXES = "start a worker, or call initialize() of a Monque on this collection once"


async def server_now(db: Database) -> datetime:
    """Return the time of the server."""
    server: datetime = (await db.command("hello"))["localTime"]
    return server.astimezone(UTC)


@check("indexes")
async def check_indexes(db: Database, collection: str) -> list[CheckResult]:
    """Check that all indexes exist with the right definition."""
    if collection not in await db.list_collection_names(filter={"name": collection}):
        message = f"the collection {collection!r} does not exist in {db.name!r}"
        return [warning(message, ("if it should exist, check --database and --collection"))]
    wanted = job_indexes(retention=False)
    return await check_index_definitions(db[collection], wanted, _CREATE_INDEXES)


async def check_index_definitions(
    collection: AsyncCollection[dict[str, Any]],
    indexes: Sequence[IndexModel],
    advice: str,
) -> list[CheckResult]:
    """Compare the indexes of a collection with the expected definitions."""
    stored = {index["name"]: dict(index) async for index in await collection.list_indexes()}
    results = []
    for wanted in (index.document for index in indexes):
        name = wanted["name"]
        found, where = stored.get(name), f"{name} of {collection.name}"
        if found is None:
            results.append(problem(f"{where} is missing", advice))
        elif _definition(found) != _definition(wanted):
            message = f"{where} has a different definition"
            results.append(problem(message, f"drop it, then {advice}"))
    if results:
        return results
    ours = sum(name.startswith(_INDEX_PREFIX) for name in stored)
    return [ok(f"all {ours} of {collection.name} exist")]


def _definition(index: dict[str, Any]) -> tuple[object, ...]:
    return (
        [*dict(index["key"]).items()],
        bool(index.get("unique")),
        index.get("partialFilterExpression"),
    )


@check("index use")
async def check_index_use(db: Database, collection: str) -> list[CheckResult]:
    """Check that every index that is not ours is used."""
    if collection not in await db.list_collection_names(filter={"name": collection}):
        return []
    uses: dict[str, int] = {}
    since: dict[str, datetime] = {}
    # A sharded cluster returns one row per shard.
    async for row in await db[collection].aggregate([{"$indexStats": {}}]):
        name, accesses = row["name"], row["accesses"]
        uses[name] = uses.get(name, 0) + int(accesses["ops"])
        since[name] = min(since.get(name, accesses["since"]), accesses["since"])
    now = await server_now(db)
    results = [
        warning(
            f"{name} has not been used since {format_time(since[name])}",
            "it slows down every write: drop it if nobody needs it",
        )
        for name, count in uses.items()
        if not count
        and not name.startswith(_INDEX_PREFIX)
        and name != "_id_"
        and now - since[name].astimezone(UTC) > _UNUSED_FOR
    ]
    counts = ", ".join(
        f"{name.removeprefix(_INDEX_PREFIX)} {uses[name]}"
        for name in sorted(uses)
        if _INDEX_PREFIX in name
    )
    return results or [ok(counts or "no statistics")]


@check("retention")
async def check_retention(db: Database, collection: str) -> list[CheckResult]:
    """Check that finished jobs do not accumulate."""
    stored = await db[collection].index_information()
    if not stored:
        return []
    if RETENTION in stored:
        return [ok("finished jobs are deleted after the retention period")]
    active = sum(
        [
            await db[collection].count_documents(part, hint=index, maxTimeMS=QUERY_LIMIT_MS)
            for part, index in ((PENDING, CLAIM), (PROCESSING, IN_PROCESS))
        ]
    )
    finished = max(0, await db[collection].estimated_document_count() - active)
    message = f"about {finished} finished job(s) are stored, and none is deleted automatically"
    if finished < _MANY_FINISHED:
        return [ok(message)]
    advice = (
        "set job_retention on the workers; to delete some now: "
        "monque jobs delete --status completed --older-than 30d"
    )
    return [warning(message, advice)]


@check("instances")
async def check_instances(db: Database, collection: str) -> list[CheckResult]:
    """Check that an instance is alive."""
    alive = await living_instances(db, collection)
    if alive:
        return [ok(f"{alive} alive")]
    advice = "start one: monque worker MODULE:ATTRIBUTE"
    return [warning("no worker is alive", advice)]


async def living_instances(db: Database, collection: str) -> int:
    """Count the instances with a valid lease."""
    condition = {"_id": {"$regex": "^instance:"}, "$expr": {"$gt": ["$expiresAt", "$$NOW"]}}
    return await db[f"{collection}_meta"].count_documents(condition)


@check("stale jobs")
async def check_stale_jobs(db: Database, collection: str) -> list[CheckResult]:
    """Check for jobs whose process died."""
    intervals = await db[collection].distinct("heartbeatInterval", PROCESSING)
    condition = stale(intervals, await server_now(db), Options().lock_timeout)
    count = await db[collection].count_documents(condition, maxTimeMS=QUERY_LIMIT_MS)
    if not count:
        return [ok("none")]
    message = f"{count} job(s) are claimed by instances that send no heartbeats"
    if await living_instances(db, collection):
        advice = "a live instance recovers them within one heartbeat interval; check again"
        return [warning(message, advice)]
    advice = "start a worker, which recovers them"
    return [problem(f"{message}, and no instance is alive", advice)]


@check("poison jobs")
async def check_poison_jobs(db: Database, collection: str) -> list[CheckResult]:
    """Check for poison jobs, which end the processes that run them."""
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
    advice = "list them with monque jobs list --name NAME, and find out why the process ends"
    results = []
    if suspects:
        message = f"interrupted {_MANY_INTERRUPTIONS} times or more: {top_counts(suspects)}"
        results.append(warning(message, advice))
    if given_up:
        message = f"failed for good after their process died repeatedly: {top_counts(given_up)}"
        results.append(problem(message, advice))
    return results or [ok("none")]


@check("overdue jobs")
async def check_overdue_jobs(db: Database, collection: str) -> list[CheckResult]:
    """Check for due jobs that no worker claims."""
    limit = await server_now(db) - UNCLAIMED_AFTER
    overdue = await _names(
        db,
        collection,
        {**PENDING, "nextRunAt": {"$lt": limit}, "repeatInterval": {"$not": {"$gt": ""}}},
    )
    if not overdue:
        return [ok("none")]
    message = f"due for more than {format_duration(UNCLAIMED_AFTER)}: {top_counts(overdue)}"
    advice = "start more workers; if a count never shrinks, no worker handles that name"
    return [warning(message, advice)]


@check("schedules")
async def check_schedules(db: Database, collection: str) -> list[CheckResult]:
    """Check for schedules that no worker runs."""
    limit = await server_now(db) - UNCLAIMED_AFTER
    condition = {**RECURRING, **PENDING, "nextRunAt": {"$lt": limit}}
    unclaimed = await _names(db, collection, condition)
    if not unclaimed:
        active = {**RECURRING, "status": {"$in": list(JobStatus.ACTIVE)}}
        count = await db[collection].count_documents(active, maxTimeMS=QUERY_LIMIT_MS)
        return [ok(f"{count}, none overdue")]
    message = f"overdue, and no worker claims them: {top_counts(unclaimed)}"
    advice = "start a worker that handles the name, or remove it with monque unschedule NAME"
    return [problem(message, advice)]


async def _names(db: Database, collection: str, condition: dict[str, Any]) -> dict[str, int]:
    """Count the jobs that match a condition by name, highest count first."""
    pipeline = [
        {"$match": condition},
        {"$group": {"_id": "$name", "count": {"$sum": 1}}},
        {"$sort": {"count": -1, "_id": 1}},
    ]
    return {
        str(row["_id"]): row["count"]
        async for row in await db[collection].aggregate(pipeline, maxTimeMS=QUERY_LIMIT_MS)
    }


def top_counts(counts: Mapping[str, int]) -> str:
    """Return the names with the highest counts as text."""
    names = [f"{name} ({count})" for name, count in [*counts.items()][:_MOST_NAMES]]
    rest = len(counts) - len(names)
    return ", ".join(names) + (f" and {rest} more names" if rest else "")


JOB_CHECKS: Final[Sequence[Check]] = (
    check_indexes,
    check_index_use,
    check_retention,
    check_instances,
    check_stale_jobs,
    check_poison_jobs,
    check_overdue_jobs,
    check_schedules,
)
