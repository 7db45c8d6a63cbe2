"""An async context manager that lives in a task of its own."""

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
    """A context manager that is entered and left in one task, whoever asks for its value.

    dependency-injector resolves what is async in tasks of its own; cancel scopes and context
    variables would not survive to be entered in one and left in another.
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
        """Wait for what the manager gives; whoever stops waiting leaves the others alone."""
        return shielded(self._opened)

    async def close(self, error: BaseException | None) -> None:
        """Leave the manager, showing it what the run raised; raise what that raises."""
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
        """Open, wait for the end and close; whatever that raises is kept for who asks.

        A task that ended with `SystemExit` would take the event loop with it.
        """
        self._has_begun = True
        try:
            value = await self._open()
        except asyncio.CancelledError as error:
            # To whoever waits it is no cancellation of theirs.
            why = "the run has ended" if self._ended.done() else "it was cancelled from within"
            not_open = MonqueError(f"opening {self._manager!r} came to nothing: {why}")
            not_open.__cause__ = error
            self._opened.set_exception(not_open)
            return
        except BaseException as error:  # noqa: BLE001  # told to whoever wants the value
            self._opened.set_exception(error)
            return
        self._opened.set_result(value)
        self._when_opened(self)
        try:
            await leave(self._manager, await self._end_of_run())
        except BaseException as error:  # noqa: BLE001  # told to whoever closes
            self._failure = error

    async def _end_of_run(self) -> BaseException | None:
        """Wait for what the run raised; that the loop ends and all tasks with it is an end, too."""
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
        if is_pending(self._manager):
            self._manager = await self._manager
        value: T = await enter(self._manager)
        return value


async def unhindered(work: Coroutine[Any, Any, R]) -> R:
    """See something through to its end, and only then be cancelled."""
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


def shielded(promise: asyncio.Future[T]) -> asyncio.Future[T]:
    """Give a promise that can be dropped without harm to the one behind it.

    That nobody waits for it any more when it fails is no news.
    """
    waiting = asyncio.shield(promise)
    for future in (promise, waiting):
        future.add_done_callback(_retrieve)
    return waiting


def _retrieve(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()


def is_pending(value: object) -> TypeGuard[Awaitable[Any]]:
    """Tell whether a provider gave a promise, which not every awaitable is."""
    return asyncio.isfuture(value) or isinstance(value, Coroutine)


async def enter(manager: Any) -> Any:
    """Enter a context manager, async if it can be."""
    if hasattr(manager, "__aenter__"):
        return await manager.__aenter__()
    return enter_at_once(manager)


def enter_at_once(manager: Any) -> Any:
    """Enter a context manager that is not async."""
    if not hasattr(manager, "__enter__"):
        raise TypeError(
            f"RunScoped was given {manager!r}, which is no context manager: its factory must be "
            "one, or a generator function; what needs no closing is a providers.Factory"
        )
    return manager.__enter__()


async def leave(manager: Any, error: BaseException | None) -> None:
    """Leave a context manager; that it would swallow the error does not count."""
    if hasattr(manager, "__aexit__"):
        await manager.__aexit__(*_details(error))
    else:
        leave_at_once(manager, error)


def leave_at_once(manager: Any, error: BaseException | None) -> None:
    """Leave a context manager that is not async."""
    manager.__exit__(*_details(error))


def _details(error: BaseException | None) -> tuple[Any, Any, Any]:
    return (None, None, None) if error is None else (type(error), error, error.__traceback__)
