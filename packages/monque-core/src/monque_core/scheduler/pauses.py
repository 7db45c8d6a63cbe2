"""Pauses: names of which nothing may start before a time."""

from __future__ import annotations

import asyncio


class Pauses:
    """The paused names and the ends of their pauses, by the time of the event loop."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def __bool__(self) -> bool:
        return bool(self._until)

    def pause(self, name: str, seconds: float) -> None:
        """Pause a name from now on; this replaces its previous pause."""
        self._until[name] = asyncio.get_running_loop().time() + seconds

    def is_paused(self, name: str) -> bool:
        """Whether a pause of a name has not ended."""
        until = self._until.get(name)
        if until is None:
            return False
        if asyncio.get_running_loop().time() < until:
            return True
        del self._until[name]
        return False

    def next_end(self) -> float:
        """Return when the next pause ends, infinity if there is none."""
        return min(self._until.values(), default=float("inf"))
