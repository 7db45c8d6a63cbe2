"""The checks of `monque doctor` for reactive tasks; no results if none are declared."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pymongo.errors import OperationFailure

from monque_core.cli.connection import leader_of
from monque_core.cli.doctor import CheckResult, check, ok, problem, warning
from monque_core.cli.job_checks import (
    QUERY_LIMIT_MS,
    check_index_definitions,
    living_instances,
    server_now,
    top_counts,
)
from monque_core.cli.schedules import UNCLAIMED_AFTER
from monque_core.cli.times import format_duration, format_time
from monque_core.display import cut
from monque_core.store.driver import Driver
from monque_core.store.tasks.documents import records_name
from monque_core.store.tasks.indexes import task_indexes
from monque_core.store.tasks.planner_state import PlannerState
from monque_core.store.tasks.transitions import DIED, due
from monque_core.tasks.record import TaskStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import datetime

    from monque_core.cli.doctor import Check, Database
    from monque_core.store.tasks.declarations import DeclaredTask

    TaskCheck: TypeAlias = "Callable[[Planned], Awaitable[list[CheckResult]]]"

_LONG_RECONCILIATION = timedelta(hours=1)
_LONGEST_REASON = 200
_START = "start a worker of the application that declares the tasks"


def _planner_state(db: Database, collection: str) -> PlannerState:
    return PlannerState(Driver(db).collection(f"{collection}_meta"))


@dataclass(frozen=True, slots=True)
class Planned:
    """The tasks that an instance declares, or recently declared, and where they are stored."""

    db: Database
    collection: str
    state: PlannerState
    now: datetime
    tasks: Sequence[DeclaredTask]


def check_tasks(subject: str) -> Callable[[TaskCheck], Check]:
    """Name the subject of a check that is left out while there are no tasks."""

    def wrap(run: TaskCheck) -> Check:
        @check(subject)
        async def run_if_any(db: Database, collection: str) -> list[CheckResult]:
            state, now = _planner_state(db, collection), await server_now(db)
            found = Planned(db, collection, state, now, await state.declarations(now))
            return await run(found) if found.tasks else []

        return run_if_any

    return wrap


@check("reactive tasks")
async def check_declarations(db: Database, collection: str) -> list[CheckResult]:
    """Check that an instance still declares every task."""
    declared = await _planner_state(db, collection).all_declarations()
    if not declared:
        return []
    now = await server_now(db)
    return [
        warning(
            f"{(name := task.declaration.name)} is no longer planned: no instance has declared "
            "it since "
            f"{format_time(task.seen_at)}",
            f"start a worker that declares it; if it was removed, delete reactive:task:{name} "
            f"from {collection}_meta",
        )
        for task in declared
        if task.is_forgotten(now)
    ] or [ok(f"{len(declared)} declared")]


@check_tasks("leader")
async def check_leader(found: Planned) -> list[CheckResult]:
    """Check that there is a leader if there are tasks."""
    leader = await leader_of(found.db, found.collection)
    if leader is not None:
        return [ok(f"{leader} is the leader")]
    if await living_instances(found.db, found.collection):
        message = "instances are alive, but none is the leader"
        return [problem(message, _START)]
    message = "there is no leader"
    advice = (
        f"{_START}; it catches up from the oplog, or examines all documents if that is too short"
    )
    return [warning(message, advice)]


@check_tasks("change streams")
async def check_change_streams(found: Planned) -> list[CheckResult]:
    """Check that change streams are available, and how far planning is behind."""
    databases = {task.declaration.database for task in found.tasks}
    advice = (
        "make the server a replica set, and grant the user of the workers changeStream; until then "
        "all documents are examined periodically"
    )
    results = [
        warning(f"not available for {name!r}: {refusal}", advice)
        for name in sorted(databases)
        if (refusal := await _refusal(found.db, name)) is not None
    ]
    if await leader_of(found.db, found.collection) is None:
        return results or [ok("available")]
    for place in await found.state.streams():
        if place.database in databases and found.now - place.up_to > UNCLAIMED_AFTER:
            behind = format_duration(found.now - place.up_to)
            message = f"planning is {behind} behind the changes of {place.database!r}"
            slow = "check again soon; if it grows, look at the log and the load of the leader"
            results.append(warning(message, slow))
    return results or [ok("available, and planning is up to date")]


async def _refusal(db: Database, name: str) -> str | None:
    """Open a change stream; return the error of the server, None if it works."""
    try:
        async with await db.client[name].watch([{"$match": {"operationType": "none"}}]):
            return None
    except OperationFailure as error:
        return str((error.details or {}).get("errmsg") or error)


@check_tasks("task indexes")
async def check_task_indexes(found: Planned) -> list[CheckResult]:
    """Check that the record collections have all indexes."""
    places = _by_collection(found.tasks)
    return [
        result
        for database, source in sorted(places)
        for result in await check_index_definitions(
            found.db.client[database][records_name(source)], task_indexes(), _START
        )
    ]


@check_tasks("broken tasks")
async def check_broken_tasks(found: Planned) -> list[CheckResult]:
    """Check for tasks that cannot be planned at all."""
    advice = "fix its filter or watch; the leader retries automatically"
    results = [
        problem(
            f"{task.declaration.name} cannot be planned: {cut(task.error, _LONGEST_REASON)}", advice
        )
        for task in found.tasks
        if task.error is not None
    ]
    return results or [ok("none")]


@check_tasks("reconciliation")
async def check_reconciliation(found: Planned) -> list[CheckResult]:
    """Check for reconciliations that take too long."""
    limit = found.now - _LONG_RECONCILIATION
    advice = (
        "wait if the collection is large and there is a leader; otherwise read the log of the "
        "leader"
    )
    results = [
        warning(
            f"{task.declaration.name} has waited since {format_time(asked.asked_at)}: "
            f"{asked.reason}",
            advice,
        )
        for task in found.tasks
        if (asked := task.reconciliation) is not None and asked.asked_at < limit
    ]
    return results or [ok("none is overdue")]


@check_tasks("parked documents")
async def check_parked_documents(found: Planned) -> list[CheckResult]:
    """Check for documents for which a task cannot be planned."""
    counts = await found.state.count_parked()
    if not counts:
        return [ok("none")]
    (example,) = await found.state.parked(limit=1)
    source_id, error = (
        cut(text, _LONGEST_REASON) for text in (repr(example.source_id), example.error)
    )
    message = f"{top_counts(counts)}, such as {source_id} of {example.task}: {error}"
    advice = "fix the documents, the watch or the filter, then run monque reactive reconcile NAME"
    return [warning(message, advice)]


@check_tasks("failed tasks")
async def check_failed_tasks(found: Planned) -> list[CheckResult]:
    """Check for failed records, and for those whose process died."""
    given_up = {"status": TaskStatus.FAILED}
    failed = await _count(found, given_up)
    poison = await _count(found, {**given_up, "lastError": {"$regex": f"^{DIED}"}})
    results = []
    if poison:
        message = f"failed for good after their process died repeatedly: {top_counts(poison)}"
        advice = (
            "list them with monque reactive list --error died, and find out why the process ends"
        )
        results.append(problem(message, advice))
    if failed:
        advice = (
            "list them with monque reactive list --status failed; once the cause is fixed, run "
            "monque reactive retry --name NAME --status failed"
        )
        results.append(warning(top_counts(failed), advice))
    return results or [ok("none")]


@check_tasks("overdue tasks")
async def check_overdue_tasks(found: Planned) -> list[CheckResult]:
    """Check for due records that no worker claims or recovers."""
    overdue = await _count(found, due(found.now - UNCLAIMED_AFTER))
    if not overdue:
        return [ok("none")]
    message = f"due for more than {format_duration(UNCLAIMED_AFTER)}: {top_counts(overdue)}"
    advice = "start more workers; if a count never shrinks, no worker handles that task"
    return [warning(message, advice)]


async def _count(found: Planned, condition: dict[str, Any]) -> dict[str, int]:
    """Count the records that match a condition by task, highest count first."""
    counts: dict[str, int] = {}
    for (database, source), names in _by_collection(found.tasks).items():
        pipeline = [
            {"$match": {"task": {"$in": names}, **condition}},
            {"$group": {"_id": "$task", "count": {"$sum": 1}}},
        ]
        records = found.db.client[database][records_name(source)]
        async for row in await records.aggregate(pipeline, maxTimeMS=QUERY_LIMIT_MS):
            counts[row["_id"]] = row["count"]
    return dict(sorted(counts.items(), key=lambda one: (-one[1], one[0])))


def _by_collection(tasks: Sequence[DeclaredTask]) -> dict[tuple[str, str], list[str]]:
    places: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for task in tasks:
        one = task.declaration
        places[one.database, one.collection].append(one.name)
    return dict(places)


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
