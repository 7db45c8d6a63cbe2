"""Clocks: the wall's, and the CPU time of this process and of the server."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds that have passed, and those of CPU."""

    seconds: float
    client_cpu: float
    server_cpu: float | None
    """Where the system tells."""

    def since(self, before: Spent) -> Spent:
        """Give what was spent between two looks."""
        known = self.server_cpu is not None and before.server_cpu is not None
        return Spent(
            self.seconds - before.seconds,
            self.client_cpu - before.client_cpu,
            (self.server_cpu or 0) - (before.server_cpu or 0) if known else None,
        )

    def client_us_per(self, jobs: int) -> float:
        """Give the microseconds of this process's CPU per job."""
        return self.client_cpu / jobs * 1e6

    def server_us_per(self, jobs: int) -> float | None:
        """Give the microseconds of the server's CPU per job."""
        return None if self.server_cpu is None else self.server_cpu / jobs * 1e6


class Meter:
    """Looks at all clocks at once."""

    def __init__(self, server_pid: int) -> None:
        self._pid = server_pid

    def look(self) -> Spent:
        """Give what was spent so far, to be compared with another look."""
        return Spent(time.perf_counter(), time.process_time(), self._server_cpu())

    def _server_cpu(self) -> float | None:
        try:
            fields = Path(f"/proc/{self._pid}/stat").read_text(encoding="ascii")
        except OSError:
            return None
        user, system = fields.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / _TICKS_PER_SECOND
