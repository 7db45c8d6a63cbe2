"""An event emitter whose listeners cannot break each other or the scheduler."""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import TYPE_CHECKING, Any

from pyee.asyncio import AsyncIOEventEmitter

from monque_core import events
from monque_core.display import brief_repr, suggestion
from monque_core.log import log

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_OF_PYEE = frozenset({"error", "new_listener"})


class IsolatingEmitter(AsyncIOEventEmitter):
    """Logs what a listener raises, and calls the next one."""

    def off(self, event: str, f: Callable[..., Any]) -> None:
        """Remove a listener."""
        self.remove_listener(event, f)

    # Every way to add or remove a listener goes through these two.

    def _add_event_handler(self, event: str, k: Callable[..., Any], v: Callable[..., Any]) -> None:
        _check_event(event)
        super()._add_event_handler(event, k, v)

    def _remove_listener(self, event: str, f: Callable[..., Any]) -> None:
        _check_event(event)
        super()._remove_listener(event, f)

    def _emit_run(
        self, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        # pyee would emit an "error" event, which raises if nobody listens to it.
        try:
            result = f(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001  # no listener may harm another
            # This includes CancelledError, which result() of a cancelled task raises.
            log(logging.ERROR, f"a listener raised: {f!r}", error)
            return
        if inspect.isawaitable(result):
            task = asyncio.ensure_future(_isolated(result))
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)


def _check_event(event: object) -> None:
    """Raise `ValueError` for an unknown event, with the closest known name."""
    if isinstance(event, str) and (event in events.ALL or event in _OF_PYEE):
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
