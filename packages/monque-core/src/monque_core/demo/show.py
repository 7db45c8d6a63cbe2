"""The demonstration itself: a MongoDB, an instance, steady work, and a reckoning."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pymongo import AsyncMongoClient

from monque_core.clock import ServerClock
from monque_core.demo.audit import Audit, Verdict
from monque_core.demo.meter import Meter
from monque_core.demo.view import Picture
from monque_core.demo.work import EMAIL, REMINDER, produce, register, schedule
from monque_core.local import LocalMongo
from monque_core.monque import Monque
from monque_core.signals import on_first_signal_async

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from pymongo.asynchronous.collection import AsyncCollection

    from monque_core.demo.view import View
    from monque_core.jobs.job import AnyJob

COLLECTION = "monque_jobs"
_PICTURE_GAP = 0.2
_MINUTE_TURNS_AFTER = 8.0
_LONGEST_DRAIN = 60.0


@dataclass(frozen=True, slots=True)
class Report:
    """How the demonstration went."""

    seconds: float
    total: int
    counts: dict[str, int]
    meter: Meter
    ticks: int
    verdict: Verdict


class MinuteClock:
    """This machine's clock, set forward so that a minute turns while somebody watches."""

    def __init__(self, turns_after: float) -> None:
        self._clock = ServerClock()
        now = self._clock.now().timestamp()
        self._shift = timedelta(seconds=-(now + turns_after) % 60)

    def now(self) -> datetime:
        """Give the time as the demonstration has it."""
        return self._clock.now() + self._shift


class Show:
    """One instance at work, watched for some seconds."""

    def __init__(self, client: AsyncMongoClient[dict[str, Any]], seconds: float) -> None:
        self._seconds = seconds
        self._clock = MinuteClock(min(_MINUTE_TURNS_AFTER, seconds / 2))
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
        self._meter = Meter(self._monque, self._clock, quiet=(EMAIL, REMINDER))
        self._next_tick = self._clock.now()
        self._monque.on("job:complete", self._follow_schedule)

    async def run(self, view: View, enough: asyncio.Event) -> Report:
        """Work until the time is up or it is enough, let the rest finish, and check the books."""
        async with self._monque:
            self._next_tick = (await schedule(self._monque, self._audit)).next_run_at
            with contextlib.closing(view):
                await self._produce(view, enough)
                await self._drain(view)
        return Report(
            seconds=self._meter.elapsed,
            total=self._audit.total,
            counts=await self._count(),
            meter=self._meter,
            ticks=self._audit.ticks,
            verdict=await self._audit.check(self._collection),
        )

    async def _produce(self, view: View, enough: asyncio.Event) -> None:
        producer = asyncio.create_task(produce(self._monque, self._audit, enough))
        while self._meter.elapsed < self._seconds and not enough.is_set() and not producer.done():
            await self._show(view, "running")
            await asyncio.wait([producer], timeout=_PICTURE_GAP)
        enough.set()
        await producer

    async def _drain(self, view: View) -> None:
        last = self._meter.elapsed + _LONGEST_DRAIN
        while self._audit.outstanding and self._meter.elapsed < last:
            await self._show(view, "finishing")
            await asyncio.sleep(_PICTURE_GAP)
        with contextlib.suppress(TimeoutError):
            await self._monque.run_until_idle(timeout=_LONGEST_DRAIN)
        await self._show(view, "finished")

    async def _show(self, view: View, phase: str) -> None:
        wait = self._next_tick - self._clock.now()
        counts = await self._count()
        view.show(Picture(phase, counts, self._meter, max(0.0, wait.total_seconds())))

    async def _count(self) -> dict[str, int]:
        pipeline = [{"$group": {"_id": "$status", "jobs": {"$sum": 1}}}]
        cursor = await self._collection.aggregate(pipeline)
        return {group["_id"]: group["jobs"] async for group in cursor}

    def _follow_schedule(self, event: Any) -> None:
        job: AnyJob = event.job
        if job.is_recurring:
            self._next_tick = job.next_run_at


async def perform(seconds: float, make_view: Callable[[], View]) -> Report:
    """Start a MongoDB and run the demonstration on it; Ctrl-C ends it early but in order."""
    enough = asyncio.Event()
    with on_first_signal_async(enough.set):
        async with LocalMongo() as mongo, AsyncMongoClient[dict[str, Any]](mongo.uri) as client:
            return await Show(client, seconds).run(make_view(), enough)
