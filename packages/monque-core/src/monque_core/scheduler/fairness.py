"""Which name is next: the one that was served least recently."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Fairness:
    """Orders names by when they were last served, whatever the order of registration."""

    def __init__(self) -> None:
        self._served_at: dict[str, int] = {}
        self._tick = 0

    def order(self, names: Iterable[str]) -> list[str]:
        """Return names, the least recently served first."""
        return sorted(names, key=self._last_served)

    def next(self, names: Iterable[str]) -> str:
        """Return the least recently served name."""
        return min(names, key=self._last_served)

    def served(self, name: str) -> None:
        """Record that a name had its turn."""
        self._tick += 1
        self._served_at[name] = self._tick

    def _last_served(self, name: str) -> int:
        return self._served_at.get(name, 0)
