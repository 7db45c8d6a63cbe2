"""The outcomes of a job's run, and which one follows a success or a failure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

from monque_core.clock import truncate
from monque_core.errors import MonqueError
from monque_core.jobs.cron import next_cron_run
from monque_core.jobs.job import AnyJob, JobStatus, twin

if TYPE_CHECKING:
    from monque_core.jobs.retry import Retry

UNREADABLE_PAUSE = timedelta(hours=1)
"""The delay until the next run of a schedule that became unreadable during its run."""
LONGEST_REASON = 8_000
_SHORT_REASON = 200


@dataclass(frozen=True, slots=True)
class Completed:
    """A one-off job has succeeded."""


@dataclass(frozen=True, slots=True)
class Advanced:
    """A recurring job has succeeded and waits for its next tick."""

    at: datetime
    problem: MonqueError | None = None
    """Why the next tick is unknown; `at` is then a guess."""


@dataclass(frozen=True, slots=True)
class Retrying:
    """A run failed and another one follows."""

    reason: str | None
    at: datetime


@dataclass(frozen=True, slots=True)
class Failed:
    """A one-off job has failed for good."""

    reason: str | None


@dataclass(frozen=True, slots=True)
class OccurrenceFailed:
    """One occurrence of a recurring job has failed for good; the schedule continues."""

    reason: str | None
    at: datetime


@dataclass(frozen=True, slots=True)
class Released:
    """The claim is undone, as if it had never been made."""


Outcome: TypeAlias = Completed | Advanced | Retrying | Failed | OccurrenceFailed | Released

COMPLETED = Completed()
RELEASED = Released()


def after_success(job: AnyJob, now: datetime) -> Outcome:
    """Return the outcome of a successful run."""
    if job.repeat_interval is None:
        return COMPLETED
    try:
        return Advanced(next_tick(job, now))
    except MonqueError as error:
        return Advanced(_guessed_tick(now), error)


def max_runs(job: AnyJob, retry: Retry) -> int | None:
    """Return how often a job may run: its own `max_retries`, else the limit of the policy."""
    return retry.max_attempts if job.max_retries is None else job.max_retries


def after_failure(job: AnyJob, reason: str, now: datetime, retry: Retry) -> Outcome:
    """Return the outcome of a failed run."""
    attempts, limit = job.fail_count + 1, max_runs(job, retry)
    if limit is not None and attempts >= limit:
        return after_exhaustion(job, reason, now)
    return Retrying(reason, retry.next_run(attempts, now))


def after_exhaustion(job: AnyJob, reason: str, now: datetime) -> Outcome:
    """Return the outcome of a failed run that was the last one."""
    if job.repeat_interval is None:
        return Failed(reason)
    try:
        return OccurrenceFailed(reason, next_tick(job, now))
    except MonqueError as error:
        both = f"{reason}; and its next tick is not known: {failure_reason(error)}"
        return OccurrenceFailed(both, _guessed_tick(now))


def next_tick(job: AnyJob, now: datetime) -> datetime:
    """Return the next run of a recurring job, strictly after `now`."""
    assert job.repeat_interval is not None
    return next_cron_run(job.repeat_interval, now, job.timezone or "UTC")


def _guessed_tick(now: datetime) -> datetime:
    """Return the next run of a schedule that became unreadable during its run.

    It must not end, as other instances may be able to read it. It must not be due at once, as its
    run is done.
    """
    return truncate(now + UNREADABLE_PAUSE)


def failure_reason(error: BaseException) -> str:
    """Return an exception as storable text, whatever its `__str__` does."""
    try:
        kind = str.__str__(type(error).__name__)
    except BaseException:  # noqa: BLE001  # a metaclass may raise for its name
        kind = "Exception"
    try:
        message = str.__str__(str(error))
    except BaseException:  # noqa: BLE001  # a message that cannot be read is still a failure
        message = "(its message cannot be read)"
    text = f"{kind}: {message[:LONGEST_REASON]}" if message else kind
    return _cut(text.encode("utf-8", "replace").decode("utf-8"), LONGEST_REASON)


def truncated(outcome: Outcome) -> Outcome | None:
    """Return the outcome with a shorter reason, then without one; None if it has none."""
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
    """Return the job as it is stored after the outcome was written."""
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
