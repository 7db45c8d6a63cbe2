"""How many runs of whatever source may overlap in one instance."""

from __future__ import annotations

from typing import Protocol


class Member(Protocol):
    """A source's share in the capacity."""

    def is_waiting(self) -> bool:
        """Tell whether a slot would be used if there were one."""
        ...

    def poke(self) -> None:
        """Be told that there may be a slot."""
        ...


class Capacity:
    """The limit over all sources; free slots go in turn to those who have waited longest."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self._taken = 0
        self._members: list[Member] = []

    def join(self, member: Member) -> None:
        """Let a source share the slots."""
        self._members.append(member)

    def take(self, member: Member) -> None:
        """Occupy a slot; whoever did so last is the last in line."""
        self._taken += 1
        if len(self._members) > 1:
            self._members.remove(member)
            self._members.append(member)

    def give_back(self, member: Member) -> None:
        """Free a slot, for another source if it is next."""
        self._taken -= 1
        self.poke_others(member)

    def poke_others(self, member: Member) -> None:
        """Let the other sources see what is theirs now."""
        if self.limit is None or len(self._members) == 1:
            return
        for other in self._members:
            if other is not member:
                other.poke()

    def free(self) -> int | None:
        """Tell how many more runs may start here, None for no limit."""
        return None if self.limit is None else max(0, self.limit - self._taken)

    def free_for(self, member: Member) -> int | None:
        """Tell how many of the free slots are this source's, None for no limit."""
        free = self.free()
        if not free or len(self._members) == 1:
            return free
        line = [one for one in self._members if one is member or one.is_waiting()]
        return len(range(line.index(member), free, len(line)))
