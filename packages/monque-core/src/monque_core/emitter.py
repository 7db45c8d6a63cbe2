"""Events whose listeners cannot harm each other, or the scheduler."""

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
    """An event emitter that logs what a listener raises and goes on with the next one."""

    def off(self, event: str, f: Callable[..., Any]) -> None:
        """Remove a listener."""
        self.remove_listener(event, f)

    # Every way to add a listener, or to remove one, comes through these two.

    def _add_event_handler(self, event: str, k: Callable[..., Any], v: Callable[..., Any]) -> None:
        _check_event(event)
        super()._add_event_handler(event, k, v)

    def _remove_listener(self, event: str, f: Callable[..., Any]) -> None:
        _check_event(event)
        super()._remove_listener(event, f)

    def _emit_run(
        self, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        # pyee would emit the fault as an "error" event, which raises when nobody listens to it.
        try:
            result = f(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001  # no listener may harm another
            # Also a CancelledError, as the result() of some cancelled task of the listener's is.
            log(logging.ERROR, f"a listener raised: {f!r}", error)
            return
        if inspect.isawaitable(result):
            task = asyncio.ensure_future(_isolated(result))
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)


def _check_event(event: object) -> None:
    """Refuse the name of an event that never happens, and suggest the one that may be meant."""
    if isinstance(event, str) and (event in events.ALL or event in _OF_PYEE):
        return
    close = suggestion(event, sorted(events.ALL))
    known = ", ".join(sorted(events.ALL))
    hint = f"did you mean {close!r}?" if close else f"known are {known}"
    raise ValueError(f"unknown event {brief_repr(event)}: {hint}")


async def _isolated(listening: Awaitable[Any]) -> None:
    """Wait for an async listener inside its task: an exit would leave it and end the loop."""
    try:
        await listening
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001  # no listener may harm another
        log(logging.ERROR, "an async listener raised", error)
