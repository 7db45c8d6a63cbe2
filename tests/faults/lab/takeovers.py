"""How soon jobs were started whose first listener was faulty."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from statistics import quantiles
from typing import TYPE_CHECKING

from tests.faults.lab.fault_timeline import MACHINE_FAULTS, total_time
from tests.faults.lab.times import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.faults.lab.history import History


@dataclass(frozen=True, slots=True)
class Takeover:
    """A job that was stored while its first listener was faulty."""

    job: str
    kind: str
    affected: Sequence[str]
    """The processes with the fault."""
    started_by: str
    seconds: float
    """From its insert to the claim of its first run by the server's clock, infinity if it never
    ran."""
    stalled_seconds: float
    """For how long the machine kept the slowest other process from running meanwhile."""


def takeovers(history: History) -> Iterator[Takeover]:
    """Yield the jobs of all trials."""
    runs = history.runs_by_job()
    for note in history.of("trial"):
        details = note.details
        document = history.documents[details["job"]]
        stored = document.writes[0].at
        # A claim may be given back without a run.
        run = next(iter(runs.get(details["job"], [])), None)
        claims = [
            write.at
            for write in document.writes
            if write.is_claim and run is not None and write.token_after == run.token
        ]
        claimed = claims[0] if claims else math.inf
        yield Takeover(
            details["job"],
            details["kind"],
            details["affected"],
            run.process if run is not None else "",
            (claimed - stored) / SECOND,
            _stalled(history, details["affected"], stored, claimed),
        )


def percentiles(history: History) -> dict[str, dict[str, float]]:
    """Return the milliseconds until the claim, by kind of fault."""
    by_kind: defaultdict[str, list[float]] = defaultdict(list)
    for one in takeovers(history):
        by_kind[one.kind].append(1000 * one.seconds)
    return {
        f"ms until the claim ({kind})": {
            "n": len(times),
            "p50": _percentile(times, 50),
            "p99": _percentile(times, 99),
            "max": max(times),
        }
        for kind, times in by_kind.items()
    }


def _percentile(times: Sequence[float], percent: int) -> float:
    if len(times) == 1 or math.inf in times:
        return max(times)
    return round(quantiles(times, n=100, method="inclusive")[percent - 1], 1)


def _stalled(history: History, affected: Sequence[str], since: int, until: float) -> float:
    """Return for how long any process without the fault was starved, or MongoDB was slow.

    A process that was frozen was starved, too, which excuses nobody else.
    """
    spans: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for fault in history.faults:
        is_here = fault.began <= until and fault.ended >= since
        if is_here and fault.kind in MACHINE_FAULTS and fault.target not in affected:
            spans[fault.target].append((max(fault.began, since), min(fault.ended, until)))
    return max((total_time(sorted(one)) for one in spans.values()), default=0.0) / SECOND
