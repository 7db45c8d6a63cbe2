"""Reading the log of a `mongod`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

_TAIL_LINES = 15
_LISTENING = "Waiting for connections"
_SEVERE = ("E", "F")


class Log:
    """The log file of one server, read from the beginning of its latest run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._start = 0

    def begin(self) -> None:
        """Begin a new run at the end of the file."""
        self._start = self.path.stat().st_size if self.path.exists() else 0

    def says_listening(self) -> bool:
        """Whether the server accepts connections."""
        return _LISTENING in self._latest()

    def explanation(self) -> str:
        """Return why the run ended: its errors, or the last lines if there are none."""
        lines = self._latest().splitlines()
        entries = [_parse(line) for line in lines]
        severe = [
            line
            for line, entry in zip(lines, entries, strict=True)
            if entry is None or entry.get("s") in _SEVERE
        ]
        return "\n".join((severe or lines)[-_TAIL_LINES:])

    def _latest(self) -> str:
        with self.path.open("rb") as log:
            log.seek(self._start)
            return log.read().decode(errors="replace")


def _parse(line: str) -> dict[str, Any] | None:
    """Return a log entry; None for plain text, which the dynamic loader and the shell write."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None
