"""Records of a process that survive its death."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def true_time() -> int:
    """Return the machine's time in nanoseconds, even if the clock of the process is wrong."""
    return time.clock_gettime_ns(time.CLOCK_REALTIME)


class Recorder:
    """A file of JSON lines; a line is written completely when `note` returns."""

    def __init__(self, path: Path) -> None:
        # Not buffered in this process: data in the kernel survives a SIGKILL.
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, what: str, **details: object) -> None:
        """Record what happens now."""
        line = json.dumps({"at": true_time(), "what": what, **details}, default=str)
        os.write(self._file, line.encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
