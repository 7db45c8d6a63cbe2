"""Taking over from an instance whose process is known to have ended.

An instance that merely falls silent keeps its claims for three heartbeats, since it may come back.
One whose end somebody has seen, as a supervisor sees its child's, does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from monque_core.scheduler.lease import lease_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from monque_core.clock import Clock
    from monque_core.scheduler.recovery import Recovery
    from monque_core.store.store import Store


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance in one process, whichever others have or had its id."""

    id: str
    holder: str
    """What it has signed its lease with, which no other does."""


class Succession:
    """What a successor does for an instance that has ended."""

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
        """Recover its claims and free its leases, unless it has given them back itself.

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
