"""Retention: deleting old finished jobs, or warning that nothing deletes them."""

from __future__ import annotations

import logging
import uuid
from datetime import timedelta
from typing import TYPE_CHECKING

from monque_core.durations import to_timedelta
from monque_core.scheduler.loop import Periodic

if TYPE_CHECKING:
    from monque_core.clock import Clock
    from monque_core.options import JobRetention
    from monque_core.scheduler.event_publisher import EventPublisher
    from monque_core.store.store import Store

_BATCH_SIZE = 1000
_LEASE_KEY = "retention"
_LEASE_DURATION = timedelta(seconds=60)
_LOOK_INTERVAL = timedelta(hours=1)
MANY_JOBS = 100_000
"""Warn at this many stored jobs if none is ever deleted, and again when it doubles."""

logger = logging.getLogger("monque")


class Retention(Periodic):
    """Deletes finished jobs past their age every interval, in one instance at a time."""

    def __init__(
        self, store: Store, clock: Clock, retention: JobRetention, publisher: EventPublisher
    ) -> None:
        super().__init__(publisher.errored, to_timedelta(retention.interval))
        self._store = store
        self._clock = clock
        self._ages = retention.ages
        self._holder = str(uuid.uuid4())

    async def _tick(self) -> None:
        if not await self._may_go_on():
            return
        try:
            for status, age in self._ages.items():
                await self._delete(status, age)
        finally:
            await self._store.leases.give_back(_LEASE_KEY, self._holder)

    async def _delete(self, status: str, age: timedelta) -> None:
        before = self._clock.now() - age
        while await self._store.finished.delete(status, before, _BATCH_SIZE) == _BATCH_SIZE:
            if not await self._may_go_on():
                return

    async def _may_go_on(self) -> bool:
        taken = await self._store.leases.take(_LEASE_KEY, self._holder, _LEASE_DURATION)
        return taken is not None


class GrowthWarning(Periodic):
    """Warns about a growing collection if `job_retention` was never set."""

    def __init__(self, store: Store, publisher: EventPublisher) -> None:
        super().__init__(publisher.errored, _LOOK_INTERVAL)
        self._finished = store.finished
        self._enough = MANY_JOBS

    async def _run(self) -> None:
        await self._tick()
        await super()._run()

    async def _tick(self) -> None:
        stored = await self._finished.estimate_all()
        if stored >= self._enough:
            self._enough = 2 * stored
            logger.warning(
                "%s holds about %d jobs, and finished ones are never deleted: set job_retention, "
                "for example JobRetention(completed=timedelta(days=7)), or JobRetention() to keep "
                "them all",
                self._finished.collection_name,
                stored,
            )
