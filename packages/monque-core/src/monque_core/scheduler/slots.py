"""How many runs may overlap, per worker and over all."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from monque_core.scheduler.capacity import Capacity, Member
    from monque_core.scheduler.workers import Workers


class Slots:
    """The slots of one source; a replaced worker's runs still take theirs."""

    def __init__(self, workers: Workers, capacity: Capacity, member: Member) -> None:
        self._workers = workers
        self._capacity = capacity
        self._member = member
        self._taken: Counter[str] = Counter()

    def take(self, name: str) -> None:
        """Occupy a slot of this name."""
        self._taken[name] += 1
        self._capacity.take(self._member)

    def give_back(self, name: str) -> None:
        """Free a slot of this name."""
        self._taken[name] -= 1
        self._capacity.give_back(self._member)

    def poke_others(self) -> None:
        """Let other sources see that this one has looked, and what it left."""
        self._capacity.poke_others(self._member)

    def own_free(self, name: str) -> int:
        """Tell how many more runs of this name its worker would take."""
        return max(0, self._workers[name].concurrency - self._taken[name])

    def free(self, name: str) -> int:
        """Tell how many more runs of this name may start, the instance's limit included."""
        own = self._workers[name].concurrency - self._taken[name]
        if self._capacity.limit is not None:
            own = min(own, self._capacity.free_for(self._member) or 0)
        return max(0, own)

    def free_in_all(self) -> int:
        """Tell how many more runs may start here, of whatever name."""
        free = sum(self.own_free(worker.name) for worker in self._workers)
        if self._capacity.limit is not None:
            free = min(free, self._capacity.free_for(self._member) or 0)
        return free

    @property
    def instance_limit(self) -> int | None:
        """Tell how many runs of whatever name may overlap, None for no such limit."""
        return self._capacity.limit

    def limit(self, name: str) -> int:
        """Tell how many runs of this name may ever overlap."""
        own = self._workers[name].concurrency
        return own if self._capacity.limit is None else min(own, self._capacity.limit)
