"""What `monque doctor` asks about reactive tasks; nothing where none was ever declared."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from pymongo.errors import OperationFailure

from monque_core.cli.collection_checks import (
    LONGEST_MS,
    index_findings,
    living_instances,
    server_now,
    told,
)
from monque_core.cli.connection import leader_of
from monque_core.cli.findings import OK, PROBLEM, WARNING, Finding, check
from monque_core.cli.schedules import UNCLAIMED_AFTER
from monque_core.cli.times import brief, shown
from monque_core.store.driver import Driver
from monque_core.store.tasks.documents import records_name
from monque_core.store.tasks.indexes import task_indexes
from monque_core.store.tasks.planner_state import PlannerState
from monque_core.store.tasks.transitions import DIED, due
from monque_core.tasks.record import TaskStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monque_core.cli.findings import Check, Database
    from monque_core.store.tasks.declarations import DeclaredTask

_LONG_RECONCILIATION = timedelta(hours=1)
_LONGEST_REASON = 200
_START = "start a worker of the application that has the tasks"


def _progress(db: Database, collection: str) -> PlannerState:
    return PlannerState(Driver(db).collection(f"{collection}_meta"))


async def _planned(db: Database, collection: str) -> list[DeclaredTask]:
    """Read the tasks that some instance has, or had lately."""
    return await _progress(db, collection).declarations(await server_now(db))


@check("reactive tasks")
async def check_declarations(db: Database, collection: str) -> list[Finding]:
    """Ask whether every task that was declared still has an instance."""
    declared = await _progress(db, collection).all_declarations()
    if not declared:
        return []
    now = await server_now(db)
    return [
        Finding(
            WARNING,
            "reactive tasks",
            f"{(name := task.declaration.name)} is not planned any more: no instance had it since "
            f"{shown(task.seen_at)}",
            f"start a worker that has it; if it is gone for good, delete reactive:task:{name} "
            f"from {collection}_meta",
        )
        for task in declared
        if task.is_forgotten(now)
    ] or [Finding(OK, "reactive tasks", f"{len(declared)} declared")]


@check("leader")
async def check_leader(db: Database, collection: str) -> list[Finding]:
    """Ask whether somebody plans, although there are tasks to plan."""
    if not await _planned(db, collection):
        return []
    leader = await leader_of(db, collection)
    if leader is not None:
        return [Finding(OK, "leader", f"{leader} leads")]
    if await living_instances(db, collection):
        message = "instances are alive, but none of them plans reactive tasks"
        return [Finding(PROBLEM, "leader", message, _START)]
    message = "nobody plans reactive tasks"
    advice = f"{_START}; it catches up while the oplog reaches back, and scans everything after"
    return [Finding(WARNING, "leader", message, advice)]


@check("change streams")
async def check_change_streams(db: Database, collection: str) -> list[Finding]:
    """Ask whether the server tells of changes, and how far they have been planned."""
    databases = {task.declaration.database for task in await _planned(db, collection)}
    if not databases:
        return []
    advice = (
        "make the server a replica set and let the user of the workers open change streams; until "
        "then every document is examined again and again"
    )
    findings = [
        Finding(WARNING, "change streams", f"there is none of {name!r}: {refusal}", advice)
        for name in sorted(databases)
        if (refusal := await _refusal(db, name)) is not None
    ]
    if await leader_of(db, collection) is None:
        return findings or [Finding(OK, "change streams", "available")]
    now = await server_now(db)
    for place in await _progress(db, collection).streams():
        if place.database in databases and now - place.up_to > UNCLAIMED_AFTER:
            behind = brief(now - place.up_to)
            message = f"planning is {behind} behind the changes of {place.database!r}"
            slow = "look again soon; if it grows, the leader's log and its load tell why"
            findings.append(Finding(WARNING, "change streams", message, slow))
    return findings or [Finding(OK, "change streams", "available, and planning is up to date")]


async def _refusal(db: Database, name: str) -> str | None:
    """Open a change stream; give the reason why there is none."""
    try:
        async with await db.client[name].watch([{"$match": {"operationType": "none"}}]):
            return None
    except OperationFailure as error:
        return str((error.details or {}).get("errmsg") or error)


@check("task indexes")
async def check_task_indexes(db: Database, collection: str) -> list[Finding]:
    """Ask whether the records have all their indexes."""
    places = _by_place(await _planned(db, collection))
    return [
        finding
        for database, source in sorted(places)
        for finding in await index_findings(
            "task indexes", db.client[database][records_name(source)], task_indexes(), _START
        )
    ]


@check("broken tasks")
async def check_broken_tasks(db: Database, collection: str) -> list[Finding]:
    """Ask for tasks that cannot be planned at all."""
    planned = await _planned(db, collection)
    if not planned:
        return []
    advice = "mend its filter or watch; the leader tries again by itself"
    findings = [
        Finding(
            PROBLEM,
            "broken tasks",
            f"{task.declaration.name} cannot be planned: {_shortened(task.error)}",
            advice,
        )
        for task in planned
        if task.error is not None
    ]
    return findings or [Finding(OK, "broken tasks", "none")]


@check("reconciliation")
async def check_reconciliation(db: Database, collection: str) -> list[Finding]:
    """Ask for tasks whose documents should have been examined long ago."""
    planned = await _planned(db, collection)
    if not planned:
        return []
    limit = await server_now(db) - _LONG_RECONCILIATION
    advice = "nothing if the collection is large and a leader is at it; else the log tells why"
    findings = [
        Finding(
            WARNING,
            "reconciliation",
            f"{task.declaration.name} is to be examined since {shown(asked.asked_at)}: "
            f"{asked.reason}",
            advice,
        )
        for task in planned
        if (asked := task.reconciliation) is not None and asked.asked_at < limit
    ]
    return findings or [Finding(OK, "reconciliation", "none is pending for long")]


@check("parked documents")
async def check_parked_documents(db: Database, collection: str) -> list[Finding]:
    """Ask for documents that a task cannot be planned for."""
    planned = await _planned(db, collection)
    if not planned:
        return []
    progress = _progress(db, collection)
    counts = await progress.count_parked()
    if not counts:
        return [Finding(OK, "parked documents", "none")]
    (example,) = await progress.parked(limit=1)
    message = (
        f"{told(counts)}, such as {_shortened(repr(example.source_id))} of {example.task}: "
        f"{_shortened(example.error)}"
    )
    advice = "mend the documents, or the watch or filter, then monque reactive reconcile NAME"
    return [Finding(WARNING, "parked documents", message, advice)]


@check("failed tasks")
async def check_failed_tasks(db: Database, collection: str) -> list[Finding]:
    """Ask for records that were given up, and for those that ended their process."""
    planned = await _planned(db, collection)
    if not planned:
        return []
    given_up = {"status": TaskStatus.FAILED}
    failed = await _count(db, planned, given_up)
    poison = await _count(db, planned, {**given_up, "lastError": {"$regex": f"^{DIED}"}})
    findings = []
    if poison:
        message = f"given up after ending their process again and again: {told(poison)}"
        advice = "look at what ends the process; monque reactive list --error died has them"
        findings.append(Finding(PROBLEM, "failed tasks", message, advice))
    if failed:
        advice = (
            "look at them (monque reactive list --status failed), and once the cause is mended "
            "monque reactive retry --name NAME --status failed"
        )
        findings.append(Finding(WARNING, "failed tasks", told(failed), advice))
    return findings or [Finding(OK, "failed tasks", "none")]


@check("overdue tasks")
async def check_overdue_tasks(db: Database, collection: str) -> list[Finding]:
    """Ask for records that nobody claims, or whose process died and nobody takes them over."""
    planned = await _planned(db, collection)
    if not planned:
        return []
    overdue = await _count(db, planned, due(await server_now(db) - UNCLAIMED_AFTER))
    if not overdue:
        return [Finding(OK, "overdue tasks", "none")]
    message = f"due for more than {brief(UNCLAIMED_AFTER)}: {told(overdue)}"
    advice = "start more workers; if one never shrinks, no worker has that task"
    return [Finding(WARNING, "overdue tasks", message, advice)]


async def _count(
    db: Database, tasks: Sequence[DeclaredTask], condition: dict[str, Any]
) -> dict[str, int]:
    """Count the records that meet a condition, by task, the most first."""
    counts: dict[str, int] = {}
    for (database, source), names in _by_place(tasks).items():
        pipeline = [
            {"$match": {"task": {"$in": names}, **condition}},
            {"$group": {"_id": "$task", "count": {"$sum": 1}}},
        ]
        records = db.client[database][records_name(source)]
        async for row in await records.aggregate(pipeline, maxTimeMS=LONGEST_MS):
            counts[row["_id"]] = row["count"]
    return dict(sorted(counts.items(), key=lambda one: (-one[1], one[0])))


def _by_place(tasks: Sequence[DeclaredTask]) -> dict[tuple[str, str], list[str]]:
    places: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for task in tasks:
        one = task.declaration
        places[one.database, one.collection].append(one.name)
    return dict(places)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_REASON else f"{text[: _LONGEST_REASON - 1]}…"


REACTIVE_CHECKS: Final[Sequence[Check]] = (
    check_declarations,
    check_leader,
    check_change_streams,
    check_task_indexes,
    check_broken_tasks,
    check_reconciliation,
    check_parked_documents,
    check_failed_tasks,
    check_overdue_tasks,
)
