"""Events whose listeners cannot harm each other, or the scheduler."""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import TYPE_CHECKING, Any

from pyee.asyncio import AsyncIOEventEmitter

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("monque")


class IsolatingEmitter(AsyncIOEventEmitter):
    """An event emitter that logs what a listener raises and goes on with the next one."""

    def off(self, event: str, f: Callable[..., Any]) -> None:
        """Remove a listener."""
        self.remove_listener(event, f)

    def _emit_run(
        self, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        # pyee would emit the fault as an "error" event, which raises when nobody listens to it.
        try:
            result = f(*args, **kwargs)
        except BaseException:
            # Also a CancelledError, as the result() of some cancelled task of the listener's is.
            logger.exception("a listener raised: %r", f)
            return
        if inspect.isawaitable(result):
            task = asyncio.ensure_future(result)
            self._waiting.add(task)
            task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Future[Any]) -> None:
        self._waiting.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("an async listener raised", exc_info=error)
