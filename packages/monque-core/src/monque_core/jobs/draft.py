"""New jobs, validated and filled in, ready to be stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar

from bson import ObjectId

from monque_core.clock import truncate
from monque_core.errors import InvalidJobError
from monque_core.jobs.cron import canonical_cron, next_cron_run
from monque_core.jobs.fields import OPTION_CHECKS, check_unique_key
from monque_core.jobs.job import Job, JobStatus, twin
from monque_core.jobs.payload import check_payload, schedule_key
from monque_core.validation import (
    check_aware,
    check_exact_duration,
    check_keywords,
    check_name,
    refusal,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from bson.codec_options import CodecOptions

    from monque_core.durations import Duration

T = TypeVar("T")


class EnqueueManyOptions(TypedDict, total=False):
    """The keyword arguments of `Monque.enqueue_many` that all its jobs share."""

    run_at: datetime | None
    """When the job becomes due; now by default."""
    delay: Duration | None
    """When the job becomes due, from now, in seconds or as a `timedelta`."""
    priority: int
    """0 is the lowest; a higher priority runs first."""
    max_retries: int | None
    """Runs in all, the first one included."""
    timeout: Duration | None
    """The longest run, in seconds or as a `timedelta`."""
    session: object
    """The PyMongo session whose transaction stores the job."""


class EnqueueOptions(EnqueueManyOptions, total=False):
    """The keyword arguments of `Monque.enqueue`."""

    unique_key: str | None
    """No second job of this name and key is stored while one is pending or processing."""


_KNOWN_OPTIONS: Final = tuple(EnqueueOptions.__annotations__)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a payload."""

    codec: CodecOptions[Any]
    max_payload_size: int | None


def check_enqueue_options(function: str, options: Mapping[str, object]) -> None:
    """Raise `TypeError` for an option that `enqueue` does not have."""
    check_keywords(function, options, _KNOWN_OPTIONS)


def draft_job(
    name: str, data: T, options: EnqueueOptions, *, now: datetime, limits: Limits
) -> Job[T]:
    """Return a new one-off job, or raise for what is not acceptable."""
    check_payload(data, limits.codec, limits.max_payload_size)
    job = Job(
        id=ObjectId(),
        name=check_name(name),
        data=data,
        status=JobStatus.PENDING,
        next_run_at=resolve_run_at(now, options.get("run_at"), options.get("delay")),
        created_at=now,
        updated_at=now,
    )
    for option, value in options.items():
        if option in OPTION_CHECKS:
            setattr(job, option, OPTION_CHECKS[option](value))
    return job


def draft_like(
    first: Job[T], items: Iterable[T], key: Callable[[T], str] | None, limits: Limits
) -> list[Job[T]]:
    """Return a job like the first for each of some other items, or raise for one of them."""
    jobs: list[Job[T]] = []
    for data in items:
        check_payload(data, limits.codec, limits.max_payload_size)
        job = twin(first)
        job.id, job.data = ObjectId(), data
        if key is not None:
            job.unique_key = check_unique_key(key(data))
        jobs.append(job)
    return jobs


def draft_schedule(
    cron: str,
    name: str,
    data: T,
    *,
    now: datetime,
    limits: Limits,
    unique_key: str | None = None,
    timezone: str = "UTC",
    priority: int = 0,
) -> Job[T]:
    """Return a new recurring job, or raise for what is not acceptable."""
    options: EnqueueOptions = {"unique_key": unique_key, "priority": priority}
    job = draft_job(name, data, options, now=now, limits=limits)
    job.next_run_at = next_cron_run(cron, now, timezone)
    job.repeat_interval = canonical_cron(cron)
    job.timezone = timezone
    if unique_key is None:
        job.unique_key = schedule_key(job.repeat_interval, timezone, data, limits.codec)
    return job


def resolve_run_at(now: datetime, run_at: datetime | None, delay: Duration | None) -> datetime:
    """Return the time at which a new job becomes due."""
    if run_at is not None and delay is not None:
        raise InvalidJobError(
            "run_at", run_at, "give run_at (a point in time) or delay (a duration), not both"
        )
    if run_at is not None:
        return check_aware(run_at, field="run_at")
    if delay is None:
        return now
    duration = check_exact_duration("delay", delay, error=InvalidJobError)
    try:
        return truncate(now + duration)
    except OverflowError:
        raise refusal(
            "delay", delay, "a duration that ends before the year 10000", error=InvalidJobError
        ) from None
