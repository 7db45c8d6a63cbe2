"""How a run ends, and what follows for the job."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeAlias

from monque_core.clock import truncate
from monque_core.errors import MonqueError
from monque_core.jobs.backoff import backoff_delay
from monque_core.jobs.cron import next_cron_run
from monque_core.jobs.job import AnyJob, JobStatus, twin

UNREADABLE_PAUSE = timedelta(hours=1)
"""When a schedule is due again that was made unreadable during its run."""
LONGEST_REASON = 8_000
_SHORT_REASON = 200


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When a failed run is tried again, and how often."""

    max_retries: int
    """Runs in all, the first one included."""
    base: timedelta
    cap: timedelta
    jitter: float = 0.0

    def limit_for(self, job: AnyJob) -> int:
        """Give the number of runs the job may use up."""
        return self.max_retries if job.max_retries is None else job.max_retries


@dataclass(frozen=True, slots=True)
class Completed:
    """A one-off job has done its work."""


@dataclass(frozen=True, slots=True)
class Advanced:
    """A recurring job has done its work and waits for its next tick."""

    at: datetime
    problem: MonqueError | None = None
    """Why its next tick is not known, and the time is only a guess."""


@dataclass(frozen=True, slots=True)
class Retrying:
    """A run failed and another one follows."""

    reason: str | None
    at: datetime


@dataclass(frozen=True, slots=True)
class Failed:
    """A one-off job is given up."""

    reason: str | None


@dataclass(frozen=True, slots=True)
class OccurrenceFailed:
    """One occurrence of a recurring job is given up; the schedule goes on."""

    reason: str | None
    at: datetime


@dataclass(frozen=True, slots=True)
class Released:
    """A claim is handed back as if it had never been made."""


Outcome: TypeAlias = Completed | Advanced | Retrying | Failed | OccurrenceFailed | Released

COMPLETED = Completed()
RELEASED = Released()


def after_success(job: AnyJob, now: datetime) -> Outcome:
    """Decide what a successful run means for its job."""
    if job.repeat_interval is None:
        return COMPLETED
    try:
        return Advanced(next_tick(job, now))
    except MonqueError as error:
        return Advanced(_guessed_tick(now), error)


def after_failure(job: AnyJob, reason: str, now: datetime, policy: RetryPolicy) -> Outcome:
    """Decide what a failed run means for its job."""
    fail_count = job.fail_count + 1
    if fail_count >= policy.limit_for(job):
        return after_exhaustion(job, reason, now)
    delay = backoff_delay(fail_count, policy.base, policy.cap, policy.jitter)
    return Retrying(reason, truncate(now + max(delay, timedelta(milliseconds=1))))


def after_exhaustion(job: AnyJob, reason: str, now: datetime) -> Outcome:
    """Decide what follows when no run is left."""
    if job.repeat_interval is None:
        return Failed(reason)
    try:
        return OccurrenceFailed(reason, next_tick(job, now))
    except MonqueError as error:
        told = f"{reason}; and its next tick is not known: {failure_reason(error)}"
        return OccurrenceFailed(told, _guessed_tick(now))


def next_tick(job: AnyJob, now: datetime) -> datetime:
    """Give the next run of a recurring job, strictly after now."""
    assert job.repeat_interval is not None
    return next_cron_run(job.repeat_interval, now, job.timezone or "UTC")


def _guessed_tick(now: datetime) -> datetime:
    """Return when to try again a schedule that cannot be read: it was readable when claimed.

    It must not end, for others may read it. It must not be due at once either: its run is done.
    """
    return truncate(now + UNREADABLE_PAUSE)


def failure_reason(error: BaseException) -> str:
    """Put an exception into words that can be stored, whatever its `__str__` does."""
    try:
        kind = str.__str__(type(error).__name__)
    except BaseException:  # noqa: BLE001  # a class may say anything when asked for its name
        kind = "Exception"
    try:
        message = str.__str__(str(error))
    except BaseException:  # noqa: BLE001  # a message that cannot be read is still a failure
        message = "(its message cannot be read)"
    text = f"{kind}: {message[:LONGEST_REASON]}" if message else kind
    return _cut(text.encode("utf-8", "replace").decode("utf-8"), LONGEST_REASON)


def truncated(outcome: Outcome) -> Outcome | None:
    """Give an outcome whose reason takes less room, at last none; None if there is no less."""
    match outcome:
        case Retrying(reason=str() as reason) | Failed(reason=str() as reason):
            return replace(outcome, reason=_shorter(reason))
        case OccurrenceFailed(reason=str() as reason):
            return replace(outcome, reason=_shorter(reason))
    return None


def _shorter(reason: str) -> str | None:
    return _cut(reason, _SHORT_REASON) if len(reason) > _SHORT_REASON else None


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def settled(job: AnyJob, outcome: Outcome, now: datetime) -> AnyJob:
    """Give the job as it is stored once the outcome is written."""
    free = twin(job)
    free.updated_at = now
    free.locked_at = free.claimed_by = free.last_heartbeat = free.heartbeat_interval = None
    match outcome:
        case Completed():
            free.status = JobStatus.COMPLETED
            free.fail_reason = None
        case Advanced(at, _):
            _move_to(free, at)
            free.fail_reason = None
        case Retrying(reason, at):
            free.status = JobStatus.PENDING
            free.next_run_at = at
            free.fail_count = job.fail_count + 1
            free.fail_reason = reason
        case Failed(reason):
            free.status = JobStatus.FAILED
            free.fail_count = job.fail_count + 1
            free.fail_reason = reason
        case OccurrenceFailed(reason, at):
            _move_to(free, at)
            free.fail_reason = reason
        case Released():
            free.status = JobStatus.PENDING
            free.claims = max(0, job.claims - 1)
    return free


def _move_to(job: AnyJob, tick: datetime) -> None:
    job.status = JobStatus.PENDING
    job.next_run_at = tick
    job.fail_count = 0
    job.claims = 0
