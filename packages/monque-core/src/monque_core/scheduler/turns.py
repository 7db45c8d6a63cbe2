"""Whose turn it is."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

T = TypeVar("T")


class Turns:
    """Serves the name that has waited longest, whatever the order of registration."""

    def __init__(self) -> None:
        self._served_at: dict[str, int] = {}
        self._tick = 0

    def order(self, names: Iterable[str]) -> list[str]:
        """Sort names by how long ago they were served, longest first."""
        return sorted(names, key=self._last_served)

    def longest_waiting(self, names: Iterable[str]) -> str:
        """Give the first of them in that order."""
        return min(names, key=self._last_served)

    def served(self, name: str) -> None:
        """Note that a name had its turn."""
        self._tick += 1
        self._served_at[name] = self._tick

    def _last_served(self, name: str) -> int:
        return self._served_at.get(name, 0)

    def share_out(
        self, offers: Mapping[str, Sequence[T]], limits: Mapping[str, int], total: int
    ) -> list[T]:
        """Pick from each name in turn, within its limit, until so many are picked."""
        if len(offers) == 1:
            ((name, only),) = offers.items()
            self.served(name)
            return list(only[: min(limits.get(name, 0), total)])
        picked: list[T] = []
        queues = {name: deque(offers[name][: limits.get(name, 0)]) for name in self.order(offers)}
        while queues and len(picked) < total:
            for name in list(queues):
                if len(picked) == total:
                    break
                if queues[name]:
                    picked.append(queues[name].popleft())
                    self.served(name)
                else:
                    del queues[name]
        return picked
