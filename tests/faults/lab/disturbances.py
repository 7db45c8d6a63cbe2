"""What faults excuse: whom each of them keeps from its work, and for how long."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.faults.lab.times import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

EVERYBODY = "*"
OF_THE_MACHINE = frozenset({"starved", "slow database"})
"""Faults that a machine with too much to do is to blame for, and nobody in the experiment."""
THE_QUEUE = "the queue"
"""The target of what is done to the jobs, which keeps no process from its work."""

_AWAKE = 0.5
_FOUND = 1.0
AFTERMATH_SECONDS = {
    # Who is awake again has to catch up with what piled up meanwhile.
    "freeze": _AWAKE,
    "freeze producer": _AWAKE,
    "blocked loop": _AWAKE,
    "slow": _AWAKE,
    # A beat that failed is tried again after a pause, and then a client has to find its servers
    # and connect; the lab, which waits for the next primary, may be the first to do so.
    "cut": _FOUND,
    "half-open": _FOUND,
    "kill primary": _FOUND,
    "step down": _FOUND,
    "restart primary": _FOUND,
    "freeze primary": _FOUND,
    "all down": _FOUND,
}
"""For how long a fault that is over still keeps others from their work; nothing if not named."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Harm that was done on purpose, or that a process noticed."""

    kind: str
    target: str
    """The name of a process, `EVERYBODY` or `THE_QUEUE`."""
    began: int
    ended: float
    during: str = ""
    """The kind of fault in the middle of which it was done, if that was the point of it."""

    @property
    def is_stop(self) -> bool:
        """Tell whether a process was told to stop, which excuses nothing."""
        return self.kind == "stop"

    @property
    def is_final(self) -> bool:
        """Tell whether nothing is left of whom it hit."""
        return self.ended == math.inf

    @property
    def felt_until(self) -> float:
        """Tell when nobody feels it any more."""
        return self.ended + AFTERMATH_SECONDS.get(self.kind, 0) * SECOND

    def is_long(self, duration: float) -> bool:
        """Tell whether it is felt for so long in all."""
        return self.felt_until - self.began >= duration


@dataclass(frozen=True, slots=True)
class End:
    """How a process ended."""

    at: int
    code: int | None

    @property
    def is_clean(self) -> bool:
        """Tell whether it ended by itself, with nothing to complain of."""
        return self.code == 0


class Disturbances:
    """All faults, by whom they hit."""

    def __init__(self, faults: Iterable[Fault], ends: dict[str, End], heartbeat: int) -> None:
        self._by_target: defaultdict[str, list[Fault]] = defaultdict(list)
        self._heartbeat = heartbeat
        self.stops: dict[str, int] = {}
        """When each process was told to stop."""
        for fault in faults:
            if fault.is_stop:
                self.stops[fault.target] = fault.began
            else:
                self._by_target[fault.target].append(fault)
        for name, end in ends.items():
            # Who has ended shows no life; but a stop that nobody disturbed is no excuse.
            if not end.is_clean or self.has_disturbed_the_stop_of(name, end):
                self._by_target[name].append(Fault("end", name, end.at, math.inf))

    def of(self, process: str, since: float, until: float) -> list[Fault]:
        """Give what kept a process from its work at some time between the two."""
        hits = [*self._by_target.get(process, ()), *self._by_target.get(EVERYBODY, ())]
        return [fault for fault in hits if fault.began <= until and fault.felt_until >= since]

    def time_of(self, process: str, since: float, until: float) -> float:
        """Tell for how much of the time a process was disturbed, overlaps counted once."""
        spans = sorted(
            (max(fault.began, since), min(fault.felt_until, until))
            for fault in self.of(process, since, until)
        )
        return sum(ended - began for began, ended in _joined(spans))

    def has_disturbed(self, process: str, since: float, until: float) -> bool:
        """Tell whether there was more than a hitch between the two, or many of them."""
        if any(fault.is_long(self._heartbeat / 2) for fault in self.of(process, since, until)):
            return True
        return self.time_of(process, since, until) >= self._heartbeat / 2

    def has_disturbed_the_stop_of(self, process: str, end: End) -> bool:
        """Tell whether a process had more to cope with at its end than being told to stop."""
        # What it knew nothing of yet when it was told: a claim whose reply was on its way.
        since = self.stops.get(process, end.at) - 2 * self._heartbeat
        return self.has_disturbed(process, since, end.at)


def _joined(spans: Iterable[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Join the spans that overlap, given by when they begin."""
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
