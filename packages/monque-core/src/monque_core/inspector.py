"""The query API: read jobs, schedules and statistics."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, cast, get_args

from monque_core.display import brief_repr
from monque_core.errors import InvalidJobError
from monque_core.jobs.selector import JobSelector, check_selector
from monque_core.jobs.views import QueueStats, QueueView, QueueWorker
from monque_core.store.listing import Order, SortName
from monque_core.store.paging import PageRequest
from monque_core.validation import check_id, check_name, check_whole_number

if TYPE_CHECKING:
    from bson import ObjectId

    from monque_core.jobs.job import AnyJob
    from monque_core.jobs.selector import Statuses
    from monque_core.jobs.views import JobPage
    from monque_core.options import Options
    from monque_core.scheduler.workers import Worker, Workers
    from monque_core.store.paging import Direction
    from monque_core.store.statistics import Figures
    from monque_core.store.store import Store

_NEWEST_FIRST = Order("created_at", descending=True)


class Inspector(ABC):
    """The part of `Monque` that reads the collection and changes nothing."""

    _options: Options
    _store: Store
    _workers: Workers

    def __init__(self) -> None:
        super().__init__()
        self._figures: dict[str | None, tuple[float, Figures]] = {}

    @abstractmethod
    async def initialize(self) -> None:
        """Create indexes, recover stale jobs, check the instance id."""

    @abstractmethod
    def _running(self, name: str) -> int:
        """Return how many jobs of a name run here."""

    async def get_job(self, job_id: ObjectId | str) -> AnyJob | None:
        """Return a job by its id, an `ObjectId` or its text; None if there is no such job."""
        wanted = check_id(job_id)
        await self.initialize()
        return await self._store.listing.get(wanted)

    async def get_jobs(
        self,
        *,
        name: str | None = None,
        status: Statuses | None = None,
        limit: int = 100,
        skip: int = 0,
    ) -> list[AnyJob]:
        """Return jobs, the newest first, optionally of one name or status."""
        selector = JobSelector(name, status)
        check_whole_number("limit", limit, least=1, error=InvalidJobError)
        check_whole_number("skip", skip, least=0, error=InvalidJobError)
        await self.initialize()
        now = self._options.clock.now()
        return await self._store.listing.find(selector, _NEWEST_FIRST, limit, skip, now)

    async def get_jobs_with_cursor(
        self,
        *,
        cursor: str | None = None,
        limit: int = 50,
        direction: Direction = "forward",
        filter: JobSelector | None = None,
        sort: str = "-created_at",
    ) -> JobPage:
        """Return a page of jobs: the first one, or the one after or before a cursor.

        Pages are stable while jobs are added and change. `sort` is `created_at`, `updated_at` or
        `next_run_at`, with a minus for the latest first. Only `created_at` is fast on a collection
        of any size.
        """
        order = _order(sort)
        selector = JobSelector() if filter is None else check_selector(filter)
        request = PageRequest.parse(f"{sort} {selector.identity}", limit, cursor, direction)
        await self.initialize()
        now = self._options.clock.now()
        return await self._store.listing.page(selector, order, request, now)

    async def get_schedules(self, name: str | None = None) -> list[AnyJob]:
        """Return the recurring jobs, of all names or one, ordered by name."""
        if name is not None:
            check_name(name)
        await self.initialize()
        return await self._store.listing.schedules(name)

    async def get_queue_stats(self, name: str | None = None) -> QueueStats:
        """Return job counts per status, of all names or one; cached for `stats_cache_ttl`."""
        if name is not None:
            check_name(name)
        return (await self._counted(name)).total

    async def get_queue_view_summaries(self) -> list[QueueView]:
        """Return a summary of every name that is stored or has a worker here.

        The counts are cached for `stats_cache_ttl`.
        """
        stored = (await self._counted(None)).by_name
        workers = {worker.name: worker for worker in self._workers}
        return [
            QueueView(
                name,
                stored.get(name, QueueStats()),
                name in stored,
                self._worker_view(workers.get(name)),
            )
            for name in sorted(stored.keys() | workers.keys())
        ]

    def _worker_view(self, worker: Worker | None) -> QueueWorker | None:
        if worker is None:
            return None
        return QueueWorker(worker.concurrency, self._running(worker.name), worker.timeout)

    async def _counted(self, name: str | None) -> Figures:
        now = time.monotonic()
        self._figures = {key: each for key, each in self._figures.items() if each[0] > now}
        kept = self._figures.get(name)
        if kept is not None:
            return kept[1]
        await self.initialize()
        figures = await self._store.statistics.count(name)
        ttl = self._options.stats_cache_ttl.total_seconds()
        if ttl:
            self._figures[name] = (time.monotonic() + ttl, figures)
        return figures


def _order(sort: object) -> Order:
    by = sort.removeprefix("-") if isinstance(sort, str) else None
    if by not in get_args(SortName):
        known = ", ".join(get_args(SortName))
        raise ValueError(
            f"sort={brief_repr(sort)} must be one of {known}, with or without a leading minus"
        )
    return Order(cast("SortName", by), descending=by != sort)
