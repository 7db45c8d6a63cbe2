"""The lease of an instance id: no two live instances share an id."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from monque_core.clock import adjust
from monque_core.errors import MonqueConnectionError
from monque_core.scheduler.loop import Periodic, end, wait_until
from monque_core.store.leases import lease_key

if TYPE_CHECKING:
    from monque_core.clock import Clock
    from monque_core.options import Options
    from monque_core.scheduler.event_publisher import EventPublisher
    from monque_core.store.store import Store

_LONGEST_LOOK_GAP = 0.5
_LAST_REPLY_SECONDS = 5.0


class InstanceLease(Periodic):
    """The lease, held from start to stop; its renewals also read the server's clock."""

    def __init__(
        self,
        store: Store,
        holder: str,
        clock: Clock,
        options: Options,
        publisher: EventPublisher,
    ) -> None:
        super().__init__(publisher.errored, options.heartbeat_interval)
        self._leases = store.leases
        self._stale_jobs = store.stale_jobs
        self._clock = clock
        self._instance_id = options.scheduler_instance_id
        self._key = lease_key(self._instance_id)
        self._holder = holder
        self._duration = options.stale_after

    async def take(self) -> None:
        """Take the lease; wait out a dead predecessor's, refuse a living one's."""
        await self.check()
        renewing = asyncio.create_task(self._renew())
        try:
            is_ours = await asyncio.shield(renewing)
        except asyncio.CancelledError:
            # The lease may have been acquired, and would keep a successor waiting.
            await asyncio.wait([renewing], timeout=_LAST_REPLY_SECONDS)
            await end(renewing)
            with contextlib.suppress(Exception):
                deadline = asyncio.get_running_loop().time() + _LAST_REPLY_SECONDS
                await wait_until(deadline, self.give_back())
            raise
        if not is_ours:
            raise self._taken()

    async def check(self) -> None:
        """Raise `MonqueConnectionError` if another live instance has this id."""
        first = await self._leases.read(self._key)
        current = first
        while current is not None and current.holder != self._holder and not current.is_expired:
            if first is not None and current.expires_at > first.expires_at:
                raise self._taken()
            await asyncio.sleep(min(_LONGEST_LOOK_GAP, self._interval / 4))
            current = await self._leases.read(self._key)
        # A Node instance has no lease: only the heartbeats of its jobs show that it is alive.
        if name := await self._stale_jobs.foreign_claim(self._clock.now()):
            raise self._taken(f", which runs a job {name} and is no instance of Python")

    async def give_back(self) -> None:
        """Release the lease, so that a successor with the same id starts at once."""
        await self._leases.give_back(self._key, self._holder)

    async def _tick(self) -> None:
        if not await self._renew():
            self._report(self._taken())

    async def _renew(self) -> bool:
        reading = await self._leases.take(self._key, self._holder, self._duration)
        if reading is None:
            return False
        adjust(self._clock, reading)
        return True

    def _taken(self, detail: str = "") -> MonqueConnectionError:
        return MonqueConnectionError(
            f"another live instance has the id {self._instance_id!r}{detail}; "
            "give each a scheduler_instance_id of its own, or leave it out"
        )
