"""`Monque`, the class that applications use."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Unpack

from monque_core.clock import adjust
from monque_core.controller import Controller
from monque_core.emitter import IsolatingEmitter
from monque_core.inspector import Inspector
from monque_core.jobs.draft import Limits
from monque_core.jobs.job import AnyJob
from monque_core.lifecycle import Lifecycle
from monque_core.options import MonqueOptions, Options
from monque_core.process import on_first_signal_async
from monque_core.producer import Producer
from monque_core.reactive.task_registry import TaskRegistry
from monque_core.reactive_admin import ReactiveAdmin
from monque_core.registration import Registration
from monque_core.scheduler.event_publisher import EventPublisher
from monque_core.scheduler.job_source import default_retry
from monque_core.scheduler.lease import InstanceLease
from monque_core.scheduler.loop import end
from monque_core.scheduler.recovery import Recovery
from monque_core.scheduler.runs import Runs
from monque_core.scheduler.succession import Instance, Succession
from monque_core.scheduler.wakeups import Wakeups
from monque_core.scheduler.workers import Workers
from monque_core.store.store import Store
from monque_core.validation import check_time_limit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from monque_core.durations import Duration
    from monque_core.reactive.runtime import ReactiveRuntime
    from monque_core.scheduler.engine import Engine
    from monque_core.scheduler.workers import Middleware, Worker
    from monque_core.tasks.definition import Definition

_SHORTEST_HEALTHY_SILENCE = 5.0
_LAST_LISTENERS_SECONDS = 5.0


class Monque(Producer, Inspector, Controller, ReactiveAdmin, Registration, IsolatingEmitter):
    """A job scheduler on one MongoDB collection.

    `db` is a PyMongo `AsyncDatabase`, a blocking PyMongo `Database` or a Motor database; the
    options are those of `MonqueOptions`, durations in seconds or as `timedelta`.
    """

    def __init__(self, db: object, **options: Unpack[MonqueOptions]) -> None:
        super().__init__()
        self._workers = Workers()
        self._reactive = TaskRegistry()
        self._middleware: list[Middleware] = []
        self._bind(db, options)
        self._engine: Engine | None = None
        self._runtime: ReactiveRuntime | None = None
        self._is_initialized = False
        self._initializing = asyncio.Lock()
        self._changing_state = asyncio.Lock()
        self._stopping: asyncio.Task[None] | None = None
        self._stop_callers: list[asyncio.Task[Any] | None] = []

    def _bind(self, db: object, options: MonqueOptions) -> None:
        """Parse the options and bind to the database; a forked process does this again."""
        self._options = Options.parse(options)
        self._store = Store(db, self._options)
        self._limits = Limits(self._store.codec, self._options.max_payload_size)
        self._publisher = EventPublisher(self, self._store.connectivity)
        self._lifecycle = Lifecycle(
            self.scheduler_instance_id, self._store, self._workers, self._reactive
        )
        # The same holder at every start, so that its own earlier lease does not keep it out.
        self._holder = str(uuid.uuid4())

    @property
    def scheduler_instance_id(self) -> str:
        """Return the id under which this instance claims jobs."""
        return self._options.scheduler_instance_id

    @property
    def is_running(self) -> bool:
        """Whether this instance claims and runs jobs."""
        return self._engine is not None

    @property
    def is_healthy(self) -> bool:
        """Whether this instance runs and MongoDB has answered recently."""
        connectivity = self._store.connectivity
        silence = 2 * self._options.heartbeat_interval.total_seconds()
        is_recent = connectivity.age <= max(silence, _SHORTEST_HEALTHY_SILENCE)
        return self.is_running and not connectivity.is_lost and is_recent

    @property
    def is_connected(self) -> bool:
        """Whether MongoDB answered the last call or `ping`; this property does no I/O."""
        return self._store.connectivity.is_made

    async def initialize(self) -> None:
        """Create the indexes, recover stale jobs and check that the instance id is free.

        The first call of any method does this by itself; calling it again does nothing.
        """
        async with self._initializing:
            if self._is_initialized:
                return
            adjust(self._options.clock, await self._store.prepare())
            lease = InstanceLease(
                self._store, self._holder, self._options.clock, self._options, self._publisher
            )
            await lease.check()
            recovery = self._recovery()
            grace_seconds = recovery.begin_grace()
            if self._options.recover_stale_jobs:
                await recovery.recover(grace_seconds)
            self._is_initialized = True

    async def start(self) -> None:
        """Start to claim and run jobs; does nothing if this instance is running."""
        await self._start(logs=True)

    async def stop(self, timeout: Duration | None = None) -> None:  # noqa: ASYNC109  # part of the contract
        """Stop claiming, wait for running jobs up to the timeout, and leave nothing behind.

        The timeout is in seconds or a `timedelta`, `shutdown_timeout` by default. Calls that
        overlap all wait for the same stop, and the shortest of their timeouts counts.
        """
        limit = self._options.shutdown_timeout if timeout is None else check_time_limit(timeout)
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(limit.total_seconds()))
        elif self._engine is not None:
            self._engine.hurry(limit.total_seconds())
        caller = asyncio.current_task()
        self._stop_callers.append(caller)
        try:
            await asyncio.shield(self._stopping)
        finally:
            self._stop_callers.remove(caller)

    async def run(self) -> None:
        """Run until SIGINT or SIGTERM, then stop: the main function of a worker process.

        A second signal does what it would do without monque.
        """
        asked_to_stop = asyncio.Event()
        with on_first_signal_async(asked_to_stop.set):
            starting = asyncio.create_task(self._start(logs=True))
            asking = asyncio.create_task(asked_to_stop.wait())
            try:
                await asyncio.wait([starting, asking], return_when=asyncio.FIRST_COMPLETED)
                if starting.done():
                    starting.result()
                    await asking
            finally:
                # A signal can arrive while the start waits for a predecessor's lease to expire.
                await end(starting)
                await end(asking)
                await self.stop()

    async def run_until_idle(self, timeout: Duration | None = None) -> None:  # noqa: ASYNC109  # part of the contract
        """Return when nothing that has a worker here is due or running.

        Retries and jobs in the future stay. If this instance is the leader, all changes written
        before the call are planned first. An instance that is not running starts for the time of
        the call. Raises `TimeoutError` after `timeout` seconds.
        """
        deadline = None
        if timeout is not None:
            deadline = asyncio.get_running_loop().time() + check_time_limit(timeout).total_seconds()
        async with asyncio.timeout_at(deadline):
            engine, is_new = await self._start()
        try:
            async with asyncio.timeout_at(deadline):
                if self._runtime is not None:
                    await self._runtime.catch_up()
                await engine.wait_until_idle()
        finally:
            if is_new:
                await self.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _add_worker(self, worker: Worker, *, replace: bool) -> None:
        self._workers.add(worker, replace=replace)
        if self._engine is not None:
            self._engine.worker_added()

    def _add_task(self, definition: Definition, worker: Worker) -> None:
        self._reactive.add(definition, worker)
        if self._runtime is not None:
            self._runtime.serve()

    async def _start(self, *, logs: bool = False) -> tuple[Engine, bool]:
        """Return the running engine, and whether this call started it."""
        async with self._changing_state:
            if self._engine is not None:
                return self._engine, False
            with self._lifecycle.starting() if logs else nullcontext():
                await self.initialize()
                engine, runtime = self._new_engine()
                runtime.serve()
                await engine.start()
            self._engine, self._runtime = engine, runtime
            if logs:
                self._lifecycle.started()
            return engine, True

    def _new_engine(self) -> tuple[Engine, ReactiveRuntime]:
        """Return a new engine, and the runtime of the reactive tasks on it."""
        # Slow to import, and a process that only enqueues jobs needs none of it.
        from monque_core.reactive.runtime import ReactiveRuntime  # noqa: PLC0415
        from monque_core.reactive.task_event_publisher import TaskEventPublisher  # noqa: PLC0415
        from monque_core.scheduler.engine import Engine  # noqa: PLC0415

        engine = Engine(
            self._store,
            self._holder,
            self._options,
            self._workers,
            self._middleware,
            self._publisher,
        )
        publisher = TaskEventPublisher(self._publisher)
        runtime = ReactiveRuntime(self._store, self._options, self._reactive, engine, publisher)
        return engine, runtime

    async def _initialize_with_log(self) -> None:
        """Initialize as the first part of a start, and log it."""
        with self._lifecycle.starting():
            await self.initialize()

    async def _stop(self, seconds: float) -> None:
        try:
            async with self._changing_state:
                engine = self._engine
                if engine is not None:
                    self._lifecycle.stopping(engine.active, seconds)
                    try:
                        cut_short = await engine.stop(seconds)
                    finally:
                        self._engine = self._runtime = None
                    self._lifecycle.stopped(cut_short)
                await self._end_listeners()
                await self._store.dismiss_threads()
        finally:
            self._stopping = None

    def _rebind(self) -> None:
        """Rebind to another event loop after the previous one has ended."""
        self._initializing = asyncio.Lock()
        self._changing_state = asyncio.Lock()
        self._stopping = None

    async def _end_listeners(self) -> None:
        """Wait for async listeners that are still running, up to a limit.

        A listener that itself waits for this stop continues after it.
        """
        at_work = {task for task in self._listener_tasks if task not in self._stop_callers}
        if at_work:
            _, late = await asyncio.wait(at_work, timeout=_LAST_LISTENERS_SECONDS)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=_LAST_LISTENERS_SECONDS)

    def _notice(self, jobs: Sequence[AnyJob]) -> None:
        """Wake this instance for jobs that were stored from here."""
        if self._engine is not None and jobs:
            self._engine.notice(jobs)

    def _emit_event(self, event: str, payload: object) -> None:
        """Emit an event."""
        self.emit(event, payload)

    def _running(self, name: str) -> int:
        """Return how many jobs of a name run here."""
        return 0 if self._engine is None else self._engine.running(name)

    @property
    def _instance(self) -> Instance:
        return Instance(self._options.scheduler_instance_id, self._holder)

    async def _take_over(self, dead: Sequence[Instance]) -> None:
        """Recover the jobs of instances whose processes have ended; only before the start."""
        if not self._options.recover_stale_jobs:
            return
        adjust(self._options.clock, await self._store.read_clock())
        tasks = {place: workers.names for place, workers in self._reactive.places.items()}
        succession = Succession(self._store, self._options.clock, self._recovery(), tasks)
        for instance in dead:
            await succession.take_over(instance)

    def _recovery(self) -> Recovery:
        options = self._options
        return Recovery(
            self._store,
            options.clock,
            default_retry(options),
            options.heartbeat_interval,
            Runs[AnyJob](),
            Wakeups(self._workers),
            self._publisher,
        )
