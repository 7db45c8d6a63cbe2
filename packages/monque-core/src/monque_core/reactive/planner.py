"""Planning changed documents, one flush at a time."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from monque_core.errors import MonqueConnectionError, UnplannableError
from monque_core.store.tasks.plan_writer import TaskBrokenError
from monque_core.store.tasks.planner_state import ParkedDocument
from monque_core.waiting import ExponentialPause

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from bson import Timestamp

    from monque_core.clock import Clock
    from monque_core.reactive.change_buffer import ChangeBatch
    from monque_core.reactive.cleaner import Cleaner
    from monque_core.reactive.leader import Leadership
    from monque_core.reactive.task_event_publisher import TaskEventPublisher
    from monque_core.reactive.task_set import TaskSet
    from monque_core.store.tasks.plan_updates import ChangedDocuments
    from monque_core.store.tasks.store import TaskStore
    from monque_core.tasks.definition import Declaration

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0


class Planner:
    """Updates the task records of changed documents, and parks documents that fail."""

    def __init__(
        self,
        store: TaskStore,
        task_set: TaskSet,
        leadership: Leadership,
        clock: Clock,
        planned: Callable[[str, datetime, int], None],
        cleaner: Cleaner,
        publisher: TaskEventPublisher,
    ) -> None:
        self._store = store
        self._task_set = task_set
        self._leadership = leadership
        self._clock = clock
        self._planned = planned
        self._cleaner = cleaner
        self._publisher = publisher
        self._flushing = asyncio.Lock()

    async def flush(self, database: str, batch: ChangeBatch) -> None:
        """Plan a batch; when this returns, it is stored."""
        for collection, at in batch.replaced.items():
            for declaration in self._task_set.of(database, collection):
                try:
                    await self._write_until_done(partial(self._restart, declaration, at))
                except TaskBrokenError as error:
                    await self._mark_broken(declaration, error)
        for collection in batch.collections:
            changes = batch.changes(collection)
            for declaration in self._task_set.of(database, collection):
                try:
                    await self.examine(declaration, changes)
                except TaskBrokenError as error:
                    await self._mark_broken(declaration, error)

    async def examine(self, declaration: Declaration, changes: ChangedDocuments) -> None:
        """Plan one task for these documents; raise `TaskBrokenError` if it cannot be planned."""
        if changes.ids:
            await self._write_until_done(partial(self._plan, declaration, changes))

    async def _plan(self, declaration: Declaration, changes: ChangedDocuments) -> None:
        async with self._flushing:
            now, term = self._clock.now(), self._leadership.term
            planned = await self._store.plan_writer.plan(declaration, changes, now, term)
            if planned.parked or declaration.name in self._task_set.parked:
                await self._store.planner_state.unpark(declaration, changes.ids)
            for source_id, error in planned.parked:
                await self._park(declaration, source_id, error, now)
        if planned.matched:
            self._planned(declaration.name, now + declaration.debounce, planned.matched)
        if planned.matched < len(changes.ids):
            self._cleaner.expect(declaration)

    async def _park(
        self, declaration: Declaration, source_id: Any, error: Exception, now: datetime
    ) -> None:
        """Store and report a document for which the task cannot be planned."""
        self._task_set.parked.add(declaration.name)
        await self._store.planner_state.park(
            ParkedDocument(
                declaration.name,
                declaration.database,
                declaration.collection,
                source_id,
                str(error),
                now,
            ),
            self._leadership.term,
        )
        self._publisher.errored(UnplannableError(declaration.name, source_id, error))

    async def _restart(self, declaration: Declaration, at: Timestamp) -> None:
        """Make all documents of a task run again: their collection was dropped or replaced."""
        async with self._flushing:
            now, term = self._clock.now(), self._leadership.term
            # A dropped database has lost the indexes of the records, too.
            await self._store.prepare(declaration)
            await self._store.plan_writer.rearm_all(declaration, at, now, term)
            await self._store.planner_state.ask_reconcile(
                declaration.name, "its collection was dropped, renamed or replaced", now
            )

    async def _mark_broken(self, declaration: Declaration, error: TaskBrokenError) -> None:
        """Exclude a task that cannot be planned, and request its reconciliation."""
        self._publisher.errored(error)
        ask = self._store.planner_state.ask_reconcile
        await self._write_until_done(
            partial(ask, declaration.name, "it could not be planned", self._clock.now())
        )
        # Only now: the reconciliation will find the changes that are not planned from here on.
        self._task_set.broken.add(declaration.name)

    async def _write_until_done(self, write: Callable[[], Awaitable[object]]) -> None:
        """Retry a write until MongoDB confirms it; unconfirmed writes are fenced by a new term."""
        pause = ExponentialPause(_FIRST_PAUSE, _LONGEST_PAUSE)
        is_fenced = True
        while True:
            try:
                if not is_fenced:
                    await self._leadership.begin_term()
                    is_fenced = True
                await write()
                return
            except MonqueConnectionError as error:
                self._publisher.errored(error)
                is_fenced = False
            await pause.sleep()
