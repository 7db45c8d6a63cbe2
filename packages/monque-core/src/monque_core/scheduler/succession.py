"""Taking over from an instance whose process is known to have ended.

An instance that is only silent keeps its claims for three heartbeats, since it may still be alive.
A supervisor knows when its child process has ended, so the claims of that instance are recovered at
once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from monque_core.store.leases import lease_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from monque_core.clock import Clock
    from monque_core.scheduler.recovery import Recovery
    from monque_core.store.store import Store


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance in one process; others may have had the same id."""

    id: str
    holder: str
    """The unique holder that it takes its lease with."""


class Succession:
    """Recovers the claims, and frees the leases, of instances that have ended."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        recovery: Recovery,
        tasks: Mapping[tuple[str, str], Sequence[str]],
    ) -> None:
        self._store = store
        self._clock = clock
        self._recovery = recovery
        self._tasks = tasks

    async def take_over(self, dead: Instance) -> None:
        """Recover the claims and free the leases of an instance, unless it has released them.

        While its lease lasts, no other instance can have its id, and so no other has its claims.
        """
        from monque_core.store.tasks.planner_state import LEADER  # noqa: PLC0415  # slow, and rare

        key = lease_key(dead.id)
        lease = await self._store.leases.read(key)
        if lease is None or lease.holder != dead.holder or lease.is_expired:
            return
        await self._recovery.recover_instance(dead.id)
        now = self._clock.now()
        for (database, collection), names in self._tasks.items():
            records = self._store.tasks.records(database, collection, {})
            await records.queue.expire(dead.id, names, now)
        await self._store.leases.lay_down(LEADER, dead.id)
        await self._store.leases.give_back(key, dead.holder)
