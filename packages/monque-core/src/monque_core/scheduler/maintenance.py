"""Periodic maintenance of the jobs collection."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from monque_core.scheduler.loop import Periodic

if TYPE_CHECKING:
    from monque_core.options import Options
    from monque_core.scheduler.event_publisher import EventPublisher
    from monque_core.scheduler.workers import Workers
    from monque_core.store.store import Store

INTERVAL: Final = timedelta(minutes=2)
_MOST_UNDATED = 100


class Maintenance(Periodic):
    """Recreates missing indexes, and quarantines jobs that no look can find.

    It runs rarely: each costs one command on every instance, and is hardly ever of use.
    """

    def __init__(
        self, store: Store, options: Options, workers: Workers, publisher: EventPublisher
    ) -> None:
        super().__init__(publisher.errored, INTERVAL)
        self._store = store
        self._clock = options.clock
        self._restores_indexes = not options.skip_index_creation
        self._workers = workers

    async def _tick(self) -> None:
        problems: list[Exception | None] = []
        if self._restores_indexes:
            problems += await self._store.indexes.restore()
        if names := self._workers.names:
            now = self._clock.now()
            undated = await self._store.queue.quarantine_undated(names, now, _MOST_UNDATED)
            problems += [found.error for found in undated]
        for problem in problems:
            if problem is not None:
                self._report(problem)
