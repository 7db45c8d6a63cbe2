"""The front door for code without asyncio."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    ParamSpec,
    TypeVar,
    Unpack,
    overload,
)

from monque_core.durations import check_limit
from monque_core.errors import MonqueError
from monque_core.monque import Monque
from monque_core.sync.blocking_api import BlockingApi, run_in_place
from monque_core.sync.loop_owner import LoopOwner
from monque_core.sync.loop_thread import GivenUpError
from monque_core.sync.signals import on_first_signal

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from types import TracebackType
    from typing import Self

    from monque_core.durations import Duration
    from monque_core.options import MonqueOptions
    from monque_core.scheduler.succession import Instance
    from monque_core.scheduler.workers import Handler, Middleware
    from monque_core.sync.loop_thread import LoopThread
    from monque_core.tasks.definition import TaskOptions

H = TypeVar("H", bound="Handler")
M = TypeVar("M", bound="Middleware")
L = TypeVar("L", bound="Callable[..., object]")
P = ParamSpec("P")
R = TypeVar("R")

_LOOK_GAP = 1.0


def _blocking(
    method: Callable[Concatenate[BlockingApi, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[SyncMonque, P], R]:
    """Make a coroutine method one that blocks, signature and all."""

    @functools.wraps(method)
    def block(monque: SyncMonque, /, *args: P.args, **kwargs: P.kwargs) -> R:
        monque._check_process()
        return run_in_place(method(monque._counter, *args, **kwargs))

    return block


class SyncMonque:
    """`Monque` for scripts, Flask, Django and MongoEngine code: the same methods, blocking.

    `db` is a blocking PyMongo `Database` or a Motor database. Every method may be called from any
    thread. Jobs are stored and read by the calling thread itself; workers run on an event loop in
    a thread of their own, from `start()` to `stop()`. A forking server may make one before it
    forks, and use it afterwards.
    """

    def __init__(self, db: object, **options: Unpack[MonqueOptions]) -> None:
        self._db = db
        self._given = options
        self._monque = Monque(db, **options)
        self._loop_owner = LoopOwner(self._monque, self.initialize)
        self._counter = self._make_counter()
        self._born_in = os.getpid()
        self._changing_state = threading.RLock()
        self._is_ready = False
        self._started_on: LoopThread | None = None
        self._process_id: int | None = None

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
        """Give the id under which this instance claims jobs."""
        self._settle_in()
        return self._monque.scheduler_instance_id

    @property
    def is_running(self) -> bool:
        """Tell whether this instance claims and runs jobs."""
        return self._monque.is_running and self._is_in_its_process

    @property
    def is_healthy(self) -> bool:
        """Tell whether this instance runs and MongoDB has answered lately."""
        return self._monque.is_healthy and self._is_in_its_process

    @property
    def is_connected(self) -> bool:
        """Whether MongoDB answered the last call or `ping`; this asks nothing by itself."""
        contacts = (self._counter.connectivity, self._monque._store.connectivity)
        return max(contacts, key=lambda contact: contact.asked_at).is_made

    def initialize(self) -> None:
        """Create the indexes, recover stale jobs and make sure that the instance id is free.

        Whatever is called first does this by itself; calling it again does nothing.
        """
        self._check_process()
        if self._is_ready:
            return
        self._loop_owner.check_may_wait()
        with self._changing_state, self._loop_owner.entered() as loop:
            loop.call(self._monque.initialize)
            self._is_ready = True

    def start(self) -> None:
        """Begin to claim and run jobs, in the background; does nothing if it does already."""
        self._start(None)

    @property
    def _instance(self) -> Instance:
        self._settle_in()
        return self._monque._instance

    def _take_over(self, dead: Sequence[Instance]) -> None:
        """Recover the jobs of instances whose processes have ended; only before the start."""
        self._check_process()
        with self._changing_state, self._loop_owner.entered() as loop:
            loop.call(lambda: self._monque._take_over(dead))

    def stop(self, timeout: Duration | None = None) -> None:
        """Stop claiming, wait for running jobs up to the timeout, and leave nothing behind.

        The timeout is in seconds or a `timedelta`, `shutdown_timeout` by default.
        """
        self._check_process()
        self._loop_owner.check_may_wait()
        limit = None if timeout is None else check_limit(timeout)
        with self._changing_state:
            loop, self._started_on = self._started_on, None
            if loop is not None:
                try:
                    self._call_and_stop(loop, lambda: self._monque.stop(limit))
                finally:
                    self._loop_owner.leave()

    def run(self) -> None:
        """Run until SIGINT or SIGTERM, then stop: the main of a worker process.

        A second signal does what it would do without monque.
        """
        asked_to_stop = threading.Event()
        with on_first_signal(asked_to_stop.set), contextlib.suppress(GivenUpError):
            self._start(asked_to_stop.is_set)
            try:
                # Not every platform lets a signal interrupt a wait without end.
                while not asked_to_stop.wait(_LOOK_GAP):
                    pass
            finally:
                self.stop()

    def run_until_idle(self, timeout: Duration | None = None) -> None:
        """Return when nothing that has a worker here is due or running.

        Retries and jobs in the future stay. Starts the instance for as long as that takes if it
        is not running. Raises `TimeoutError` after so many seconds.
        """
        self.initialize()
        with self._loop_owner.entered() as loop:
            self._call_and_stop(loop, lambda: self._monque.run_until_idle(timeout))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @overload
    def worker(
        self,
        name: str,
        handler: None = None,
        *,
        concurrency: int | None = None,
        timeout: Duration | None = None,
        replace: bool = False,
    ) -> Callable[[H], H]: ...

    @overload
    def worker(
        self,
        name: str,
        handler: H,
        *,
        concurrency: int | None = None,
        timeout: Duration | None = None,
        replace: bool = False,
    ) -> H: ...

    def worker(
        self,
        name: str,
        handler: H | None = None,
        *,
        concurrency: int | None = None,
        timeout: Duration | None = None,
        replace: bool = False,
    ) -> H | Callable[[H], H]:
        """Register the handler of a job name, as a decorator or directly.

        A `def` handler runs in a thread, an `async def` one on the event loop of the workers. The
        timeout bounds each run whose job has none of its own.
        """
        self._refuse_in_child()
        register = self._monque.worker(
            name, concurrency=concurrency, timeout=timeout, replace=replace
        )

        def register_there(function: H) -> H:
            return self._loop_owner.do(lambda: register(function))

        return register_there if handler is None else register_there(handler)

    @overload
    def reactive(
        self,
        collection: object,
        handler: None = None,
        *,
        concurrency: int | None = None,
        timeout: Duration | None = None,
        **options: Unpack[TaskOptions],
    ) -> Callable[[H], H]: ...

    @overload
    def reactive(
        self,
        collection: object,
        handler: H,
        *,
        concurrency: int | None = None,
        timeout: Duration | None = None,
        **options: Unpack[TaskOptions],
    ) -> H: ...

    def reactive(
        self,
        collection: object,
        handler: H | None = None,
        *,
        concurrency: int | None = None,
        timeout: Duration | None = None,
        **options: Unpack[TaskOptions],
    ) -> H | Callable[[H], H]:
        """Run a handler when documents of a collection change, as a decorator or directly.

        A `def` handler runs in a thread and gets a `SyncReactiveTask`, an `async def` one runs on
        the event loop of the workers and gets a `ReactiveTask`.
        """
        self._refuse_in_child()
        register = self._monque.reactive(
            collection, concurrency=concurrency, timeout=timeout, **options
        )

        def register_there(function: H) -> H:
            return self._loop_owner.do(lambda: register(function))

        return register_there if handler is None else register_there(handler)

    def use(self, middleware: M) -> M:
        """Put an async function around every run, inside those given before."""
        return self._monque.use(middleware)

    @overload
    def on(self, event: str, listener: None = None) -> Callable[[L], L]: ...

    @overload
    def on(self, event: str, listener: L) -> L: ...

    def on(self, event: str, listener: L | None = None) -> L | Callable[[L], L]:
        """Call a listener whenever an event happens, in the thread of the workers' event loop."""
        if listener is None:
            return lambda function: self.on(event, function)
        self._monque.on(event, listener)
        return listener

    @overload
    def once(self, event: str, listener: None = None) -> Callable[[L], L]: ...

    @overload
    def once(self, event: str, listener: L) -> L: ...

    def once(self, event: str, listener: L | None = None) -> L | Callable[[L], L]:
        """Call a listener the next time an event happens."""
        if listener is None:
            return lambda function: self.once(event, function)
        self._monque.once(event, listener)
        return listener

    def off(self, event: str, listener: Callable[..., object]) -> None:
        """Remove a listener."""
        self._monque.off(event, listener)

    def _call_and_stop(
        self, loop: LoopThread, work: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Wait for a call; whoever is interrupted meanwhile, as by Ctrl-C, stops at once.

        At once means without waiting for running jobs; they are handed back all the same.
        """
        try:
            loop.call(work)
        except Exception:
            raise
        except BaseException:
            if self._started_on is None:
                loop.call(lambda: self._monque.stop(0))
            raise

    def _start(self, given_up: Callable[[], bool] | None) -> None:
        self._check_process()
        self._loop_owner.check_may_wait()
        with self._changing_state:
            if self._started_on is not None:
                return
            loop = self._loop_owner.enter()
            try:
                # A handler may be at work, and use this, before the start has returned.
                loop.call(self._monque._initialize_with_log, given_up)
                self._is_ready = True
                loop.call(self._monque.start, given_up)
            except BaseException:
                try:
                    # It may have started all the same: whoever waited was interrupted.
                    loop.call(self._monque.stop)
                finally:
                    self._loop_owner.leave()
                raise
            self._started_on = loop

    @property
    def _is_in_its_process(self) -> bool:
        return self._process_id in {None, os.getpid()}

    def _check_process(self) -> None:
        """Refuse to go on in the child of a fork: threads and connections stayed behind."""
        self._settle_in()
        if self._process_id is None:
            self._process_id = os.getpid()
        self._refuse_in_child()

    def _settle_in(self) -> None:
        """Take an id of one's own in the child of a fork: the siblings have the same otherwise."""
        if self._process_id is not None or self._born_in == os.getpid():
            return
        with self._changing_state:
            if self._born_in != os.getpid():
                self._monque._settle(self._db, self._given)
                self._counter = self._make_counter()
                self._born_in = os.getpid()

    def _make_counter(self) -> BlockingApi:
        monque = self._monque
        return BlockingApi(self._db, monque._options, monque._workers, self._loop_owner)

    def _refuse_in_child(self) -> None:
        if not self._is_in_its_process:
            raise MonqueError(
                "this SyncMonque was used before the process was forked: make one in each child, "
                "or use it only after the fork"
            )
