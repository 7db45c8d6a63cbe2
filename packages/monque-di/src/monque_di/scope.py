"""What lives as long as one run."""

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
from monque_di.task_context import TaskContext, enter_at_once, is_pending, leave_at_once

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

T = TypeVar("T")

logger = logging.getLogger("monque.di")
_current: ContextVar[Scope] = ContextVar("monque_di_scope")


def current_job() -> Job[Any]:
    """Give the job of the run that this is called in."""
    return current_scope().job


def current_scope() -> Scope:
    """Give the scope of the run that this is called in."""
    try:
        return _current.get()
    except LookupError:
        raise MonqueError(
            "no job runs here: what lives as long as a run is had only inside one"
        ) from None


class Scope:
    """One run: its job, its handler, and what it opened."""

    def __init__(self, job: Job[Any]) -> None:
        self.job = job
        self.handler: Callable[[Job[Any]], Any] | None = None
        self._shared: dict[RunScoped[Any], Callable[[], Any]] = {}
        self._opening: list[TaskContext[Any]] = []
        self._closers: list[Callable[[BaseException | None], Awaitable[None]]] = []
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        # A handler may run in threads and open something there, each thing once.
        self._opening_of: dict[RunScoped[Any], threading.RLock] = {}
        self._books = threading.Lock()

    async def run(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call within this scope and close it, whatever the end of the call is."""
        self._loop = asyncio.get_running_loop()
        token = _current.set(self)
        result: T | None = None
        error: BaseException | None = None
        try:
            result = await call()
        except BaseException as raised:  # noqa: BLE001  # raised again below, once all is closed
            error = raised
        try:
            error = await self._close(error)
        finally:
            _current.reset(token)
        if error is not None:
            try:
                raise error
            finally:
                # An error that its own frame refers to would wait for the garbage collector.
                del error
        return result  # type: ignore[return-value]  # without an error there is a result

    def at_end(self, close: Callable[[BaseException | None], Awaitable[None]]) -> None:
        """Let something be called when this closes, after everything that is opened later."""
        self._closers.append(close)

    def share(self, provider: RunScoped[T], make: Callable[[], object]) -> T | Awaitable[T]:
        """Give what a provider opened in this run, opening it the first time."""
        with self._books:
            if self._is_closed:
                raise self._has_ended()
            opening = self._opening_of.setdefault(provider, threading.RLock())
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
        if is_pending(made) or hasattr(made, "__aenter__"):
            return self._open_async(provider, made)
        # What it does to context variables in a thread can only be undone where it was done.
        within = _directly if is_on_loop else contextvars.copy_context().run
        value = within(enter_at_once, made)
        with self._books:
            is_late = self._is_closed
            if not is_late:
                self._closers.append(partial(_leave_within, within, made))
        if is_late:
            ended = self._has_ended()
            within(leave_at_once, made, ended)
            raise ended
        return lambda: value

    def _open_async(self, provider: RunScoped[Any], made: Any) -> Callable[[], Any]:
        if not self._is_on_its_loop():
            if isinstance(made, Coroutine):
                made.close()
            raise _needs_the_loop(provider)
        tenant = TaskContext[Any](made, self._has_opened)
        self._opening.append(tenant)

        def value() -> Awaitable[Any]:
            if not self._is_on_its_loop():
                raise _needs_the_loop(provider)
            return tenant.value()

        return value

    def _has_opened(self, tenant: TaskContext[Any]) -> None:
        """Take note of what is open: it is closed before what was open already by then."""
        if tenant in self._opening:
            self._opening.remove(tenant)
            self._closers.append(tenant.close)

    def _is_on_its_loop(self) -> bool:
        """Tell whether this is called where the run is at home, and not from a thread of its."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def _has_ended(self) -> MonqueError:
        return MonqueError(f"the run of {self.job.name!r} has ended, and its scope with it")

    async def _close(self, error: BaseException | None) -> BaseException | None:
        """Close in reverse order; give what is to be raised.

        What a closer raises after a success is the run's failure, for a commit may be among
        them. After a failure it is logged, and the failure stands.
        """
        with self._books:
            self._is_closed = True
            closers = [tenant.close for tenant in self._opening] + self._closers[::-1]
            self._opening, self._closers = [], []
        for close in closers:
            cancellations = _cancellations()
            try:
                await close(error)
            except BaseException as raised:  # the others are closed all the same
                if raised is error:
                    continue
                if error is None or _cancellations() > cancellations:
                    error = raised
                else:
                    logger.exception(
                        "closing the scope of job %s %s failed after the run had failed",
                        self.job.name,
                        self.job.id,
                    )
        # Copies of the run's context may outlive it, in tasks and threads, and with them this.
        self._shared.clear()
        self.handler = None
        return error


class RunScoped(providers.Provider[T]):
    """A provider of what lives as long as one run: a session, a unit of work.

    The factory is a context manager or a generator function, async or not, with its arguments
    as for `providers.Resource`. It is opened on first use in a run, shared within the run, and
    closed when that ends, seeing the exception if there is one.
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
        self._manager = providers.Callable(_managing(factory), *args, **kwargs)
        super().__init__()

    @property
    def provides(self) -> Callable[..., object] | None:
        """Give the factory."""
        return self._manager.provides

    @property
    def args(self) -> tuple[Any, ...]:
        """Give the positional arguments of the factory."""
        return self._manager.args

    @property
    def kwargs(self) -> dict[str, Any]:
        """Give the named arguments of the factory."""
        return self._manager.kwargs

    @property
    def related(self) -> Iterator[providers.Provider[Any]]:
        """Give the providers that this one draws from."""
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


def _managing(factory: Any) -> Any:
    if isasyncgenfunction(factory):
        return asynccontextmanager(factory)
    if isgeneratorfunction(factory):
        return contextmanager(factory)
    return factory


def _directly(call: Callable[..., T], *args: object) -> T:
    return call(*args)


async def _leave_within(
    within: Callable[..., None], manager: object, error: BaseException | None
) -> None:
    within(leave_at_once, manager, error)


def _needs_the_loop(provider: RunScoped[Any]) -> MonqueError:
    return MonqueError(
        f"{provider} is async and was asked for in a thread: let it be injected into the "
        "constructor, which is built on the event loop"
    )


def _cancellations() -> int:
    """Tell how often the run itself was cancelled; what a closer raises of its own is none."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
