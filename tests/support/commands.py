"""The commands that a client sends, as the driver reports them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from pymongo.monitoring import CommandListener

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pymongo.monitoring import (
        CommandFailedEvent,
        CommandStartedEvent,
        CommandSucceededEvent,
    )


class CommandLog(CommandListener):
    """Records every command, and lets a test act at the moment when one is sent."""

    def __init__(self) -> None:
        self.sent: list[Mapping[str, Any]] = []
        self.on_sending: Callable[[str, Mapping[str, Any]], None] = lambda *_: None

    def started(self, event: CommandStartedEvent) -> None:
        self.sent.append(dict(event.command))
        self.on_sending(event.command_name, event.command)

    def succeeded(self, event: CommandSucceededEvent) -> None:
        pass

    def failed(self, event: CommandFailedEvent) -> None:
        pass

    def count(self) -> Counter[str]:
        """Count the commands by name."""
        return Counter(next(iter(command)) for command in self.sent)


def opens_stream(command: Mapping[str, Any]) -> bool:
    """Return whether a command opens a change stream."""
    pipeline = command.get("pipeline") or [{}]
    return "aggregate" in command and "$changeStream" in pipeline[0]
