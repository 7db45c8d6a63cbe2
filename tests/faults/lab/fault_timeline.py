"""When each process was affected by a fault, which excuses what it could not do."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.faults.lab.times import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ALL_PROCESSES = "*"
MACHINE_FAULTS = frozenset({"starved", "slow database"})
"""Faults that an overloaded machine causes, and not the experiment."""
JOBS_COLLECTION = "the jobs collection"
"""The target of faults in the jobs collection, which do not affect any process directly."""

_RESUME_SECONDS = 0.5
_RECONNECT_SECONDS = 1.0
AFTERMATH_SECONDS = {
    # A process that resumes has to catch up with its backlog.
    "freeze": _RESUME_SECONDS,
    "freeze producer": _RESUME_SECONDS,
    "blocked loop": _RESUME_SECONDS,
    "slow": _RESUME_SECONDS,
    # A failed heartbeat is retried after a pause, and then the client has to find its servers and
    # connect; the lab, which also waits for the next primary, may be the first to do so.
    "cut": _RECONNECT_SECONDS,
    "half-open": _RECONNECT_SECONDS,
    "kill primary": _RECONNECT_SECONDS,
    "step down": _RECONNECT_SECONDS,
    "restart primary": _RECONNECT_SECONDS,
    "freeze primary": _RECONNECT_SECONDS,
    "all down": _RECONNECT_SECONDS,
}
"""How long a fault affects processes after its end; zero for kinds that are not listed."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that was injected, or that a process noticed."""

    kind: str
    target: str
    """The name of a process, `ALL_PROCESSES` or `JOBS_COLLECTION`."""
    began: int
    ended: float
    during: str = ""
    """For a stop: the kind of the active fault during which it was injected on purpose."""

    @property
    def is_stop(self) -> bool:
        """Return whether a process was asked to stop, which excuses nothing."""
        return self.kind == "stop"

    @property
    def is_permanent(self) -> bool:
        """Return whether the process that it hit is gone."""
        return self.ended == math.inf

    @property
    def affects_until(self) -> float:
        """Return until when it affects processes, including its aftermath."""
        return self.ended + AFTERMATH_SECONDS.get(self.kind, 0) * SECOND

    def is_long(self, duration: float) -> bool:
        """Return whether it affects processes for at least this long in total."""
        return self.affects_until - self.began >= duration


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """How a process exited."""

    at: int
    code: int | None

    @property
    def is_clean(self) -> bool:
        """Return whether it exited by itself without an error."""
        return self.code == 0


class FaultTimeline:
    """All faults, by target."""

    def __init__(
        self, faults: Iterable[Fault], ends: dict[str, ProcessExit], heartbeat: int
    ) -> None:
        self._by_target: defaultdict[str, list[Fault]] = defaultdict(list)
        self._heartbeat = heartbeat
        self.stops: dict[str, int] = {}
        """When each process was asked to stop."""
        for fault in faults:
            if fault.is_stop:
                self.stops[fault.target] = fault.began
            else:
                self._by_target[fault.target].append(fault)
        for name, end in ends.items():
            # An exited process sends no heartbeats; but a stop without a fault excuses nothing.
            if not end.is_clean or self.affected_the_stop_of(name, end):
                self._by_target[name].append(Fault("end", name, end.at, math.inf))

    def of(self, process: str, since: float, until: float) -> list[Fault]:
        """Return the faults that affected a process at some time between the two."""
        hits = [*self._by_target.get(process, ()), *self._by_target.get(ALL_PROCESSES, ())]
        return [fault for fault in hits if fault.began <= until and fault.affects_until >= since]

    def affected_time(self, process: str, since: float, until: float) -> float:
        """Return for how long a process was affected between the two, overlaps counted once."""
        spans = sorted(
            (max(fault.began, since), min(fault.affects_until, until))
            for fault in self.of(process, since, until)
        )
        return total_time(spans)

    def affected(self, process: str, since: float, until: float) -> bool:
        """Return whether there was a fault of some length between the two, or many short ones."""
        if any(fault.is_long(self._heartbeat / 2) for fault in self.of(process, since, until)):
            return True
        return self.affected_time(process, since, until) >= self._heartbeat / 2

    def affected_the_stop_of(self, process: str, end: ProcessExit) -> bool:
        """Return whether a process was affected by a fault when it stopped."""
        # Includes faults shortly before: the reply to a claim may still have been in transit.
        since = self.stops.get(process, end.at) - 2 * self._heartbeat
        return self.affected(process, since, end.at)


def total_time(spans: Iterable[tuple[float, float]]) -> float:
    """Return the length of these spans, which are ordered by their beginnings, overlaps once."""
    return sum(ended - began for began, ended in _joined(spans))


def _joined(spans: Iterable[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Merge overlapping spans, which are ordered by their beginnings."""
    current: tuple[float, float] | None = None
    for began, ended in spans:
        if current is not None and began <= current[1]:
            current = (current[0], max(current[1], ended))
            continue
        if current is not None:
            yield current
        current = (began, ended)
    if current is not None:
        yield current
