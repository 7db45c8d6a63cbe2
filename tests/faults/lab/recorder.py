"""Writing down what a process sees, so that it is known even if the process is killed."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def true_time() -> int:
    """Give the machine's time in nanoseconds, also where the clock of a process is wrong."""
    return time.clock_gettime_ns(time.CLOCK_REALTIME)


class Recorder:
    """One file of JSON lines; a line is in it, whole, when `note` returns."""

    def __init__(self, path: Path) -> None:
        # Not the memory of this process: what is with the kernel outlives a SIGKILL.
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, what: str, **details: object) -> None:
        """Write down that something happens now."""
        line = json.dumps({"at": true_time(), "what": what, **details}, default=str)
        os.write(self._file, line.encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
