"""How many runs of all sources together may overlap in one instance."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Capacity:
    """The slots of the instance and the line of sources that share them."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        """The most runs that may overlap, None for no limit."""
        self.taken = 0
        self.line: list[Share] = []
        """The sources, the one that took a slot last at the end."""

    def join(self, wake: Callable[[], None]) -> Share:
        """Return the share of another source, which is woken when there may be a slot."""
        share = Share(self, wake)
        self.line.append(share)
        return share


class Share:
    """One source's share of the slots: free slots go in turn to those that wait."""

    def __init__(self, capacity: Capacity, wake: Callable[[], None]) -> None:
        self.limit = capacity.limit
        """The limit of the instance, None for no limit."""
        self._capacity = capacity
        self._wake = wake
        self.is_waiting = False
        """Whether this source would use a slot if it had one; its dispatcher says so."""

    @property
    def is_contested(self) -> bool:
        """Whether other sources want the same slots."""
        return self.limit is not None and len(self._capacity.line) > 1

    def take(self) -> None:
        """Occupy a slot and go to the end of the line."""
        self._capacity.taken += 1
        if self.is_contested:
            self._capacity.line.remove(self)
            self._capacity.line.append(self)

    def give_back(self) -> None:
        """Free a slot, for another source if it is next."""
        self._capacity.taken -= 1
        self.wake_others()

    def wake_others(self) -> None:
        """Let the other sources see what is free for them now."""
        if self.is_contested:
            for other in self._capacity.line:
                if other is not self:
                    other._wake()  # of the same class

    def free(self) -> int:
        """Return how many of the free slots are this source's; there must be a limit."""
        assert self.limit is not None
        free = max(0, self.limit - self._capacity.taken)
        if not free or not self.is_contested:
            return free
        line = [one for one in self._capacity.line if one is self or one.is_waiting]
        return len(range(line.index(self), free, len(line)))
