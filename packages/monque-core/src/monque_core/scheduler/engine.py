"""The running scheduler: its parts, wired once, started and stopped together."""

from __future__ import annotations

import asyncio
import math
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from monque_core.clock import ServerClock
from monque_core.errors import ShutdownTimeoutError
from monque_core.scheduler.capacity import Capacity
from monque_core.scheduler.job_source import JobSource, retry_policy
from monque_core.scheduler.lane import Lane
from monque_core.scheduler.lease import InstanceLease
from monque_core.scheduler.listener import Listener
from monque_core.scheduler.loop import end, wait_until
from monque_core.scheduler.recovery import Recovery
from monque_core.scheduler.retention import GrowthWarning, Retention
from monque_core.scheduler.upkeep import Upkeep
from monque_core.scheduler.wakeups import Wakeups
from monque_core.threads import ThreadPool

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Sequence
    from datetime import datetime

    from monque_core.jobs.job import AnyJob
    from monque_core.options import Options
    from monque_core.scheduler.announcer import Announcer
    from monque_core.scheduler.loop import Loop
    from monque_core.scheduler.source import C, Source, W
    from monque_core.scheduler.workers import Middleware, Workers
    from monque_core.store.store import Store

_LAST_CLAIM_SECONDS = 1.0
_LAST_WRITES_SECONDS = 5.0
_IDLE_LOOK_GAP = 0.01
_CLOCK_TOLERANCE = timedelta(milliseconds=50)


