"""The options of a `Monque`, validated when it is created."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import TYPE_CHECKING, TypedDict

from monque_core.clock import Clock, ServerClock, StorableClock
from monque_core.display import escape
from monque_core.durations import Duration, to_timedelta
from monque_core.validation import (
    MILLISECOND,
    check_exact_duration,
    check_flag,
    check_share,
    check_whole_number,
    is_collection_name,
    is_text,
    refusal,
    unknown_option,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

SHORTEST_HEARTBEAT = timedelta(milliseconds=100)
STALE_AFTER_HEARTBEATS = 3


@dataclass(frozen=True, kw_only=True)
class JobRetention:
    """How long finished jobs stay: ages in seconds or `timedelta`, None keeps them for ever.

    `JobRetention()` without ages keeps all of them on purpose, without a warning.
    """

    completed: Duration | None = None
    failed: Duration | None = None
    cancelled: Duration | None = None
    interval: Duration = timedelta(hours=1)

    def __post_init__(self) -> None:
        """Convert every age to a `timedelta`; raise `ValueError` if one is invalid."""
        for name in ("completed", "failed", "cancelled"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, check_exact_duration(f"job_retention.{name}", value))
        interval = check_exact_duration(
            "job_retention.interval", self.interval, least=SHORTEST_HEARTBEAT
        )
        object.__setattr__(self, "interval", interval)

    @property
    def ages(self) -> dict[str, timedelta]:
        """Return the age limit of each status that has one."""
        limits = {"completed": self.completed, "failed": self.failed, "cancelled": self.cancelled}
        return {status: to_timedelta(age) for status, age in limits.items() if age is not None}


@dataclass(frozen=True, kw_only=True)
class ReactiveOptions:
    """The timing of reactive tasks; durations are seconds or `timedelta`."""

    visibility_timeout: Duration = timedelta(seconds=60)
    """How long a silent instance keeps its runs; claims are renewed five times as often."""
    leader_lease: Duration = timedelta(seconds=30)
    """How long a silent leader stays the leader; its lease is renewed three times as often."""
    flush_size: int = 1000
    """The most changed documents that are planned together."""
    flush_interval: Duration = timedelta(milliseconds=500)
    """The longest time that changes are collected before they are planned."""
    cleanup_interval: Duration = timedelta(hours=1)
    """How often records that are no longer needed are deleted."""

    def __post_init__(self) -> None:
        """Convert every duration to a `timedelta`; raise `ValueError` if one is invalid."""
        least = {
            "visibility_timeout": 5 * SHORTEST_HEARTBEAT,
            "leader_lease": 3 * SHORTEST_HEARTBEAT,
            "flush_interval": timedelta(milliseconds=1),
            "cleanup_interval": SHORTEST_HEARTBEAT,
        }
        for name, shortest in least.items():
            given = getattr(self, name)
            checked = check_exact_duration(f"reactive_options.{name}", given, least=shortest)
            object.__setattr__(self, name, checked)
        check_whole_number("reactive_options.flush_size", self.flush_size, least=1, most=None)


class MonqueOptions(TypedDict, total=False):
    """The keyword arguments of `Monque`; durations are seconds or `timedelta`."""

    collection_name: str
    poll_interval: Duration
    safety_poll_interval: Duration
    max_retries: int
    """The number of runs in all, the first one included."""
    base_retry_interval: Duration
    max_backoff_delay: Duration
    retry_jitter: float
    shutdown_timeout: Duration
    worker_concurrency: int
    instance_concurrency: int | None
    lock_timeout: Duration
    heartbeat_interval: Duration
    recover_stale_jobs: bool
    scheduler_instance_id: str
    job_retention: JobRetention | None
    skip_index_creation: bool
    max_payload_size: int | None
    stats_cache_ttl: Duration
    reactive_options: ReactiveOptions
    clock: Clock


@dataclass(frozen=True, kw_only=True)
class Options:
    """Validated options, every duration a `timedelta`."""

    collection_name: str = "monque_jobs"
    poll_interval: timedelta = timedelta(seconds=1)
    safety_poll_interval: timedelta = timedelta(seconds=30)
    max_retries: int = 10
    """Runs in all, the first one included."""
    base_retry_interval: timedelta = timedelta(seconds=1)
    max_backoff_delay: timedelta = timedelta(hours=24)
    retry_jitter: float = 0.0
    shutdown_timeout: timedelta = timedelta(seconds=30)
    worker_concurrency: int = 5
    instance_concurrency: int | None = None
    lock_timeout: timedelta = timedelta(minutes=30)
    heartbeat_interval: timedelta = timedelta(seconds=30)
    recover_stale_jobs: bool = True
    scheduler_instance_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    job_retention: JobRetention | None = None
    skip_index_creation: bool = False
    max_payload_size: int | None = None
    stats_cache_ttl: timedelta = timedelta(seconds=5)
    reactive_options: ReactiveOptions = field(default_factory=ReactiveOptions)
    clock: Clock = field(default_factory=ServerClock)

    @classmethod
    def parse(cls, given: Mapping[str, object]) -> Options:
        """Return the validated options; raise `ValueError` with option, value and rule."""
        known = {known.name for known in fields(cls)}
        for name in given:
            if name not in known:
                raise unknown_option(name, known)
        checked = {name: _CHECKS[name](name, value) for name, value in given.items()}
        options = cls(**checked)  # type: ignore[arg-type]  # each value comes from its own check
        shortest_lock = STALE_AFTER_HEARTBEATS * options.heartbeat_interval
        if options.lock_timeout < shortest_lock:
            raise refusal(
                "lock_timeout",
                options.lock_timeout,
                f"at least {STALE_AFTER_HEARTBEATS} × heartbeat_interval ({shortest_lock})",
            )
        return options

    @property
    def stale_after(self) -> timedelta:
        """Return how long this instance may be silent before its jobs count as abandoned."""
        return STALE_AFTER_HEARTBEATS * self.heartbeat_interval


def _positive_duration(name: str, value: object) -> timedelta:
    return check_exact_duration(name, value, least=MILLISECOND)


def _heartbeat(name: str, value: object) -> timedelta:
    return check_exact_duration(name, value, least=SHORTEST_HEARTBEAT)


def _count(name: str, value: object) -> int:
    return check_whole_number(name, value, least=1, most=None)


def _runs(name: str, value: object) -> int:
    meaning = "the number of runs in all"
    return check_whole_number(name, value, least=1, most=None, meaning=meaning)


def _optional_count(name: str, value: object) -> int | None:
    return None if value is None else _count(name, value)


def _instance_id(name: str, value: object) -> str:
    allowed = "a non-blank text of at most 255 characters, none of them a control character"
    if not is_text(value) or not value.strip() or len(value) > 255 or escape(value) != value:
        raise refusal(name, value, allowed)
    return value


def _collection_name(name: str, value: object) -> str:
    if not is_collection_name(value) or len(value) > 200:
        allowed = (
            "a MongoDB collection name: not empty, at most 200 characters, no '$', control "
            "character or half of a surrogate pair, no leading 'system.', no '.' at either end "
            "and no '..'"
        )
        raise refusal(name, value, allowed)
    return value


def _retention(name: str, value: object) -> JobRetention | None:
    if value is not None and not isinstance(value, JobRetention):
        raise refusal(name, value, "None or JobRetention(completed=…, failed=…, cancelled=…)")
    return value


def _reactive_options(name: str, value: object) -> ReactiveOptions:
    if not isinstance(value, ReactiveOptions):
        raise refusal(name, value, "ReactiveOptions(visibility_timeout=…, leader_lease=…, …)")
    return value


def _clock(name: str, value: object) -> Clock:
    if not isinstance(value, Clock):
        raise refusal(name, value, "an object whose now() gives an aware datetime")
    if isinstance(value, ServerClock):
        return value
    clock = StorableClock(value)
    try:
        clock.now()
    except Exception as error:
        allowed = f"an object whose now() gives an aware datetime; this one: {error}"
        raise refusal(name, value, allowed) from error
    return clock


_CHECKS = {
    "collection_name": _collection_name,
    "poll_interval": _positive_duration,
    "safety_poll_interval": _positive_duration,
    "max_retries": _runs,
    "base_retry_interval": _positive_duration,
    "max_backoff_delay": _positive_duration,
    "retry_jitter": check_share,
    "shutdown_timeout": check_exact_duration,
    "worker_concurrency": _count,
    "instance_concurrency": _optional_count,
    "lock_timeout": _positive_duration,
    "heartbeat_interval": _heartbeat,
    "recover_stale_jobs": check_flag,
    "scheduler_instance_id": _instance_id,
    "job_retention": _retention,
    "skip_index_creation": check_flag,
    "max_payload_size": _optional_count,
    "stats_cache_ttl": check_exact_duration,
    "reactive_options": _reactive_options,
    "clock": _clock,
}
