"""Slots: how many runs may overlap, per worker and over the whole instance."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from monque_core.scheduler.workers import Workers


class InstanceSlots:
    """The slots of the instance, which its sources of work share in turn."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        """How many runs of any source and name may overlap, None for no such limit."""
        self.taken = 0
        self.line: list[Slots] = []
        """The sources that share the limit; the one that took a slot last is at the end."""


class Slots:
    """The slots of one source; runs of a replaced worker still occupy theirs."""

    def __init__(self, workers: Workers, instance: InstanceSlots, wake: Callable[[], None]) -> None:
        self._workers = workers
        self._instance = instance
        self._wake = wake
        self._taken: Counter[str] = Counter()
        self._is_waiting = False
        self.instance_limit = instance.limit
        """How many runs of any name may overlap, None for no such limit."""
        if instance.limit is not None:
            instance.line.append(self)

    @property
    def are_shared(self) -> bool:
        """Whether other sources use slots of the same instance limit."""
        return len(self._instance.line) > 1

    def take(self, name: str) -> None:
        """Occupy a slot of this name, and go to the end of the line."""
        self._taken[name] += 1
        if self.instance_limit is not None:
            self._instance.taken += 1
            if self.are_shared:
                self._instance.line.remove(self)
                self._instance.line.append(self)

    def give_back(self, name: str) -> None:
        """Free a slot of this name."""
        self._taken[name] -= 1
        if self.instance_limit is not None:
            self._instance.taken -= 1
            self.wake_others()

    def set_waiting(self, names: Iterable[str]) -> None:
        """Record which names want slots, so that other sources leave this one its share."""
        self._is_waiting = any(self._own_free(name) for name in names)

    def wake_others(self) -> None:
        """Wake the other sources, since a slot may be free for them now."""
        for other in self._instance.line:
            if other is not self:
                other._wake()  # of the same class

    def free(self, name: str) -> int:
        """Return how many more runs of this name may start, by both limits."""
        own = max(0, self._workers.by_name[name].concurrency - self._taken[name])
        return own if self.instance_limit is None else min(own, self._share(self.instance_limit))

    def free_over_all(self) -> int:
        """Return how many more runs of any name may start."""
        own = sum(self._own_free(worker.name) for worker in self._workers)
        return own if self.instance_limit is None else min(own, self._share(self.instance_limit))

    @property
    def load(self) -> float:
        """Return the share of all slots that are taken."""
        most = sum(worker.concurrency for worker in self._workers)
        if self.instance_limit is not None:
            most = min(most, self.instance_limit)
        return sum(self._taken.values()) / most if most else 0.0

    def limit(self, name: str) -> int:
        """Return how many runs of this name may ever overlap."""
        own = self._workers.by_name[name].concurrency
        return own if self.instance_limit is None else min(own, self.instance_limit)

    def _own_free(self, name: str) -> int:
        return max(0, self._workers.by_name[name].concurrency - self._taken[name])

    def _share(self, instance_limit: int) -> int:
        """Return this source's part of the instance's free slots, dealt out along the line."""
        free = max(0, instance_limit - self._instance.taken)
        if not free or not self.are_shared:
            return free
        line = [one for one in self._instance.line if one is self or one._is_waiting]
        return len(range(line.index(self), free, len(line)))
