"""Counting task records, and measuring how far planning is behind."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from monque_core.store.expressions import date_or
from monque_core.store.statistics import count_rows
from monque_core.store.tasks.documents import records_name
from monque_core.store.tasks.planner_state import LEADER
from monque_core.tasks.record import TaskStatus
from monque_core.tasks.views import ReactiveStats, ReactiveTaskStats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monque_core.store.driver import Document, Driver
    from monque_core.store.leases import Leases
    from monque_core.store.tasks.declarations import DeclaredTask
    from monque_core.store.tasks.planner_state import PlannerState

_NO_TIME = timedelta(0)


class TaskStatistics:
    """Counts and lags of the reactive tasks."""

    def __init__(self, driver: Driver, planner_state: PlannerState, leases: Leases) -> None:
        self._driver = driver
        self._planner_state = planner_state
        self._leases = leases

    async def read(self, now: datetime) -> ReactiveStats:
        """Return the statistics of every declared task, by one aggregation per collection."""
        declared = await self._planner_state.all_declarations()
        parked = await self._planner_state.count_parked()
        by_place: defaultdict[tuple[str, str], list[DeclaredTask]] = defaultdict(list)
        for task in declared:
            by_place[task.declaration.database, task.declaration.collection].append(task)
        stats = [
            one
            for (database, collection), tasks in by_place.items()
            for one in await self._count(database, collection, tasks, parked, now)
        ]
        lease = await self._leases.read(LEADER)
        followed = {task.declaration.database for task in declared if not task.is_forgotten(now)}
        streams = [one for one in await self._planner_state.streams() if one.database in followed]
        return ReactiveStats(
            tasks=sorted(stats, key=lambda one: one.name),
            leader=None if lease is None or lease.is_expired else lease.holder,
            stream_lag=max((_lag(stream.up_to, now) for stream in streams), default=None),
        )

    async def _count(
        self,
        database: str,
        collection: str,
        tasks: Sequence[DeclaredTask],
        parked: dict[str, int],
        now: datetime,
    ) -> list[ReactiveTaskStats]:
        records = self._driver.collection(records_name(collection), database)
        pipeline = _pipeline(records.name, [task.declaration.name for task in tasks])
        rows = await count_rows(records, pipeline, f"the reactive tasks of {collection!r}")
        counts: defaultdict[str, dict[str, int]] = defaultdict(dict)
        oldest: dict[str, datetime] = {}
        for row in rows:
            name, status = row["_id"]["task"], row["_id"].get("status")
            if status in TaskStatus.ALL and "count" in row:
                counts[name][status] = row["count"]
            elif isinstance(row.get("oldest"), datetime):
                oldest[name] = row["oldest"]
        return [
            ReactiveTaskStats(
                name=(name := task.declaration.name),
                database=database,
                collection=collection,
                **counts[name],
                lag=_lag(oldest[name], now) if name in oldest else None,
                parked=parked.get(name, 0),
                reconciled_at=task.reconciled_at,
                reconciling=task.reconciliation is not None,
                error=task.error,
            )
            for task in tasks
        ]


def _pipeline(records: str, names: Sequence[str]) -> list[Document]:
    """Count from the index alone; read pending records only, for the time they were due."""
    ours: Document = {"task": {"$in": list(names)}}
    count = {"_id": {"task": "$task", "status": "$status"}, "count": {"$sum": 1}}
    oldest = {"_id": {"task": "$task"}, "oldest": {"$min": date_or("$dueAt", None)}}
    pending = [{"$match": {**ours, "status": TaskStatus.PENDING}}, {"$group": oldest}]
    return [
        {"$match": ours},
        {"$group": count},
        {"$unionWith": {"coll": records, "pipeline": pending}},
    ]


def _lag(since: datetime, now: datetime) -> timedelta:
    return max(_NO_TIME, now - since)
