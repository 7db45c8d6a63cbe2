"""Run scope: objects that are opened for one run and closed at its end."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Coroutine
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import partial
from inspect import isasyncgenfunction, isgeneratorfunction
from typing import TYPE_CHECKING, Any, TypeVar

from dependency_injector import providers

from monque_core import Job, MonqueError
from monque_di.task_context import TaskContext, enter_sync, is_async_result, leave_sync

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

T = TypeVar("T")

logger = logging.getLogger("monque.di")
_current: ContextVar[RunScope] = ContextVar("monque_di_scope")


def current_job() -> Job[Any]:
    """Return the job of the current run."""
    return current_scope().job


def current_scope() -> RunScope:
    """Return the scope of the current run."""
    try:
        return _current.get()
    except LookupError:
        raise MonqueError(
            "no job is running here: current_job() and RunScoped providers work only during a run"
        ) from None


class RunScope:
    """The job of one run, its handler, and the objects that it opened."""

    def __init__(self, job: Job[Any]) -> None:
        self.job = job
        self.handler: Callable[[Job[Any]], Any] | None = None
        self._shared: dict[RunScoped[Any], Callable[[], Any]] = {}
        self._opening: list[TaskContext[Any]] = []
        self._closers: list[Callable[[BaseException | None], Awaitable[None]]] = []
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        # Handlers may use threads; a lock per provider opens each object once.
        self._open_locks: dict[RunScoped[Any], threading.RLock] = {}
        self._lock = threading.Lock()

    async def run(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call a function in this scope, and close the scope whatever the outcome."""
        self._loop = asyncio.get_running_loop()
        token = _current.set(self)
        result: T | None = None
        error: BaseException | None = None
        try:
            result = await call()
        except BaseException as raised:  # noqa: BLE001  # raised again below, after closing
            error = raised
        try:
            error = await self._close(error)
        finally:
            _current.reset(token)
        if error is not None:
            try:
                raise error
            finally:
                # Break the cycle of error, traceback and this frame.
                del error
        return result  # type: ignore[return-value]  # without an error there is a result

    def on_close(self, close: Callable[[BaseException | None], Awaitable[None]]) -> None:
        """Call a function when the scope closes, in reverse order of registration."""
        self._closers.append(close)

    def share(self, provider: RunScoped[T], make: Callable[[], object]) -> T | Awaitable[T]:
        """Return the object of a provider in this run; open it on first use."""
        with self._lock:
            if self._is_closed:
                raise self._has_ended()
            opening = self._open_locks.setdefault(provider, threading.RLock())
        with opening:
            if provider not in self._shared:
                self._shared[provider] = self._open(provider, make)
            value: T | Awaitable[T] = self._shared[provider]()
            return value

    def _open(self, provider: RunScoped[Any], make: Callable[[], Any]) -> Callable[[], Any]:
        is_on_loop = self._is_on_its_loop()
        try:
            made = make()
        except RuntimeError as error:
            if is_on_loop or "event loop" not in str(error):
                raise
            raise _needs_the_loop(provider) from error
        if is_async_result(made) or hasattr(made, "__aenter__"):
            return self._open_async(provider, made)
        # A context variable that is set in a thread can be reset only in the same context.
        call_in_context = _call if is_on_loop else contextvars.copy_context().run
        value = call_in_context(enter_sync, made)
        with self._lock:
            is_late = self._is_closed
            if not is_late:
                self._closers.append(partial(_leave_in_context, call_in_context, made))
        if is_late:
            ended = self._has_ended()
            call_in_context(leave_sync, made, ended)
            raise ended
        return lambda: value

    def _open_async(self, provider: RunScoped[Any], made: Any) -> Callable[[], Any]:
        if not self._is_on_its_loop():
            if isinstance(made, Coroutine):
                made.close()
            raise _needs_the_loop(provider)
        context = TaskContext[Any](made, self._has_opened)
        self._opening.append(context)

        def value() -> Awaitable[Any]:
            if not self._is_on_its_loop():
                raise _needs_the_loop(provider)
            return context.value()

        return value

    def _has_opened(self, context: TaskContext[Any]) -> None:
        """Register an opened object to be closed before those opened earlier."""
        if context in self._opening:
            self._opening.remove(context)
            self._closers.append(context.close)

    def _is_on_its_loop(self) -> bool:
        """Whether the caller is on the event loop of the run, and not in a thread."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def _has_ended(self) -> MonqueError:
        return MonqueError(
            f"the run of {self.job.name!r} has ended: its run-scoped objects are closed"
        )

    async def _close(self, error: BaseException | None) -> BaseException | None:
        """Close everything in reverse order; return the error to raise.

        An error while closing fails a successful run, since a closer may commit. After a failed
        run it is only logged.
        """
        with self._lock:
            self._is_closed = True
            closers = [context.close for context in self._opening] + self._closers[::-1]
            self._opening, self._closers = [], []
        for close in closers:
            cancellations = _cancellations()
            try:
                await close(error)
            except BaseException as raised:  # the remaining closers must run
                if raised is error:
                    continue
                if error is None or _cancellations() > cancellations:
                    error = raised
                else:
                    logger.exception(
                        "closing the run scope of job %s %s failed, after the run itself failed",
                        self.job.name,
                        self.job.id,
                    )
        # Tasks and threads may keep a copy of the run's context, and so this scope, alive.
        self._shared.clear()
        self.handler = None
        return error


class RunScoped(providers.Provider[T]):
    """A provider of objects that live as long as one run, such as a session or unit of work.

    The factory is a context manager or a generator function, sync or async; arguments are given as
    for `providers.Resource`. The object is opened on first use in a run, shared within the run,
    and closed at its end. The factory sees the exception of a failed run.
    """

    def __init__(
        self,
        factory: Callable[
            ...,
            AbstractContextManager[T]
            | AbstractAsyncContextManager[T]
            | Iterator[T]
            | AsyncIterator[T]
            | Awaitable[AbstractContextManager[T] | AbstractAsyncContextManager[T]],
        ]
        | None = None,
        *args: object,
        **kwargs: object,
    ) -> None:
        self._manager = providers.Callable(_as_context_manager(factory), *args, **kwargs)
        super().__init__()

    @property
    def provides(self) -> Callable[..., object] | None:
        """Return the factory."""
        return self._manager.provides

    @property
    def args(self) -> tuple[Any, ...]:
        """Return the positional arguments of the factory."""
        return self._manager.args

    @property
    def kwargs(self) -> dict[str, Any]:
        """Return the keyword arguments of the factory."""
        return self._manager.kwargs

    @property
    def related(self) -> Iterator[providers.Provider[Any]]:
        """Yield the providers that this one depends on."""
        yield self._manager
        yield from super().related

    def __deepcopy__(self, memo: dict[int, Any] | None) -> RunScoped[T]:
        memo = {} if memo is None else memo
        if id(self) in memo:
            copied: RunScoped[T] = memo[id(self)]
            return copied
        memo[id(self)] = copied = type(self)()
        copied._manager = providers.deepcopy(self._manager, memo)
        self._copy_overridings(copied, memo)
        return copied

    def _provide(self, args: tuple[object, ...], kwargs: dict[str, object]) -> T | Awaitable[T]:
        return current_scope().share(self, partial(self._manager, *args, **kwargs))


def _as_context_manager(factory: Any) -> Any:
    if isasyncgenfunction(factory):
        return asynccontextmanager(factory)
    if isgeneratorfunction(factory):
        return contextmanager(factory)
    return factory


def _call(call: Callable[..., T], *args: object) -> T:
    return call(*args)


async def _leave_in_context(
    call_in_context: Callable[..., None], manager: object, error: BaseException | None
) -> None:
    call_in_context(leave_sync, manager, error)


def _needs_the_loop(provider: RunScoped[Any]) -> MonqueError:
    return MonqueError(
        f"{provider} is async and cannot be opened in a thread: inject it into the constructor, "
        "which runs on the event loop"
    )


def _cancellations() -> int:
    """Return how often the task of the run was cancelled, errors of closers not included."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
