"""Waiting: pauses between attempts, and events with a time limit."""

from __future__ import annotations

import asyncio


class ExponentialPause:
    """A pause between attempts: each one is twice as long as the one before, up to a limit."""

    __slots__ = ("_first", "_longest", "_next")

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._next = first

    def lengthen(self) -> float:
        """Return the seconds to pause now, and double the next pause."""
        seconds, self._next = self._next, min(self._longest, 2 * self._next)
        return seconds

    def reset(self) -> None:
        """Begin with the shortest pause again, as after a success."""
        self._next = self._first

    async def sleep(self) -> None:
        """Pause."""
        await asyncio.sleep(self.lengthen())


async def wait_for_event(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait for an event, at most so many seconds, and return whether it is set."""
    if event.is_set():
        return True
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
