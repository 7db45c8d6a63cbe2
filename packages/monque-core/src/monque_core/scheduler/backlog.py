"""Prefetched work: claimed before a slot is free, so that handlers wait for no round trip."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic

from monque_core.scheduler.fairness import Fairness
from monque_core.scheduler.source import W

if TYPE_CHECKING:
    from collections.abc import Iterable

    from monque_core.scheduler.runs import Run
    from monque_core.scheduler.slots import Slots


class Backlog(Generic[W]):
    """Claims that wait for a slot, by name, in the order they were made."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._waiting: dict[str, deque[Run[W]]] = {}
        self._fairness = Fairness()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def names(self) -> Iterable[str]:
        """Return the names that have work waiting."""
        return self._waiting

    def count(self, name: str) -> int:
        """Return how much work of this name waits."""
        waiting = self._waiting.get(name)
        return len(waiting) if waiting else 0

    def add(self, run: Run[W]) -> None:
        """Let a claim wait for a slot."""
        name = run.work.name
        if name not in self._waiting:
            self._waiting[name] = deque()
        self._waiting[name].append(run)
        self._count += 1

    def pop_startable(self) -> Run[W] | None:
        """Remove and return the next run that has a slot, the least recently served name first."""
        names = list(filter(self._slots.free, self._waiting))
        if not names:
            return None
        name = names[0] if len(names) == 1 else self._fairness.next(names)
        self._fairness.served(name)
        return self._pop(name)

    def pop_overdue(self, claimed_before: float) -> list[Run[W]]:
        """Remove and return the runs that were claimed before a time."""
        overdue: list[Run[W]] = []
        for name in list(self._waiting):
            while name in self._waiting and self._waiting[name][0].claimed_at <= claimed_before:
                overdue.append(self._pop(name))
        return overdue

    def pop_all(self, name: str) -> list[Run[W]]:
        """Remove and return all runs of a name."""
        waiting = []
        while name in self._waiting:
            waiting.append(self._pop(name))
        return waiting

    def remove(self, run: Run[W]) -> None:
        """Remove a run whose claim was lost."""
        waiting = self._waiting.get(run.work.name)
        if waiting and run in waiting:
            waiting.remove(run)
            self._count -= 1
            if not waiting:
                del self._waiting[run.work.name]

    def oldest(self) -> float:
        """Return when the run that waits longest was claimed, infinity if none waits."""
        claimed_at = (waiting[0].claimed_at for waiting in self._waiting.values())
        return min(claimed_at, default=float("inf"))

    def _pop(self, name: str) -> Run[W]:
        waiting = self._waiting[name]
        run = waiting.popleft()
        self._count -= 1
        if not waiting:
            del self._waiting[name]
        return run
