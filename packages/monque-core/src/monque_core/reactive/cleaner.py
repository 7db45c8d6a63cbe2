"""Deleting the records of documents that are gone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from monque_core.durations import to_timedelta
from monque_core.errors import LeadershipLostError
from monque_core.waiting import wait_for_event

if TYPE_CHECKING:
    from monque_core.clock import Clock
    from monque_core.options import ReactiveOptions
    from monque_core.reactive.task_event_publisher import TaskEventPublisher
    from monque_core.reactive.task_set import TaskSet
    from monque_core.store.tasks.store import TaskStore
    from monque_core.tasks.definition import Declaration

_GRACE = 0.05


class Cleaner:
    """Deletes expired records, once per interval and when records are known to expire."""

    def __init__(
        self,
        store: TaskStore,
        task_set: TaskSet,
        clock: Clock,
        options: ReactiveOptions,
        publisher: TaskEventPublisher,
    ) -> None:
        self._store = store
        self._task_set = task_set
        self._clock = clock
        self._interval = to_timedelta(options.cleanup_interval).total_seconds()
        self._publisher = publisher
        self._next_at = 0.0
        self._signal = asyncio.Event()

    def poke(self) -> None:
        """Clean up as soon as possible."""
        self._look_at(asyncio.get_running_loop().time())

    def expect(self, declaration: Declaration) -> None:
        """Schedule a cleanup for when the records of documents that went just now expire."""
        if declaration.cleanup.when != "never":
            quiet = declaration.cleanup.quiet_time.total_seconds()
            self._look_at(asyncio.get_running_loop().time() + quiet + _GRACE)

    async def run(self) -> None:
        """Clean up now and once per interval until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._next_at = loop.time() + self._interval
            for declaration in self._task_set:
                await self._clean(declaration)
            while loop.time() < self._next_at:
                self._signal.clear()
                await wait_for_event(self._signal, self._next_at - loop.time())

    async def _clean(self, declaration: Declaration) -> None:
        try:
            async for _ in self._store.record_cleanup.clean(declaration, self._clock.now()):
                pass
        except LeadershipLostError:
            raise
        except Exception as error:  # noqa: BLE001  # the next cleanup tries again
            self._publisher.errored(error)

    def _look_at(self, at: float) -> None:
        if at < self._next_at:
            self._next_at = at
            self._signal.set()
