"""The running scheduler: its parts, wired once, started and stopped together."""

from __future__ import annotations

import asyncio
import math
from datetime import timedelta
from typing import TYPE_CHECKING

from monque_core.clock import ServerClock
from monque_core.errors import ShutdownTimeoutError
from monque_core.jobs.outcome import RetryPolicy
from monque_core.scheduler.backlog import Backlog
from monque_core.scheduler.claimer import Claimer
from monque_core.scheduler.dispatcher import Dispatcher
from monque_core.scheduler.heartbeat import Heartbeat
from monque_core.scheduler.lease import InstanceLease
from monque_core.scheduler.listener import Listener
from monque_core.scheduler.loop import end, wait_until
from monque_core.scheduler.pace import Pace
from monque_core.scheduler.probation import Probation
from monque_core.scheduler.recovery import Recovery
from monque_core.scheduler.retention import Retention
from monque_core.scheduler.runner import Runner
from monque_core.scheduler.runs import Runs
from monque_core.scheduler.settler import Settler
from monque_core.scheduler.slots import Slots
from monque_core.scheduler.wakeups import Wakeups
from monque_core.threads import ThreadPool

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from monque_core.jobs.job import AnyJob
    from monque_core.options import Options
    from monque_core.scheduler.announcer import Announcer
    from monque_core.scheduler.loop import Loop
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
        self._store = store
        self._workers = workers
        self._clock = clock = options.clock
        self._announcer = announcer
        self._threads = ThreadPool("monque-job")
        policy = retry_policy(options)
        self._runs = runs = Runs()
        self._wakeups = wakeups = Wakeups(workers)
        slots = Slots(workers, options.instance_concurrency)
        backlog = Backlog(slots)
        self._settler = Settler(store.ledger, clock, policy, runs, wakeups, announcer)
        self._dispatcher = Dispatcher(
            queue=store.queue,
            claimer=Claimer(store.queue, clock, policy, announcer),
            runner=Runner(workers, middleware, self._threads, clock, policy, announcer),
            settler=self._settler,
            workers=workers,
            slots=slots,
            backlog=backlog,
            runs=runs,
            wakeups=wakeups,
            pace=Pace(),
            probation=Probation(),
            clock=clock,
            options=options,
            announcer=announcer,
        )
        self._heartbeat = Heartbeat(
            store.ledger, clock, options.heartbeat_interval, runs, backlog, wakeups, announcer
        )
        self._lease = InstanceLease(store.leases, holder, clock, options, announcer)
        self._listener = Listener(
            store.changes, clock, workers, wakeups, self._dispatcher, announcer
        )
        self._deadline = math.inf
        self._is_hurried = asyncio.Event()
        self._watchers: list[Loop] = []
        if options.recover_stale_jobs:
            self._watchers.append(
                Recovery(store, clock, policy, options.heartbeat_interval, runs, wakeups, announcer)
            )
        if options.job_retention is not None:
            self._watchers.append(Retention(store, clock, options.job_retention, announcer))

    async def start(self) -> None:
        """Begin to claim and run jobs."""
        await self._lease.take()
        for loop in self._loops():
            loop.start()

    def notice(self, jobs: Sequence[AnyJob]) -> None:
        """Take note of jobs that were stored from here."""
        now = self._clock.now()
        mine = [job for job in jobs if job.name in self._workers]
        self._listener.ignore([job.id for job in mine])
        for job in mine:
            if job.next_run_at <= now:
                self._wakeups.hint(job.name, 1)
            else:
                self._wakeups.hint_at(job.name, job.next_run_at)

    def running(self, name: str) -> int:
        """Tell how many jobs of a name run here."""
        return sum(run.job.name == name and run.stage == "running" for run in self._runs)

    def worker_added(self) -> None:
        """Serve the workers as they are now."""
        self._dispatcher.replan()
        self._listener.follow_new_names()

    async def wait_until_idle(self) -> None:
        """Wait until nothing with a worker here is due or running."""
        while True:
            await self._runs.wait_until_none()
            names, claims_before = self._workers.names, self._dispatcher.claims
            due = bool(names) and await self._store.queue.has_due(names, self._soon())
            is_quiet = not self._runs and not self._dispatcher.is_claiming
            if not due and is_quiet and self._dispatcher.claims == claims_before:
                return
            if due and not self._dispatcher.is_claiming:
                self._dispatcher.look_now()
            await asyncio.sleep(_IDLE_LOOK_GAP)

    def _soon(self) -> datetime:
        # Two instances' readings of the server's clock may differ a little.
        is_measured = isinstance(self._clock, ServerClock)
        return self._clock.now() + (_CLOCK_TOLERANCE if is_measured else timedelta(0))

    async def stop(self, seconds: float) -> None:
        """Finish what runs within so many seconds, hand back the rest, leave nothing behind."""
        clock = asyncio.get_running_loop().time
        self._deadline = deadline = clock() + seconds
        try:
            # A claim under way is worth a moment: cut off, it would leave jobs that nobody runs.
            await wait_until(max(deadline, clock() + _LAST_CLAIM_SECONDS), self._dispatcher.close())
            await self._dispatcher.stop()
            await self._hand_back(clock() + _LAST_CLAIM_SECONDS)
            drained = await self._drain()
            last_deadline = clock() + _LAST_WRITES_SECONDS
            if not drained:
                await self._cut_short(last_deadline)
            await self._give_back_lease(last_deadline)
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
        """Wait for running jobs until the deadline, which may come nearer; tell if all ended."""
        drained = False
        while not drained:
            hurried = asyncio.create_task(self._is_hurried.wait())
            draining = asyncio.create_task(self._runs.wait_until_none())
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

    async def _cut_short(self, last_deadline: float) -> None:
        """Cancel what still runs and write what can still be written."""
        unfinished = list(self._runs)
        self._announcer.errored(ShutdownTimeoutError([run.job for run in unfinished]))
        for run in unfinished:
            if run.stage == "running":
                run.end("stop")
        await wait_until(last_deadline, self._runs.wait_until_none())

    async def _hand_back(self, last_deadline: float) -> None:
        try:
            await wait_until(last_deadline, self._dispatcher.hand_back())
        except Exception as error:  # noqa: BLE001  # recovery brings them back
            self._announcer.errored(error)

    async def _give_back_lease(self, last_deadline: float) -> None:
        await self._lease.stop()
        try:
            await wait_until(last_deadline, self._lease.give_back())
        except Exception as error:  # noqa: BLE001  # the lease runs out by itself
            self._announcer.errored(error)

    def _loops(self) -> list[Loop]:
        return [
            self._settler,
            self._heartbeat,
            self._lease,
            self._dispatcher,
            self._listener,
            *self._watchers,
        ]


def retry_policy(options: Options) -> RetryPolicy:
    """Give the retry rules of an instance."""
    return RetryPolicy(
        max_retries=options.max_retries,
        base=options.base_retry_interval,
        cap=options.max_backoff_delay,
        jitter=options.retry_jitter,
    )
