"""The demonstration: one `Monque` under a steady workload, then an audit."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pymongo import AsyncMongoClient

from monque_core.clock import ServerClock
from monque_core.demo.audit import Audit, AuditResult
from monque_core.demo.metrics import DemoMetrics
from monque_core.demo.view import DemoSnapshot
from monque_core.demo.workload import EMAIL, REMINDER, produce, register, schedule
from monque_core.local import LocalMongo
from monque_core.monque import Monque
from monque_core.process import on_first_signal_async

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from pymongo.asynchronous.collection import AsyncCollection

    from monque_core.demo.view import View
    from monque_core.jobs.job import AnyJob

COLLECTION = "monque_jobs"
_REFRESH_SECONDS = 0.2
_MINUTE_BEGINS_AFTER = 8.0
_LONGEST_DRAIN = 60.0


@dataclass(frozen=True, slots=True)
class Report:
    """The results of the demonstration."""

    seconds: float
    total: int
    counts: dict[str, int]
    metrics: DemoMetrics
    schedule_runs: int
    result: AuditResult


class MinuteClock:
    """The server clock with an offset, so that a minute begins during the demonstration."""

    def __init__(self, begins_after: float) -> None:
        self._clock = ServerClock()
        now = self._clock.now().timestamp()
        self._offset = timedelta(seconds=-(now + begins_after) % 60)

    def now(self) -> datetime:
        """Return the time of the demonstration."""
        return self._clock.now() + self._offset


class Demo:
    """Runs the workload on one instance and reports on it."""

    def __init__(self, client: AsyncMongoClient[dict[str, Any]], seconds: float) -> None:
        self._seconds = seconds
        self._clock = MinuteClock(min(_MINUTE_BEGINS_AFTER, seconds / 2))
        database = client["monque_demo"]
        self._collection: AsyncCollection[dict[str, Any]] = database[COLLECTION]
        self._monque = Monque(
            database,
            collection_name=COLLECTION,
            base_retry_interval=0.25,
            clock=self._clock,
        )
        self._audit = Audit()
        self._monque.use(self._audit.count_run)
        register(self._monque)
        self._metrics = DemoMetrics(self._monque, self._clock, quiet=(EMAIL, REMINDER))
        self._next_run_at = self._clock.now()
        self._monque.on("job:complete", self._follow_schedule)

    async def run(self, view: View, stop_requested: asyncio.Event) -> Report:
        """Enqueue jobs until the time is up or a stop is requested, then drain and audit."""
        async with self._monque:
            self._next_run_at = (await schedule(self._monque, self._audit)).next_run_at
            with contextlib.closing(view):
                await self._produce(view, stop_requested)
                await self._drain(view)
        return Report(
            seconds=self._metrics.elapsed,
            total=self._audit.total,
            counts=await self._count(),
            metrics=self._metrics,
            schedule_runs=self._audit.schedule_runs,
            result=await self._audit.check(self._collection),
        )

    async def _produce(self, view: View, stop_requested: asyncio.Event) -> None:
        producer = asyncio.create_task(produce(self._monque, self._audit, stop_requested))
        while (
            self._metrics.elapsed < self._seconds
            and not stop_requested.is_set()
            and not producer.done()
        ):
            await self._show(view, "running")
            await asyncio.wait([producer], timeout=_REFRESH_SECONDS)
        stop_requested.set()
        await producer

    async def _drain(self, view: View) -> None:
        last = self._metrics.elapsed + _LONGEST_DRAIN
        while self._audit.outstanding and self._metrics.elapsed < last:
            await self._show(view, "finishing")
            await asyncio.sleep(_REFRESH_SECONDS)
        with contextlib.suppress(TimeoutError):
            await self._monque.run_until_idle(timeout=_LONGEST_DRAIN)
        await self._show(view, "finished")

    async def _show(self, view: View, phase: str) -> None:
        wait = self._next_run_at - self._clock.now()
        counts = await self._count()
        view.show(DemoSnapshot(phase, counts, self._metrics, max(0.0, wait.total_seconds())))

    async def _count(self) -> dict[str, int]:
        pipeline = [{"$group": {"_id": "$status", "jobs": {"$sum": 1}}}]
        cursor = await self._collection.aggregate(pipeline)
        return {group["_id"]: group["jobs"] async for group in cursor}

    def _follow_schedule(self, event: Any) -> None:
        job: AnyJob = event.job
        if job.is_recurring:
            self._next_run_at = job.next_run_at


async def run_demo(seconds: float, make_view: Callable[[], View]) -> Report:
    """Run the demonstration on a temporary MongoDB; Ctrl-C stops it early but cleanly."""
    stop_requested = asyncio.Event()
    with on_first_signal_async(stop_requested.set):
        async with LocalMongo() as mongo, AsyncMongoClient[dict[str, Any]](mongo.uri) as client:
            return await Demo(client, seconds).run(make_view(), stop_requested)
