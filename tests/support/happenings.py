"""A record of all events that an instance emits."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from monque_core import events
from tests.support.patience import PATIENCE
from tests.support.tally import Tally

if TYPE_CHECKING:
    from monque_core import Monque

EVENT_NAMES = tuple(
    value for name, value in vars(events).items() if name.isupper() and isinstance(value, str)
)


class Happenings:
    """The events of an instance, by name and in order."""

    def __init__(self, monque: Monque) -> None:
        self.all: Tally[tuple[str, Any]] = Tally()
        for name in EVENT_NAMES:
            monque.on(name, partial(self._note, name))

    def of(self, name: str) -> list[Any]:
        """Return the payloads of one event."""
        return [payload for happened, payload in self.all if happened == name]

    @property
    def names(self) -> list[str]:
        """Return the names of the events in order."""
        return [name for name, _ in self.all]

    @property
    def follows_changes(self) -> bool:
        """Return whether the latest event about the change stream is that it is connected."""
        told = [name for name in self.names if name.startswith("changestream:")]
        return told[-1:] == ["changestream:connected"]

    async def reach(self, name: str, count: int = 1, seconds: float = PATIENCE) -> list[Any]:
        """Wait until an event was emitted this many times, and return its payloads."""
        await self.all.wait_until(lambda: len(self.of(name)) >= count, seconds)
        return self.of(name)

    def _note(self, name: str, payload: object) -> None:
        self.all.add((name, payload))
