"""The producer API: enqueue jobs and store schedules."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypeVar, Unpack

from monque_core.clock import ServerClock, adjust
from monque_core.display import log
from monque_core.errors import MonqueConnectionError
from monque_core.jobs.draft import (
    EnqueueManyOptions,
    EnqueueOptions,
    Limits,
    check_enqueue_options,
    draft_job,
    draft_like,
    draft_schedule,
)
from monque_core.jobs.fields import check_unique_key
from monque_core.store.handles import native_session
from monque_core.validation import check_name, check_time_limit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from monque_core.durations import Duration
    from monque_core.jobs.job import AnyJob, Job
    from monque_core.options import Options
    from monque_core.store.store import Store

R = TypeVar("R")
T = TypeVar("T")


class Producer(ABC):
    """The part of `Monque` that stores jobs."""

    _options: Options
    _store: Store
    _limits: Limits
    _is_initialized: bool
    _is_reading_clock = False

    @abstractmethod
    async def initialize(self) -> None:
        """Create indexes, recover stale jobs, check the instance id."""

    @abstractmethod
    def _notice(self, jobs: Sequence[AnyJob]) -> None:
        """Wake this instance for jobs that were stored from here."""

    async def enqueue(self, name: str, data: T, **options: Unpack[EnqueueOptions]) -> Job[T]:
        """Store a job that runs once, now or at a given time.

        The options are the keys of `EnqueueOptions`: `run_at` or `delay`, `unique_key`, `priority`,
        `max_retries`, `timeout` and `session`. With a unique key, a pending or processing job of
        the same name and key is returned instead; its `deduplicated` is True. A higher priority
        runs first. `max_retries` is the number of runs in all, the first one included. `session`
        makes this part of the caller's transaction.
        """
        check_enqueue_options("enqueue", options)

        def draft() -> Job[T]:
            return draft_job(name, data, options, now=self._now(), limits=self._limits)

        transaction = native_session(options.get("session"))
        job = await self._ready(draft)
        if transaction is not None:
            return await self._store.inserts.put(job, transaction)
        job = await self._store.insert_batcher.store(job)
        if not job.deduplicated:
            self._notice([job])
        return job

    async def enqueue_many(
        self,
        name: str,
        items: Iterable[T],
        *,
        unique_key: str | Callable[[T], str] | None = None,
        **options: Unpack[EnqueueManyOptions],
    ) -> list[Job[T]]:
        """Store a job for each item, in order, with one insert per thousand or more.

        The options are those of `enqueue`; the unique key may be a function of the item.
        """
        check_enqueue_options("enqueue_many", options)
        items = list(items)
        transaction = native_session(options.get("session"))
        if not items:
            return []
        key = unique_key if callable(unique_key) else None

        def draft() -> list[Job[T]]:
            first_key = (
                check_unique_key(unique_key(items[0])) if callable(unique_key) else unique_key
            )
            first_options: EnqueueOptions = {**options, "unique_key": first_key}
            first = draft_job(name, items[0], first_options, now=self._now(), limits=self._limits)
            return [first, *draft_like(first, items[1:], key, self._limits)]

        jobs = await self._ready(draft)
        if unique_key is None:
            await self._store.inserts.insert_alike(jobs, transaction)
        else:
            jobs = await self._store.inserts.insert_many_unique(jobs, transaction)
        if transaction is None:
            self._notice([job for job in jobs if not job.deduplicated])
        return jobs

    async def now(self, name: str, data: T) -> Job[T]:
        """Store a job that is due now."""
        return await self.enqueue(name, data)

    async def schedule(
        self,
        cron: str,
        name: str,
        data: T,
        *,
        unique_key: str | None = None,
        timezone: str = "UTC",
        priority: int = 0,
        session: object = None,
    ) -> Job[T]:
        """Store a job that runs at every tick of a cron expression; safe at every start.

        Without a key, the same cron, time zone, name and data are one schedule. With a key, a
        changed cron, time zone or data updates the schedule that has the key.
        """

        def draft() -> Job[T]:
            return draft_schedule(
                cron,
                name,
                data,
                now=self._now(),
                limits=self._limits,
                unique_key=unique_key,
                timezone=timezone,
                priority=priority,
            )

        transaction = native_session(session)
        wanted = await self._ready(draft)
        read_as = wanted.repeat_interval or ""
        if len(cron.split()) < len(read_as.split()):
            log(
                logging.WARNING,
                f"the cron expression {cron!r} of {name} has fewer than five fields "
                f"and is read as {read_as!r}",
            )
        job: Job[T] = await self._store.schedules.put(wanted, transaction)
        if transaction is None:
            self._notice([job])
        return job

    async def unschedule(self, name: str, unique_key: str | None = None) -> int:
        """Remove the recurring jobs of a name, or the one with this key, and return how many.

        A running one finishes its run and does not run again.
        """
        check_name(name)
        if unique_key is not None:
            check_unique_key(unique_key)
        await self.initialize()
        return await self._store.schedules.remove(name, unique_key, self._now())

    async def ping(self, timeout: Duration = 1) -> bool:  # noqa: ASYNC109  # bounds the driver, too
        """Return whether MongoDB answers within the timeout: the health of a producer.

        Nothing needs to be initialized or started. The reason of a False is logged.
        """
        seconds = check_time_limit(timeout).total_seconds()
        try:
            await self._store.ping(seconds)
        except MonqueConnectionError as error:
            log(logging.WARNING, f"MongoDB did not answer a ping within {seconds:g} s: {error}")
            return False
        return True

    def _now(self) -> datetime:
        return self._options.clock.now()

    async def _ready(self, draft: Callable[[], R]) -> R:
        """Validate a draft before MongoDB is used, then draft again by the server's clock."""
        drafted = draft()
        if not self._is_initialized:
            await self.initialize()
            drafted = draft()
        elif self._must_read_clock():
            await self._read_clock()
            drafted = draft()
        return drafted

    def _must_read_clock(self) -> bool:
        clock = self._options.clock
        if not isinstance(clock, ServerClock) or self._store.connectivity.is_lost:
            return False
        # If the reading is only old, one caller reads the clock for all.
        return clock.has_jumped or (clock.is_old and not self._is_reading_clock)

    async def _read_clock(self) -> None:
        self._is_reading_clock = True
        try:
            adjust(self._options.clock, await self._store.read_clock())
        except Exception as error:  # noqa: BLE001  # the job must be stored nevertheless
            # The insert that follows reports an outage, and is retried.
            log(logging.DEBUG, f"the server's clock could not be read: {error}")
        finally:
            self._is_reading_clock = False
