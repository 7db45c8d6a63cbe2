"""New jobs, checked and filled in, ready to be stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from bson import ObjectId

from monque_core.jobs.cron import canonical_cron, next_cron_run
from monque_core.jobs.job import Job, JobStatus, twin
from monque_core.jobs.payload import check_payload, schedule_key
from monque_core.jobs.rules import (
    check_max_retries,
    check_name,
    check_priority,
    check_timeout,
    check_unique_key,
    resolve_run_at,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from bson.codec_options import CodecOptions

    from monque_core.durations import Duration

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds a payload."""

    codec: CodecOptions[Any]
    max_payload_size: int | None


def draft_job(
    name: str,
    data: T,
    *,
    now: datetime,
    limits: Limits,
    run_at: datetime | None = None,
    delay: Duration | None = None,
    unique_key: str | None = None,
    priority: int = 0,
    max_retries: int | None = None,
    timeout: Duration | None = None,
) -> Job[T]:
    """Make a one-off job, or raise for what is not acceptable."""
    check_payload(data, limits.codec, limits.max_payload_size)
    return Job(
        id=ObjectId(),
        name=check_name(name),
        data=data,
        status=JobStatus.PENDING,
        next_run_at=resolve_run_at(now, run_at, delay),
        created_at=now,
        updated_at=now,
        unique_key=None if unique_key is None else check_unique_key(unique_key),
        priority=check_priority(priority),
        max_retries=check_max_retries(max_retries),
        timeout=check_timeout(timeout),
    )


def alike(
    first: Job[T], items: Iterable[T], key: Callable[[T], str] | None, limits: Limits
) -> list[Job[T]]:
    """Make a job like the first for each of some other items, or raise for one of them."""
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
    """Make a recurring job, or raise for what is not acceptable."""
    job = draft_job(name, data, now=now, limits=limits, unique_key=unique_key, priority=priority)
    job.next_run_at = next_cron_run(cron, now, timezone)
    job.repeat_interval = canonical_cron(cron)
    job.timezone = timezone
    if unique_key is None:
        job.unique_key = schedule_key(job.repeat_interval, timezone, data, limits.codec)
    return job