class Engine:
    """One start-to-stop life of an instance; the next start makes a new one."""

    def __init__(
        self,
        store: Store,
        holder: str,
        options: Options,
        workers: Workers,
        middleware: Sequence[Middleware],
        announcer: Announcer,
    ) -> None:
        self._workers = workers
        self._middleware = middleware
        self._clock = clock = options.clock
        self._announcer = announcer
        self._threads = ThreadPool("monque-job")
        self._capacity = Capacity(options.instance_concurrency)
        self._lease = InstanceLease(store, holder, clock, options, announcer)
        self._lanes: list[Lane[Any, Any]] = []
        self._is_started = False
        wakeups = Wakeups(workers)
        source = JobSource(store, options, workers, wakeups, announcer)
        self._jobs = jobs = self.open_lane(source, wakeups)
        self._listener = Listener(
            store.changes, clock, workers, wakeups, jobs.dispatcher, source.polling, announcer
        )
        upkeep = Upkeep(store, options, workers, announcer)
        self._watchers: list[Loop] = [self._lease, self._listener, upkeep]
        if options.recover_stale_jobs:
            policy = retry_policy(options)
            self._watchers.append(
                Recovery(
                    store,
                    clock,
                    policy,
                    options.heartbeat_interval,
                    jobs.runs,
                    wakeups,
                    announcer,
                )
            )
        if options.job_retention is None:
            self._watchers.append(GrowthWarning(store, announcer))
        elif options.job_retention.ages:
            self._watchers.append(Retention(store, clock, options.job_retention, announcer))
        self._finders: list[Loop] = []
        self._deadline = math.inf
        self._is_hurried = asyncio.Event()

    def open_lane(self, source: Source[W, C], wakeups: Wakeups) -> Lane[W, C]:
        """Run the work of a source, too, from now on or from the start."""
        lane = Lane(
            source,
            wakeups,
            self._clock,
            self._capacity,
            self._middleware,
            self._threads,
            self._announcer,
        )
        self._lanes.append(lane)
        self._begin(lane.loops)
        return lane

    def follow(self, loop: Loop) -> None:
        """Run a loop that finds work; it is the first to stop."""
        self._finders.append(loop)
        self._begin([loop])

    async def start(self) -> None:
        """Begin to claim and run work."""
        await self._lease.take()
        self._is_started = True
        self._begin(self._loops())

    def notice(self, jobs: Sequence[AnyJob]) -> None:
        """Take note of jobs that were stored from here."""
        now, wakeups = self._clock.now(), self._jobs.wakeups
        mine = [job for job in jobs if job.name in self._workers]
        self._listener.ignore([job.id for job in mine])
        for job in mine:
            if job.next_run_at <= now:
                wakeups.hint(job.name, 1)
            else:
                wakeups.hint_at(job.name, job.next_run_at)

    def running(self, name: str) -> int:
        """Tell how many jobs of a name run here."""
        return self._jobs.running(name)

    def worker_added(self) -> None:
        """Serve the workers as they are now."""
        self._jobs.dispatcher.replan()
        self._listener.follow_new_names()

    async def wait_until_idle(self) -> None:
        """Wait until nothing with a worker here is due or running."""
        while True:
            # All of them each time: one that is idle may get work from another that is not.
            idle = [await lane.is_idle(self._soon()) for lane in list(self._lanes)]
            if all(idle):
                return
            await asyncio.sleep(_IDLE_LOOK_GAP)

    def _soon(self) -> datetime:
        # Two instances' readings of the server's clock may differ a little.
        is_measured = isinstance(self._clock, ServerClock)
        return self._clock.now() + (_CLOCK_TOLERANCE if is_measured else timedelta(0))

    @property
    def active(self) -> int:
        """Return how many runs are under way."""
        return sum(len(lane.runs) for lane in self._lanes)

    async def stop(self, seconds: float) -> int:
        """Finish what runs within so many seconds, hand back the rest, leave nothing behind.

        Return how many runs were cut short.
        """
        clock = asyncio.get_running_loop().time
        self._deadline = deadline = clock() + seconds
        dispatchers = [lane.dispatcher for lane in self._lanes]
        try:
            # A claim under way is worth a moment: cut off, it would leave jobs that nobody runs.
            last_claim = max(deadline, clock() + _LAST_CLAIM_SECONDS)
            closing = wait_until(last_claim, _all(one.close() for one in dispatchers))
            await _all([*(finder.stop() for finder in self._finders), closing])
            await _all(one.stop() for one in dispatchers)
            await self._try_until(
                clock() + _LAST_CLAIM_SECONDS, _all(one.hand_back() for one in dispatchers)
            )
            drained = await self._drain()
            last_deadline = clock() + _LAST_WRITES_SECONDS
            cut_short = 0 if drained else await self._cut_short(last_deadline)
            await self._lease.stop()
            await self._try_until(last_deadline, self._lease.give_back())
            return cut_short
        finally:
            for loop in self._loops():
                await loop.stop()
            await self._threads.dismiss()

    def hurry(self, seconds: float) -> None:
        """Let a stop that is under way wait no longer than so many seconds from now."""
        deadline = asyncio.get_running_loop().time() + seconds
        if deadline < self._deadline:
            self._deadline = deadline
            self._is_hurried.set()

    async def _drain(self) -> bool:
        """Wait for running work until the deadline, which may come nearer; tell if all ended."""
        drained = not any(lane.runs for lane in self._lanes)
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
        await _all(lane.runs.wait_until_none() for lane in self._lanes)

    async def _cut_short(self, last_deadline: float) -> int:
        """Cancel what still runs and write what can still be written; return how many runs."""
        unfinished = [run for lane in self._lanes for run in lane.runs]
        self._announcer.errored(ShutdownTimeoutError([run.work for run in unfinished]))
        for run in unfinished:
            if run.stage == "running":
                run.end("stop")
        await wait_until(last_deadline, self._wait_until_none())
        return len(unfinished)

    async def _try_until(self, deadline: float, last_words: Coroutine[Any, Any, None]) -> None:
        """Tell MongoDB something that it would find out by itself, too, in the end."""
        try:
            await wait_until(deadline, last_words)
        except Exception as error:  # noqa: BLE001  # recovery and expiry do without
            self._announcer.errored(error)

    def _begin(self, loops: Iterable[Loop]) -> None:
        if self._is_started:
            for loop in loops:
                loop.start()

    def _loops(self) -> list[Loop]:
        lanes = [loop for lane in self._lanes for loop in lane.loops]
        return [*lanes, *self._watchers, *self._finders]


async def _all(works: Iterable[Coroutine[Any, Any, object]]) -> None:
    await asyncio.gather(*works)
