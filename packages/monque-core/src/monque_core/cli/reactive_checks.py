"""The checks of `monque doctor` for reactive tasks; no results if none are declared."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from pymongo.errors import OperationFailure

from monque_core.cli.checks import OK, PROBLEM, WARNING, CheckResult, check
from monque_core.cli.connection import leader_of
from monque_core.cli.job_checks import (
    QUERY_LIMIT_MS,
    check_index_definitions,
    living_instances,
    server_now,
    top_counts,
)
from monque_core.cli.schedules import UNCLAIMED_AFTER
from monque_core.cli.times import format_duration, format_time
from monque_core.store.driver import Driver
from monque_core.store.tasks.documents import records_name
from monque_core.store.tasks.indexes import task_indexes
from monque_core.store.tasks.planner_state import PlannerState
from monque_core.store.tasks.transitions import DIED, due
from monque_core.tasks.record import TaskStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monque_core.cli.checks import Check, Database
    from monque_core.store.tasks.declarations import DeclaredTask

_LONG_RECONCILIATION = timedelta(hours=1)
_LONGEST_REASON = 200
_START = "start a worker of the application that declares the tasks"


def _planner_state(db: Database, collection: str) -> PlannerState:
    return PlannerState(Driver(db).collection(f"{collection}_meta"))


async def _active_tasks(db: Database, collection: str) -> list[DeclaredTask]:
    """Return the tasks that an instance declares, or recently declared."""
    return await _planner_state(db, collection).declarations(await server_now(db))


@check("reactive tasks")
async def check_declarations(db: Database, collection: str) -> list[CheckResult]:
    """Check that an instance still declares every task."""
    declared = await _planner_state(db, collection).all_declarations()
    if not declared:
        return []
    now = await server_now(db)
    return [
        CheckResult(
            WARNING,
            "reactive tasks",
            f"{(name := task.declaration.name)} is no longer planned: no instance has declared "
            "it since "
            f"{format_time(task.seen_at)}",
            f"start a worker that declares it; if it was removed, delete reactive:task:{name} "
            f"from {collection}_meta",
        )
        for task in declared
        if task.is_forgotten(now)
    ] or [CheckResult(OK, "reactive tasks", f"{len(declared)} declared")]


@check("leader")
async def check_leader(db: Database, collection: str) -> list[CheckResult]:
    """Check that there is a leader if there are tasks."""
    if not await _active_tasks(db, collection):
        return []
    leader = await leader_of(db, collection)
    if leader is not None:
        return [CheckResult(OK, "leader", f"{leader} is the leader")]
    if await living_instances(db, collection):
        message = "instances are alive, but none is the leader"
        return [CheckResult(PROBLEM, "leader", message, _START)]
    message = "there is no leader"
    advice = (
        f"{_START}; it catches up from the oplog, or examines all documents if that is too short"
    )
    return [CheckResult(WARNING, "leader", message, advice)]


@check("change streams")
async def check_change_streams(db: Database, collection: str) -> list[CheckResult]:
    """Check that change streams are available, and how far planning is behind."""
    databases = {task.declaration.database for task in await _active_tasks(db, collection)}
    if not databases:
        return []
    advice = (
        "make the server a replica set, and grant the user of the workers changeStream; until then "
        "all documents are examined periodically"
    )
    results = [
        CheckResult(WARNING, "change streams", f"not available for {name!r}: {refusal}", advice)
        for name in sorted(databases)
        if (refusal := await _refusal(db, name)) is not None
    ]
    if await leader_of(db, collection) is None:
        return results or [CheckResult(OK, "change streams", "available")]
    now = await server_now(db)
    for place in await _planner_state(db, collection).streams():
        if place.database in databases and now - place.up_to > UNCLAIMED_AFTER:
            behind = format_duration(now - place.up_to)
            message = f"planning is {behind} behind the changes of {place.database!r}"
            slow = "check again soon; if it grows, look at the log and the load of the leader"
            results.append(CheckResult(WARNING, "change streams", message, slow))
    return results or [CheckResult(OK, "change streams", "available, and planning is up to date")]


async def _refusal(db: Database, name: str) -> str | None:
    """Open a change stream; return the error of the server, None if it works."""
    try:
        async with await db.client[name].watch([{"$match": {"operationType": "none"}}]):
            return None
    except OperationFailure as error:
        return str((error.details or {}).get("errmsg") or error)


@check("task indexes")
async def check_task_indexes(db: Database, collection: str) -> list[CheckResult]:
    """Check that the record collections have all indexes."""
    places = _by_collection(await _active_tasks(db, collection))
    return [
        result
        for database, source in sorted(places)
        for result in await check_index_definitions(
            "task indexes", db.client[database][records_name(source)], task_indexes(), _START
        )
    ]


@check("broken tasks")
async def check_broken_tasks(db: Database, collection: str) -> list[CheckResult]:
    """Check for tasks that cannot be planned at all."""
    planned = await _active_tasks(db, collection)
    if not planned:
        return []
    advice = "fix its filter or watch; the leader retries automatically"
    results = [
        CheckResult(
            PROBLEM,
            "broken tasks",
            f"{task.declaration.name} cannot be planned: {_shortened(task.error)}",
            advice,
        )
        for task in planned
        if task.error is not None
    ]
    return results or [CheckResult(OK, "broken tasks", "none")]


@check("reconciliation")
async def check_reconciliation(db: Database, collection: str) -> list[CheckResult]:
    """Check for reconciliations that take too long."""
    planned = await _active_tasks(db, collection)
    if not planned:
        return []
    limit = await server_now(db) - _LONG_RECONCILIATION
    advice = (
        "wait if the collection is large and there is a leader; otherwise read the log of the "
        "leader"
    )
    results = [
        CheckResult(
            WARNING,
            "reconciliation",
            f"{task.declaration.name} has waited since {format_time(asked.asked_at)}: "
            f"{asked.reason}",
            advice,
        )
        for task in planned
        if (asked := task.reconciliation) is not None and asked.asked_at < limit
    ]
    return results or [CheckResult(OK, "reconciliation", "none is overdue")]


@check("parked documents")
async def check_parked_documents(db: Database, collection: str) -> list[CheckResult]:
    """Check for documents for which a task cannot be planned."""
    planned = await _active_tasks(db, collection)
    if not planned:
        return []
    progress = _planner_state(db, collection)
    counts = await progress.count_parked()
    if not counts:
        return [CheckResult(OK, "parked documents", "none")]
    (example,) = await progress.parked(limit=1)
    message = (
        f"{top_counts(counts)}, such as {_shortened(repr(example.source_id))} of {example.task}: "
        f"{_shortened(example.error)}"
    )
    advice = "fix the documents, the watch or the filter, then run monque reactive reconcile NAME"
    return [CheckResult(WARNING, "parked documents", message, advice)]


@check("failed tasks")
async def check_failed_tasks(db: Database, collection: str) -> list[CheckResult]:
    """Check for failed records, and for those whose process died."""
    planned = await _active_tasks(db, collection)
    if not planned:
        return []
    given_up = {"status": TaskStatus.FAILED}
    failed = await _count(db, planned, given_up)
    poison = await _count(db, planned, {**given_up, "lastError": {"$regex": f"^{DIED}"}})
    results = []
    if poison:
        message = f"failed for good after their process died repeatedly: {top_counts(poison)}"
        advice = (
            "list them with monque reactive list --error died, and find out why the process ends"
        )
        results.append(CheckResult(PROBLEM, "failed tasks", message, advice))
    if failed:
        advice = (
            "list them with monque reactive list --status failed; once the cause is fixed, run "
            "monque reactive retry --name NAME --status failed"
        )
        results.append(CheckResult(WARNING, "failed tasks", top_counts(failed), advice))
    return results or [CheckResult(OK, "failed tasks", "none")]


@check("overdue tasks")
async def check_overdue_tasks(db: Database, collection: str) -> list[CheckResult]:
    """Check for due records that no worker claims or recovers."""
    planned = await _active_tasks(db, collection)
    if not planned:
        return []
    overdue = await _count(db, planned, due(await server_now(db) - UNCLAIMED_AFTER))
    if not overdue:
        return [CheckResult(OK, "overdue tasks", "none")]
    message = f"due for more than {format_duration(UNCLAIMED_AFTER)}: {top_counts(overdue)}"
    advice = "start more workers; if a count never shrinks, no worker handles that task"
    return [CheckResult(WARNING, "overdue tasks", message, advice)]


async def _count(
    db: Database, tasks: Sequence[DeclaredTask], condition: dict[str, Any]
) -> dict[str, int]:
    """Count the records that match a condition by task, highest count first."""
    counts: dict[str, int] = {}
    for (database, source), names in _by_collection(tasks).items():
        pipeline = [
            {"$match": {"task": {"$in": names}, **condition}},
            {"$group": {"_id": "$task", "count": {"$sum": 1}}},
        ]
        records = db.client[database][records_name(source)]
        async for row in await records.aggregate(pipeline, maxTimeMS=QUERY_LIMIT_MS):
            counts[row["_id"]] = row["count"]
    return dict(sorted(counts.items(), key=lambda one: (-one[1], one[0])))


def _by_collection(tasks: Sequence[DeclaredTask]) -> dict[tuple[str, str], list[str]]:
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
