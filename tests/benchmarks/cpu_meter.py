"""Elapsed time, and the CPU time of this process and of the server."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


@dataclass(frozen=True, slots=True)
class CpuUsage:
    """Elapsed seconds, and seconds of CPU time."""

    seconds: float
    client_cpu: float
    server_cpu: float | None
    """None where the system does not report it."""

    def since(self, before: CpuUsage) -> CpuUsage:
        """Return the difference between two readings."""
        known = self.server_cpu is not None and before.server_cpu is not None
        return CpuUsage(
            self.seconds - before.seconds,
            self.client_cpu - before.client_cpu,
            (self.server_cpu or 0) - (before.server_cpu or 0) if known else None,
        )

    def client_us_per(self, jobs: int) -> float:
        """Return the microseconds of this process's CPU time per job."""
        return self.client_cpu / jobs * 1e6

    def server_us_per(self, jobs: int) -> float | None:
        """Return the microseconds of the server's CPU time per job."""
        return None if self.server_cpu is None else self.server_cpu / jobs * 1e6


class CpuMeter:
    """Reads the wall clock and the CPU times together."""

    def __init__(self, server_pid: int) -> None:
        self._pid = server_pid

    def read(self) -> CpuUsage:
        """Return the current readings, to be compared with later ones."""
        return CpuUsage(time.perf_counter(), time.process_time(), self._server_cpu())

    def _server_cpu(self) -> float | None:
        try:
            fields = Path(f"/proc/{self._pid}/stat").read_text(encoding="ascii")
        except OSError:
            return None
        user, system = fields.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / _TICKS_PER_SECOND
