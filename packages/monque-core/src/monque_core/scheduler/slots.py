"""How many runs may overlap, per worker and over all."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from monque_core.scheduler.workers import Workers


class Slots:
    """The slots of this instance; a replaced worker's runs still take theirs."""

    def __init__(self, workers: Workers, instance_limit: int | None) -> None:
        self._workers = workers
        self._instance_limit = instance_limit
        self._taken: Counter[str] = Counter()
        self._total = 0

    def take(self, name: str) -> None:
        """Occupy a slot of this name."""
        self._taken[name] += 1
        self._total += 1

    def give_back(self, name: str) -> None:
        """Free a slot of this name."""
        self._taken[name] -= 1
        self._total -= 1

    def free(self, name: str) -> int:
        """Tell how many more runs of this name may start, the instance's limit included."""
        free = self._workers[name].concurrency - self._taken[name]
        if self._instance_limit is not None:
            free = min(free, self._instance_limit - self._total)
        return max(0, free)

    def free_in_all(self) -> int:
        """Tell how many more runs may start here, of whatever name."""
        free = sum(self.free(worker.name) for worker in self._workers)
        if self._instance_limit is not None:
            free = min(free, self._instance_limit - self._total)
        return max(0, free)

    @property
    def instance_limit(self) -> int | None:
        """Tell how many runs of whatever name may overlap, None for no such limit."""
        return self._instance_limit

    def limit(self, name: str) -> int:
        """Tell how many runs of this name may ever overlap."""
        own = self._workers[name].concurrency
        return own if self._instance_limit is None else min(own, self._instance_limit)
