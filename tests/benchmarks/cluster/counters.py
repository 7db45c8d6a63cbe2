"""What the server did between two looks, by its own counters."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pymongo.asynchronous.database import AsyncDatabase

    Db = AsyncDatabase[dict[str, Any]]

_UNCOUNTED = frozenset(
    {"hello", "isMaster", "ismaster", "ping", "buildInfo", "serverStatus", "endSessions"}
)
"""Commands of the drivers' monitors, and the one that reads these counters."""
_WRITES = frozenset({"insert", "update", "getMore"})


@dataclass(frozen=True, slots=True)
class Counters:
    """Counters of the server since it started."""

    at: float
    commands: Mapping[str, int]
    keys: int
    documents: int
    cpu_seconds: float | None
    """The CPU time of the process; None where the system does not count it."""

    @classmethod
    async def read(cls, db: Db) -> Counters:
        """Read all counters in one command."""
        status = await db.client.admin.command("serverStatus")
        metrics, extra = status["metrics"], status["extra_info"]
        commands = {
            name: counts["total"]
            for name, counts in metrics["commands"].items()
            # One entry, of unknown commands, is a number.
            if isinstance(counts, dict) and name not in _UNCOUNTED
        }
        examined = metrics["queryExecutor"]
        cpu = None
        if "user_time_us" in extra:
            # The same clock as `/proc/<pid>/stat`, in microseconds instead of ticks of 10 ms.
            cpu = (extra["user_time_us"] + extra["system_time_us"]) / 1e6
        return cls(time.monotonic(), commands, examined["scanned"], examined["scannedObjects"], cpu)

    def since(self, before: Counters) -> ServerLoad:
        """Return what the server did between two looks."""
        known = self.cpu_seconds is not None and before.cpu_seconds is not None
        return ServerLoad(
            self.at - before.at,
            Counter(
                {
                    name: count - before.commands.get(name, 0)
                    for name, count in self.commands.items()
                    if count != before.commands.get(name, 0)
                }
            ),
            self.keys - before.keys,
            self.documents - before.documents,
            (self.cpu_seconds or 0) - (before.cpu_seconds or 0) if known else None,
        )


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """Commands, examined keys and CPU time of an interval."""

    seconds: float
    commands: Mapping[str, float]
    keys: float
    documents: float
    cpu_seconds: float | None

    def without(self, background: ServerLoad) -> ServerLoad:
        """Return this load less what the background would have done in the same time."""
        share = self.seconds / background.seconds
        names = self.commands.keys() | background.commands.keys()
        cpu = None
        if self.cpu_seconds is not None and background.cpu_seconds is not None:
            cpu = self.cpu_seconds - share * background.cpu_seconds
        return ServerLoad(
            self.seconds,
            {
                name: self.commands.get(name, 0) - share * background.commands.get(name, 0)
                for name in names
            },
            self.keys - share * background.keys,
            self.documents - share * background.documents,
            cpu,
        )

    def without_counts(self, sent: int) -> ServerLoad:
        """Return this load less so many `count` commands, which the benchmark itself has sent."""
        commands = Counter(self.commands)
        commands["count"] -= sent
        return replace(self, commands=+commands)

    @property
    def total(self) -> float:
        """Return the number of commands but inserts."""
        return sum(count for name, count in self.commands.items() if name != "insert")

    @property
    def quiet_rate(self) -> float:
        """Return the commands per second but waiting for events, which costs nothing."""
        return (self.total - self.commands.get("getMore", 0)) / self.seconds

    def per(self, jobs: int) -> dict[str, Any]:
        """Return all counts per job."""
        counts = self.commands
        others = sum(count for name, count in counts.items() if name not in _WRITES)
        return {
            "find_and_modify": counts.get("findAndModify", 0) / jobs,
            "commands": others / jobs,
            "updates": counts.get("update", 0) / jobs,
            "get_mores": counts.get("getMore", 0) / jobs,
            "all_commands": self.total / jobs,
            "keys_examined": self.keys / jobs,
            "documents_examined": self.documents / jobs,
            "server_cpu_ms": None if self.cpu_seconds is None else self.cpu_seconds * 1e3 / jobs,
            "by_name": {name: count / jobs for name, count in sorted(counts.items())},
        }


async def settle(db: Db, instances: int, quiet_seconds: int, longest: float = 60.0) -> bool:
    """Wait until the instances have been quiet for a while; return whether they became so."""
    limit = 3 + 0.5 * instances
    quiet, deadline = 0, time.monotonic() + longest
    before = await Counters.read(db)
    while quiet < quiet_seconds and time.monotonic() < deadline:
        load, before = await _load_of_a_second(db, before)
        quiet = quiet + 1 if load.quiet_rate <= limit else 0
    return quiet >= quiet_seconds


async def _load_of_a_second(db: Db, before: Counters) -> tuple[ServerLoad, Counters]:
    await asyncio.sleep(1)
    after = await Counters.read(db)
    return after.since(before), after
