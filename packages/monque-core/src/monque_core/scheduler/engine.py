"""The running scheduler: its parts are wired once, started and stopped together."""

from __future__ import annotations

import asyncio
import math
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from monque_core.clock import ServerClock
from monque_core.errors import ShutdownTimeoutError
from monque_core.scheduler.cluster import Cluster, SeatCheck
from monque_core.scheduler.job_source import JobSource, default_retry
from monque_core.scheduler.lease import InstanceLease
from monque_core.scheduler.listener import Listener
from monque_core.scheduler.loop import end, wait_until
from monque_core.scheduler.maintenance import Maintenance
from monque_core.scheduler.pipeline import Pipeline
from monque_core.scheduler.polling import SteadyPolling
from monque_core.scheduler.recovery import Recovery
from monque_core.scheduler.retention import GrowthWarning, Retention
from monque_core.scheduler.slots import InstanceSlots
from monque_core.scheduler.wakeups import Wakeups
from monque_core.threads import ThreadPool

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Sequence
    from datetime import datetime

    from monque_core.jobs.job import AnyJob
    from monque_core.options import Options
    from monque_core.scheduler.event_publisher import EventPublisher
    from monque_core.scheduler.loop import Loop
    from monque_core.scheduler.source import C, Source, W
    from monque_core.scheduler.workers import Middleware, Workers
    from monque_core.store.store import Store

_LAST_CLAIM_SECONDS = 1.0
_LAST_WRITES_SECONDS = 5.0
_IDLE_LOOK_GAP = 0.01
_CLOCK_TOLERANCE = timedelta(milliseconds=50)


