"""Deleting finished jobs that are old enough, by one instance at a time."""

from __future__ import annotations

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


class Retention(Periodic):
    """Looks for finished jobs past their age every interval."""

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
