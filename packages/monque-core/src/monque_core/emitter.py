"""An event emitter whose listeners cannot break each other or the scheduler."""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import TYPE_CHECKING, Any, TypeVar

from pyee.asyncio import AsyncIOEventEmitter

from monque_core import events
from monque_core.display import brief_repr, log, suggestion

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

L = TypeVar("L", bound="Callable[..., Any]")
_PYEE_EVENTS = frozenset({"error", "new_listener"})


class IsolatingEmitter(AsyncIOEventEmitter):
    """Logs what a listener raises, and calls the next one."""

    def __init__(self) -> None:
        super().__init__()
        self._listener_tasks: set[asyncio.Future[None]] = set()
        self._ever_heard: set[str] = set()

    def has_listeners(self, event: str) -> bool:
        """Whether anybody listens to an event; fast if nobody ever did."""
        return event in self._ever_heard and bool(super().listeners(event))

    def listens_to(self, event: str) -> Callable[[L], L]:
        """Call the decorated listener on every event of this name."""
        return lambda listener: self.add_listener(event, listener)

    def add_listener(self, event: str, f: L) -> L:
        """Call a listener on every event of this name."""
        _check_event(event)
        self._ever_heard.add(event)
        super().add_listener(event, _Isolated(f, self._listener_tasks))
        return f

    def once(self, event: str, f: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """Call a listener on the next event of this name, and then remove it."""
        if f is None:
            return lambda listener: self.once(event, listener)
        _check_event(event)
        self._ever_heard.add(event)
        super().once(event, _Isolated(f, self._listener_tasks))
        return f

    def off(self, event: str, f: Callable[..., Any]) -> None:
        """Remove a listener."""
        self.remove_listener(event, f)

    def remove_listener(self, event: str, f: Callable[..., Any]) -> None:
        """Remove a listener."""
        _check_event(event)
        # pyee finds it by equality.
        super().remove_listener(event, f)

    def listeners(self, event: str) -> list[Callable[..., Any]]:
        """Return the listeners of an event."""
        added: list[Any] = super().listeners(event)
        return [isolated.listener for isolated in added]


class _Isolated:
    """A listener that raises nothing; equal to the listener itself."""

    __slots__ = ("_tasks", "listener")

    def __init__(self, listener: Callable[..., Any], tasks: set[asyncio.Future[None]]) -> None:
        self.listener = listener
        self._tasks = tasks

    def __eq__(self, other: object) -> bool:
        return bool(self.listener == (other.listener if isinstance(other, _Isolated) else other))

    def __hash__(self) -> int:
        return hash(self.listener)

    def __call__(self, *args: Any, **kwargs: Any) -> asyncio.Future[None] | None:
        """Call the listener, and return the task of an async one."""
        # pyee would emit an "error" event, which raises if nobody listens to it.
        try:
            result = self.listener(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001  # no listener may harm another
            # This includes CancelledError, which result() of a cancelled task raises.
            log(logging.ERROR, f"a listener raised: {self.listener!r}", error)
            return None
        if not inspect.isawaitable(result):
            return None
        task = asyncio.ensure_future(_isolated(result))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _check_event(event: object) -> None:
    """Raise `ValueError` for an unknown event, with the closest known name."""
    if isinstance(event, str) and (event in events.ALL or event in _PYEE_EVENTS):
        return
    close = suggestion(event, sorted(events.ALL))
    known = ", ".join(sorted(events.ALL))
    hint = f"did you mean {close!r}?" if close else f"known are {known}"
    raise ValueError(f"unknown event {brief_repr(event)}: {hint}")


async def _isolated(listening: Awaitable[Any]) -> None:
    """Await a listener inside a task: SystemExit must not end the event loop."""
    try:
        await listening
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001  # no listener may harm another
        log(logging.ERROR, "an async listener raised", error)