class Engine:
    """One run of an instance, from start to stop; the next start creates a new engine."""

    def __init__(
        self,
        store: Store,
        holder: str,
        options: Options,
        workers: Workers,
        middleware: Sequence[Middleware],
        publisher: EventPublisher,
    ) -> None:
        self._workers = workers
        self._middleware = middleware
        self._clock = clock = options.clock
        self._publisher = publisher
        self._threads = ThreadPool("monque-job")
        self._slots = InstanceSlots(options.instance_concurrency)
        self._lease = InstanceLease(store, holder, clock, options, publisher)
        self._cluster = Cluster(
            store.signals,
            store.seats(holder),
            options.scheduler_instance_id,
            names=self._served_names,
            load=self._load,
            wake=self._wake,
            changed=self._standby_changed,
            report=publisher.errored,
        )
        self._pipelines: list[Pipeline[Any, Any]] = []
        self._is_started = False
        wakeups = Wakeups(workers)
        source = JobSource(store, options, workers, wakeups, publisher)
        self._jobs = jobs = self.open_pipeline(source, wakeups)
        self._listener = Listener(
            store.changes, clock, workers, jobs, source.polling, self._cluster, publisher
        )
        maintenance = Maintenance(store, options, workers, publisher)
        self._watchers: list[Loop] = [
            self._lease,
            self._cluster,
            SeatCheck(self._cluster, options.heartbeat_interval, publisher.errored),
            self._listener,
            maintenance,
        ]
        if options.recover_stale_jobs:
            self._watchers.append(
                Recovery(
                    store,
                    clock,
                    default_retry(options),
                    options.heartbeat_interval,
                    jobs.runs,
                    wakeups,
                    publisher,
                )
            )
        if options.job_retention is None:
            self._watchers.append(GrowthWarning(store, publisher))
        elif options.job_retention.ages:
            self._watchers.append(Retention(store, clock, options.job_retention, publisher))
        self._finders: list[Loop] = []
        self._deadline = math.inf
        self._is_hurried = asyncio.Event()

    def open_pipeline(self, source: Source[W, C], wakeups: Wakeups) -> Pipeline[W, C]:
        """Run the work of another source, from now on or from the start."""
        pipeline = Pipeline(
            source,
            wakeups,
            self._clock,
            self._slots,
            self._cluster,
            self._middleware,
            self._threads,
            self._publisher,
        )
        self._pipelines.append(pipeline)
        self._begin(pipeline.loops)
        return pipeline

    def follow(self, loop: Loop) -> None:
        """Run a loop that finds work; such loops are the first to stop."""
        self._finders.append(loop)
        self._begin([loop])

    async def start(self) -> None:
        """Begin to claim and run work."""
        await self._lease.take()
        self._is_started = True
        self._begin(self._loops())

    def notice(self, jobs: Sequence[AnyJob]) -> None:
        """Wake up for jobs that were stored from here."""
        now, wakeups = self._clock.now(), self._jobs.wakeups
        mine = [job for job in jobs if job.name in self._workers]
        self._listener.ignore([job.id for job in mine])
        for job in mine:
            if job.next_run_at <= now:
                wakeups.hint(job.name, 1)
            else:
                wakeups.hint_at(job.name, job.next_run_at)

    def running(self, name: str) -> int:
        """Return how many jobs of a name run here."""
        return self._jobs.running(name)

    def worker_added(self) -> None:
        """Serve the current workers."""
        self._jobs.dispatcher.look_ahead_again()
        self._cluster.names_changed()
        self._listener.follow_new_names()

    async def wait_until_idle(self) -> None:
        """Wait until nothing with a worker here is due or running."""
        while True:
            # All of them each time: one that is idle may get work from another that is not.
            idle = [await one.is_idle(self._soon()) for one in list(self._pipelines)]
            if all(idle):
                return
            await asyncio.sleep(_IDLE_LOOK_GAP)

    def _soon(self) -> datetime:
        # The server clocks of two instances may differ a little.
        is_measured = isinstance(self._clock, ServerClock)
        return self._clock.now() + (_CLOCK_TOLERANCE if is_measured else timedelta(0))

    @property
    def active(self) -> int:
        """Return how many runs are under way."""
        return sum(len(pipeline.runs) for pipeline in self._pipelines)

    async def stop(self, seconds: float) -> int:
        """Finish what runs within so many seconds, release the rest, leave nothing behind.

        Return how many runs were cut short.
        """
        clock = asyncio.get_running_loop().time
        self._deadline = deadline = clock() + seconds
        dispatchers = [pipeline.dispatcher for pipeline in self._pipelines]
        try:
            # Wait for a claim under way: if it were cut off, its jobs would be left to recovery.
            last_claim = max(deadline, clock() + _LAST_CLAIM_SECONDS)
            await self._listener.stop()
            leaving = self._cluster.leave_seat(for_good=True)
            await self._try_until(clock() + _LAST_CLAIM_SECONDS, leaving)
            closing = wait_until(last_claim, _all(one.close() for one in dispatchers))
            await _all([*(finder.stop() for finder in self._finders), closing])
            await _all(one.stop() for one in dispatchers)
            await self._try_until(
                clock() + _LAST_CLAIM_SECONDS, _all(one.release_unstarted() for one in dispatchers)
            )
            drained = await self._drain()
            last_deadline = clock() + _LAST_WRITES_SECONDS
            cut_short = 0 if drained else await self._cut_short(last_deadline)
            await self._lease.stop()
            await self._try_until(last_deadline, self._lease.give_back())
            return cut_short
        finally:
            # Together: the thread of a blocking handle is released by its wait running out.
            await _all(loop.stop() for loop in self._loops())
            await self._threads.dismiss()

    def _served_names(self) -> list[str]:
        return [name for pipeline in self._pipelines for name in pipeline.source.workers.names]

    def _load(self) -> float:
        return max(pipeline.slots.load for pipeline in self._pipelines)

    def _wake(self, names: Sequence[str]) -> None:
        for pipeline in self._pipelines:
            for name in names:
                pipeline.wakeups.hint(name)

    def _standby_changed(self) -> None:
        """Watch due times and poll often only if no other instance listens for this one."""
        for pipeline in self._pipelines:
            if isinstance(pipeline.source.polling, SteadyPolling):
                pipeline.source.polling.is_standby = self._cluster.is_standby
                pipeline.dispatcher.look_ahead_again()

    def hurry(self, seconds: float) -> None:
        """Limit a stop under way to so many seconds from now."""
        deadline = asyncio.get_running_loop().time() + seconds
        if deadline < self._deadline:
            self._deadline = deadline
            self._is_hurried.set()

    async def _drain(self) -> bool:
        """Wait for running work until the deadline, and return whether all of it has ended."""
        drained = not any(pipeline.runs for pipeline in self._pipelines)
        while not drained:
            hurried = asyncio.create_task(self._is_hurried.wait())
            draining = asyncio.create_task(self._wait_until_none())
            try:
                remaining = self._deadline - asyncio.get_running_loop().time()
                done, _ = await asyncio.wait(
                    [hurried, draining],
                    timeout=max(0.0, remaining),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                drained = draining.done()
            finally:
                await end(hurried)
                await end(draining)
            if hurried not in done:
                break
            self._is_hurried.clear()
        return drained

    async def _wait_until_none(self) -> None:
        await _all(pipeline.runs.wait_until_none() for pipeline in self._pipelines)

    async def _cut_short(self, last_deadline: float) -> int:
        """Cancel what still runs and write what can still be written; return how many runs."""
        unfinished = [run for pipeline in self._pipelines for run in pipeline.runs]
        self._publisher.errored(ShutdownTimeoutError([run.work for run in unfinished]))
        for run in unfinished:
            if run.stage == "running":
                run.end("stop")
        await wait_until(last_deadline, self._wait_until_none())
        return len(unfinished)

    async def _try_until(self, deadline: float, work: Coroutine[Any, Any, None]) -> None:
        """Write something until a deadline; an error is reported and nothing depends on it."""
        try:
            await wait_until(deadline, work)
        except Exception as error:  # noqa: BLE001  # recovery and expiry do without
            self._publisher.errored(error)

    def _begin(self, loops: Iterable[Loop]) -> None:
        if self._is_started:
            for loop in loops:
                loop.start()

    def _loops(self) -> list[Loop]:
        pipelines = [loop for pipeline in self._pipelines for loop in pipeline.loops]
        return [*pipelines, *self._watchers, *self._finders]


async def _all(works: Iterable[Coroutine[Any, Any, object]]) -> None:
    await asyncio.gather(*works)
