"""`TaskContext`: a context manager that is entered and exited in a task of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Generic, TypeGuard, TypeVar

from monque_core import MonqueError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

R = TypeVar("R")
T = TypeVar("T")


class TaskContext(Generic[T]):
    """Enters and exits a context manager in one dedicated task.

    dependency-injector resolves async providers in short-lived tasks. Cancel scopes and context
    variables do not allow entering in one task and exiting in another.
    """

    def __init__(
        self, manager: object, when_opened: Callable[[TaskContext[T]], None] = lambda _: None
    ) -> None:
        loop = asyncio.get_running_loop()
        self._when_opened = when_opened
        self._manager: Any = manager
        self._has_begun = False
        self._opened: asyncio.Future[T] = loop.create_future()
        self._ended: asyncio.Future[BaseException | None] = loop.create_future()
        self._failure: BaseException | None = None
        self._task = asyncio.create_task(self._live(), name="monque-run-scoped")

    def value(self) -> Awaitable[T]:
        """Return the value; cancelling one waiter does not affect the others."""
        return shielded(self._opened)

    async def close(self, error: BaseException | None) -> None:
        """Exit the context manager with the error of the run; raise what it raises."""
        self._ended.set_result(error)
        if self._has_begun and not self._opened.done():
            self._task.cancel()
        cancelled: asyncio.CancelledError | None = None
        while not self._task.done():
            try:
                await asyncio.wait([self._task])
            except asyncio.CancelledError as again:
                cancelled = again
                self._task.cancel()
        if cancelled is not None:
            raise cancelled from self._failure
        if self._failure is not None:
            raise self._failure

    async def _live(self) -> None:
        """Open, wait for the end of the run and close; store errors for the callers.

        A task that ends with `SystemExit` would stop the event loop.
        """
        self._has_begun = True
        try:
            value = await self._open()
        except asyncio.CancelledError as error:
            # For a waiter this is an error, not its own cancellation.
            why = "the run has ended" if self._ended.done() else "it cancelled itself"
            not_open = MonqueError(f"{self._manager!r} was not opened: {why}")
            not_open.__cause__ = error
            self._opened.set_exception(not_open)
            return
        except BaseException as error:  # noqa: BLE001  # raised to whoever awaits the value
            self._opened.set_exception(error)
            return
        self._opened.set_result(value)
        self._when_opened(self)
        try:
            await leave(self._manager, await self._end_of_run())
        except BaseException as error:  # noqa: BLE001  # raised to whoever closes
            self._failure = error

    async def _end_of_run(self) -> BaseException | None:
        """Wait for the end of the run, or of the event loop; return the error."""
        try:
            await asyncio.wait([self._ended])
        except asyncio.CancelledError as error:
            return self._ended.result() if self._ended.done() else error
        return self._ended.result()

    async def _open(self) -> T:
        if isinstance(self._manager, Coroutine) and self._ended.done():
            self._manager.close()
        if self._ended.done():
            raise asyncio.CancelledError
        if is_async_result(self._manager):
            self._manager = await self._manager
        value: T = await enter(self._manager)
        return value


async def run_to_completion(work: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine to completion; defer cancellation until it is done."""
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled from task.exception()
    return task.result()


def shielded(future: asyncio.Future[T]) -> asyncio.Future[T]:
    """Return a future that can be cancelled without cancelling the original.

    An error that nobody retrieves is not logged.
    """
    waiting = asyncio.shield(future)
    for each in (future, waiting):
        each.add_done_callback(_retrieve)
    return waiting


def _retrieve(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()


def is_async_result(value: object) -> TypeGuard[Awaitable[Any]]:
    """Whether a provider returned a future or coroutine; other awaitables are plain values."""
    return asyncio.isfuture(value) or isinstance(value, Coroutine)


async def enter(manager: Any) -> Any:
    """Enter a context manager, async if it supports that."""
    if hasattr(manager, "__aenter__"):
        return await manager.__aenter__()
    return enter_sync(manager)


def enter_sync(manager: Any) -> Any:
    """Enter a synchronous context manager."""
    if not hasattr(manager, "__enter__"):
        raise TypeError(
            f"the factory of a RunScoped returned {manager!r}, not a context manager: use a "
            "context "
            "manager or a generator function, or providers.Factory if nothing needs closing"
        )
    return manager.__enter__()


async def leave(manager: Any, error: BaseException | None) -> None:
    """Exit a context manager; it cannot suppress the error."""
    if hasattr(manager, "__aexit__"):
        await manager.__aexit__(*_exit_arguments(error))
    else:
        leave_sync(manager, error)


def leave_sync(manager: Any, error: BaseException | None) -> None:
    """Exit a synchronous context manager."""
    manager.__exit__(*_exit_arguments(error))


def _exit_arguments(error: BaseException | None) -> tuple[Any, Any, Any]:
    return (None, None, None) if error is None else (type(error), error, error.__traceback__)
