"""Claimed work that waits for a slot, so that handlers never wait for a round trip."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic

from monque_core.scheduler.source import W
from monque_core.scheduler.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from monque_core.scheduler.runs import Run
    from monque_core.scheduler.slots import Slots


class Backlog(Generic[W]):
    """Claims ahead of the free slots, by name, in the order they were made."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._waiting: dict[str, deque[Run[W]]] = {}
        self._turns = Turns()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def names(self) -> Iterable[str]:
        """Give the names that have work waiting."""
        return self._waiting

    def count(self, name: str) -> int:
        """Tell how much work of this name waits."""
        waiting = self._waiting.get(name)
        return len(waiting) if waiting else 0

    def add(self, run: Run[W]) -> None:
        """Let a claim wait."""
        self._waiting.setdefault(run.work.name, deque()).append(run)
        self._count += 1

    def pop_startable(self) -> Run[W] | None:
        """Take the next one that has a slot, the name that waited longest first."""
        free = self._slots.free
        if len(self._waiting) == 1:
            # The usual case, in which nobody has to be asked whose turn it is.
            (name,) = self._waiting
            if not free(name):
                return None
        else:
            names = [name for name in self._waiting if free(name)]
            if not names:
                return None
            name = self._turns.longest_waiting(names)
        self._turns.served(name)
        return self._pop(name)

    def pop_overdue(self, claimed_before: float) -> list[Run[W]]:
        """Take those that have waited too long."""
        overdue: list[Run[W]] = []
        for name in list(self._waiting):
            while name in self._waiting and self._waiting[name][0].claimed_at <= claimed_before:
                overdue.append(self._pop(name))
        return overdue

    def pop_all(self, name: str) -> list[Run[W]]:
        """Take everything of a name."""
        waiting = []
        while name in self._waiting:
            waiting.append(self._pop(name))
        return waiting

    def remove(self, run: Run[W]) -> None:
        """Take out one that is no longer ours to run."""
        waiting = self._waiting.get(run.work.name)
        if waiting and run in waiting:
            waiting.remove(run)
            self._count -= 1
            if not waiting:
                del self._waiting[run.work.name]

    def oldest(self) -> float | None:
        """Tell when the one that waits longest was claimed."""
        return min((waiting[0].claimed_at for waiting in self._waiting.values()), default=None)

    def _pop(self, name: str) -> Run[W]:
        waiting = self._waiting[name]
        run = waiting.popleft()
        self._count -= 1
        if not waiting:
            del self._waiting[name]
        return run
