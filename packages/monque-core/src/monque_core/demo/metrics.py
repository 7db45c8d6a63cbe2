"""Rates, latencies and recent events, collected by event listeners."""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from monque_core import events

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monque_core.clock import Clock
    from monque_core.monque import Monque

_RATE_SECONDS = 2.0
_RECENT_LATENCIES = 1000
_RECENT_EVENTS = 7
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Latency:
    """The time from due to running, in milliseconds."""

    p50: float
    p99: float

    def __str__(self) -> str:
        return f"p50 {self.p50:.0f} ms, p99 {self.p99:.0f} ms"


class DemoMetrics:
    """Collects metrics from the events of an instance."""

    def __init__(self, monque: Monque, clock: Clock, quiet: Sequence[str]) -> None:
        """Measure with this clock; completions of the `quiet` names are not listed as events."""
        self._clock = clock
        self._quiet = frozenset(quiet)
        self._started = time.monotonic()
        self._latencies: list[float] = []
        self._completions: deque[float] = deque()
        self.running: Counter[str] = Counter()
        self.completed: Counter[str] = Counter()
        self.retried: Counter[str] = Counter()
        self.errors = 0
        self.recent: deque[str] = deque(maxlen=_RECENT_EVENTS)
        monque.on(events.JOB_START, self._on_start)
        monque.on(events.JOB_COMPLETE, self._on_complete)
        monque.on(events.JOB_FAIL, self._on_fail)
        monque.on(events.JOB_ERROR, self._on_error)
        monque.on(events.CHANGESTREAM_CONNECTED, self._on_connected)

    @property
    def elapsed(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self._started

    @property
    def rate(self) -> float:
        """Return the recently completed jobs per second."""
        now = time.monotonic()
        while self._completions and self._completions[0] < now - _RATE_SECONDS:
            self._completions.popleft()
        return len(self._completions) / min(_RATE_SECONDS, max(self.elapsed, 0.1))

    @property
    def average_rate(self) -> float:
        """Return the completed jobs per second since the start."""
        return self.completed.total() / max(self.elapsed, 0.1)

    def recent_latency(self) -> Latency | None:
        """Return the latency of recent jobs; None before the first."""
        return _latency(self._latencies[-_RECENT_LATENCIES:])

    def latency(self) -> Latency | None:
        """Return the latency of all jobs; None before the first."""
        return _latency(self._latencies)

    def _on_start(self, event: events.JobStarted) -> None:
        self.running[event.job.name] += 1
        waited = (self._clock.now() - event.job.next_run_at) / _MILLISECOND
        self._latencies.append(max(0.0, waited))

    def _on_complete(self, event: events.JobCompleted) -> None:
        job = event.job
        self.running[job.name] -= 1
        self.completed[job.name] += 1
        self._completions.append(time.monotonic())
        if job.is_recurring:
            wait = job.next_run_at - self._clock.now()
            self._record(f"{job.name} ran on schedule, again in {wait.total_seconds():.0f} s")
        elif job.fail_count:
            self._record(f"{job.name} {job.data} done after {job.fail_count} failures")
        elif job.name not in self._quiet:
            self._record(f"{job.name} {job.data} done in {event.duration / _MILLISECOND:.0f} ms")

    def _on_fail(self, event: events.JobFailed) -> None:
        job = event.job
        self.running[job.name] -= 1
        if event.will_retry:
            self.retried[job.name] += 1
            wait = job.next_run_at - self._clock.now()
            consequence = f"again in {wait.total_seconds():.1f} s"
        else:
            consequence = "no more retries"
        self._record(f"{job.name} {job.data} failed: {job.fail_reason}; {consequence}")

    def _on_error(self, event: events.JobErrored) -> None:
        self.errors += 1
        self._record(f"error: {event.error}")

    def _on_connected(self, _: events.ChangeStreamChanged) -> None:
        self._record("change stream connected")

    def _record(self, text: str) -> None:
        self.recent.append(f"{self.elapsed:5.1f} s  {text}")


def _latency(values: Sequence[float]) -> Latency | None:
    if not values:
        return None
    ordered = sorted(values)
    last = len(ordered) - 1
    return Latency(ordered[round(last * 0.5)], ordered[round(last * 0.99)])
