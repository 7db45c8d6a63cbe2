"""How many runs may overlap, per worker and over all."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from monque_core.scheduler.capacity import Share
    from monque_core.scheduler.workers import Workers


class Slots:
    """The slots of one source; runs of a replaced worker still occupy theirs."""

    def __init__(self, workers: Workers, share: Share) -> None:
        self._workers = workers
        self._share = share
        self.instance_limit = share.limit
        """How many runs of any name may overlap, None for no such limit."""
        self._taken: Counter[str] = Counter()

    def take(self, name: str) -> None:
        """Occupy a slot of this name."""
        self._taken[name] += 1
        if self.instance_limit is not None:
            self._share.take()

    def give_back(self, name: str) -> None:
        """Free a slot of this name."""
        self._taken[name] -= 1
        if self.instance_limit is not None:
            self._share.give_back()

    @property
    def is_contested(self) -> bool:
        """Whether other sources want the same slots."""
        return self.instance_limit is not None and self._share.is_contested

    def set_waiting(self, names: Iterable[str]) -> None:
        """Record which names want slots, so that other sources leave this one its share."""
        self._share.is_waiting = any(self._own_free(name) for name in names)

    def wake_others(self) -> None:
        """Let other sources see what this one has left."""
        self._share.wake_others()

    def free(self, name: str) -> int:
        """Return how many more runs of this name may start, the instance's limit included."""
        own = max(0, self._workers[name].concurrency - self._taken[name])
        return own if self.instance_limit is None else min(own, self._share.free())

    def free_over_all(self) -> int:
        """Return how many more runs of any name may start."""
        own = sum(self._own_free(worker.name) for worker in self._workers)
        return own if self.instance_limit is None else min(own, self._share.free())

    def limit(self, name: str) -> int:
        """Return how many runs of this name may ever overlap."""
        own = self._workers[name].concurrency
        return own if self.instance_limit is None else min(own, self.instance_limit)

    def _own_free(self, name: str) -> int:
        return max(0, self._workers[name].concurrency - self._taken[name])
