"""`SyncMonque`, the class that applications without asyncio use."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, overload

from monque_core.errors import MonqueError
from monque_core.monque import Monque
from monque_core.process import on_first_signal
from monque_core.registration import Registration
from monque_core.sync.blocking_api import BlockingApi, run_in_place
from monque_core.sync.loop_owner import LoopOwner
from monque_core.sync.loop_thread import WaitAbandonedError
from monque_core.validation import check_time_limit

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Self

    from monque_core.durations import Duration
    from monque_core.options import MonqueOptions
    from monque_core.scheduler.succession import Instance
    from monque_core.scheduler.workers import Worker
    from monque_core.sync.loop_thread import LoopThread
    from monque_core.tasks.definition import Definition

L = TypeVar("L", bound="Callable[..., object]")
P = ParamSpec("P")
R = TypeVar("R")

_CHECK_SECONDS = 1.0


def _blocking(
    method: Callable[Concatenate[BlockingApi, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[SyncMonque, P], R]:
    """Return a method with the parameters of a coroutine method that blocks for its result."""

    @functools.wraps(method)
    def block(monque: SyncMonque, /, *args: P.args, **kwargs: P.kwargs) -> R:
        monque._check_process()
        return run_in_place(method(monque._api, *args, **kwargs))

    return block


class SyncMonque(Registration):
    """`Monque` for scripts, Flask, Django and MongoEngine code: the same methods, blocking.

    `db` is a blocking PyMongo `Database` or a Motor database. Every method may be called from any
    thread. The calling thread stores and reads jobs. Workers run on an event loop in a background
    thread, from `start()` to `stop()`. A forking server may create a `SyncMonque` before it forks
    and use it after the fork.
    """

    def __init__(self, db: object, **options: Unpack[MonqueOptions]) -> None:
        self._db = db
        self._given_options = options
        self._monque = Monque(db, **options)
        self._loop_owner = LoopOwner(self._monque, self.initialize)
        self._middleware = self._monque._middleware
        self._changing_state = threading.RLock()
        self._is_ready = False
        self._started_on: LoopThread | None = None
        self._using_process: int | None = None
        self._bind()

    enqueue = _blocking(BlockingApi.enqueue)
    enqueue_many = _blocking(BlockingApi.enqueue_many)
    now = _blocking(BlockingApi.now)
    schedule = _blocking(BlockingApi.schedule)
    unschedule = _blocking(BlockingApi.unschedule)
    ping = _blocking(BlockingApi.ping)

    cancel_job = _blocking(BlockingApi.cancel_job)
    cancel_jobs = _blocking(BlockingApi.cancel_jobs)
    retry_job = _blocking(BlockingApi.retry_job)
    retry_jobs = _blocking(BlockingApi.retry_jobs)
    reschedule_job = _blocking(BlockingApi.reschedule_job)
    delete_job = _blocking(BlockingApi.delete_job)
    delete_jobs = _blocking(BlockingApi.delete_jobs)

    get_job = _blocking(BlockingApi.get_job)
    get_jobs = _blocking(BlockingApi.get_jobs)
    get_jobs_with_cursor = _blocking(BlockingApi.get_jobs_with_cursor)
    get_schedules = _blocking(BlockingApi.get_schedules)
    get_queue_stats = _blocking(BlockingApi.get_queue_stats)
    get_queue_view_summaries = _blocking(BlockingApi.get_queue_view_summaries)

    get_reactive_tasks = _blocking(BlockingApi.get_reactive_tasks)
    count_reactive_tasks = _blocking(BlockingApi.count_reactive_tasks)
    retry_reactive_tasks = _blocking(BlockingApi.retry_reactive_tasks)
    reconcile = _blocking(BlockingApi.reconcile)
    get_reactive_stats = _blocking(BlockingApi.get_reactive_stats)

    @property
    def scheduler_instance_id(self) -> str:
        """Return the id under which this instance claims jobs."""
        self._rebind_after_fork()
        return self._monque.scheduler_instance_id

    @property
    def is_running(self) -> bool:
        """Whether this instance claims and runs jobs."""
        return self._monque.is_running and self._is_in_its_process

    @property
    def is_healthy(self) -> bool:
        """Whether this instance runs and MongoDB has answered recently."""
        return self._monque.is_healthy and self._is_in_its_process

    @property
    def is_connected(self) -> bool:
        """Whether MongoDB answered the last call or `ping`; this property does no I/O."""
        both = (self._api.connectivity, self._store.connectivity)
        return max(both, key=lambda connectivity: connectivity.asked_at).is_made

    def initialize(self) -> None:
        """Create the indexes, recover stale jobs and check that the instance id is free.

        The first call of any method does this by itself; calling it again does nothing.
        """
        self._check_process()
        if self._is_ready:
            return
        self._loop_owner.check_may_wait()
        with self._changing_state, self._loop_owner.entered() as loop:
            loop.call(self._monque.initialize)
            self._is_ready = True

    def start(self) -> None:
        """Start to claim and run jobs in the background; does nothing if this already runs."""
        self._start(None)

    def stop(self, timeout: Duration | None = None) -> None:
        """Stop claiming, wait for running jobs up to the timeout, and leave nothing behind.

        The timeout is in seconds or a `timedelta`, `shutdown_timeout` by default.
        """
        self._check_process()
        self._loop_owner.check_may_wait()
        limit = None if timeout is None else check_time_limit(timeout)
        with self._changing_state:
            loop, self._started_on = self._started_on, None
            if loop is not None:
                try:
                    self._call_and_stop(loop, lambda: self._monque.stop(limit))
                finally:
                    self._loop_owner.leave()

    def run(self) -> None:
        """Run until SIGINT or SIGTERM, then stop: the main function of a worker process.

        A second signal does what it would do without monque.
        """
        asked_to_stop = threading.Event()
        with on_first_signal(asked_to_stop.set), contextlib.suppress(WaitAbandonedError):
            self._start(asked_to_stop.is_set)
            try:
                # On some platforms a signal does not interrupt a wait without a timeout.
                while not asked_to_stop.wait(_CHECK_SECONDS):
                    pass
            finally:
                self.stop()

    def run_until_idle(self, timeout: Duration | None = None) -> None:
        """Return when no job that has a worker here is due or running.

        Retries and jobs in the future stay. An instance that is not running starts for the time
        of the call. Raises `TimeoutError` after `timeout` seconds.
        """
        self.initialize()
        with self._loop_owner.entered() as loop:
            self._call_and_stop(loop, lambda: self._monque.run_until_idle(timeout))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @overload
    def on(self, event: str, listener: None = None) -> Callable[[L], L]: ...

    @overload
    def on(self, event: str, listener: L) -> L: ...

    def on(self, event: str, listener: L | None = None) -> L | Callable[[L], L]:
        """Call a listener on every event of a kind, in the thread of the event loop."""
        if listener is None:
            return lambda function: self.on(event, function)
        self._monque.on(event, listener)
        return listener

    @overload
    def once(self, event: str, listener: None = None) -> Callable[[L], L]: ...

    @overload
    def once(self, event: str, listener: L) -> L: ...

    def once(self, event: str, listener: L | None = None) -> L | Callable[[L], L]:
        """Call a listener on the next event of a kind, and then remove it."""
        if listener is None:
            return lambda function: self.once(event, function)
        self._monque.once(event, listener)
        return listener

    def off(self, event: str, listener: Callable[..., object]) -> None:
        """Remove a listener."""
        self._monque.off(event, listener)

    def _add_worker(self, worker: Worker, *, replace: bool) -> None:
        self._refuse_in_child()
        self._loop_owner.run(lambda: self._monque._add_worker(worker, replace=replace))

    def _add_task(self, definition: Definition, worker: Worker) -> None:
        self._refuse_in_child()
        self._loop_owner.run(lambda: self._monque._add_task(definition, worker))

    @property
    def _instance(self) -> Instance:
        self._rebind_after_fork()
        return self._monque._instance

    def _take_over(self, dead: Sequence[Instance]) -> None:
        """Recover the jobs of instances whose processes have ended; only before the start."""
        self._check_process()
        with self._changing_state, self._loop_owner.entered() as loop:
            loop.call(lambda: self._monque._take_over(dead))

    def _call_and_stop(
        self, loop: LoopThread, work: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Wait for a call; an interrupt, as by Ctrl-C, stops the instance at once.

        At once means without waiting for running jobs, which are released.
        """
        try:
            loop.call(work)
        except Exception:
            raise
        except BaseException:
            if self._started_on is None:
                loop.call(lambda: self._monque.stop(0))
            raise

    def _start(self, abandoned: Callable[[], bool] | None) -> None:
        self._check_process()
        self._loop_owner.check_may_wait()
        with self._changing_state:
            if self._started_on is not None:
                return
            loop = self._loop_owner.enter()
            try:
                # A handler may run, and use this object, before the start has returned.
                loop.call(self._monque._initialize_with_log, abandoned)
                self._is_ready = True
                loop.call(self._monque.start, abandoned)
            except BaseException:
                try:
                    # An interrupted call may have started the instance nevertheless.
                    loop.call(self._monque.stop)
                finally:
                    self._loop_owner.leave()
                raise
            self._started_on = loop

    @property
    def _is_in_its_process(self) -> bool:
        return self._using_process in {None, os.getpid()}

    def _check_process(self) -> None:
        """Bind to this process on first use; raise in the child of a fork after that."""
        self._rebind_after_fork()
        if self._using_process is None:
            self._using_process = os.getpid()
        self._refuse_in_child()

    def _refuse_in_child(self) -> None:
        """Raise in the child of a fork: threads and connections stayed in the parent."""
        if not self._is_in_its_process:
            raise MonqueError(
                "this SyncMonque was used before the process was forked: create one in each "
                "child, or use it only after the fork"
            )

    def _rebind_after_fork(self) -> None:
        """Get a new instance id in the child of a fork: all children would share one otherwise."""
        if self._using_process is not None or self._bound_process == os.getpid():
            return
        with self._changing_state:
            if self._bound_process != os.getpid():
                self._monque._bind(self._db, self._given_options)
                self._bind()

    def _bind(self) -> None:
        monque = self._monque
        self._options = monque._options
        self._store = monque._store
        self._api = BlockingApi(self._db, self._options, monque._workers, self._loop_owner)
        self._bound_process = os.getpid()
