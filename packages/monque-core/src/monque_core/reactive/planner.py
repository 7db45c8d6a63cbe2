"""From changed ids to records that are due, one flush at a time."""

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
    from monque_core.reactive.change_batch import ChangeBatch
    from monque_core.reactive.cleaner import Cleaner
    from monque_core.reactive.event_publisher import TaskEventPublisher
    from monque_core.reactive.leader import Leadership
    from monque_core.reactive.task_set import TaskSet
    from monque_core.store.tasks.plan_updates import JobStreams
    from monque_core.store.tasks.store import TaskStore
    from monque_core.tasks.definition import Declaration

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0


class Planner:
    """Evaluates the tasks' filters and snapshots on the server, and keeps what became of it."""

    def __init__(
        self,
        store: TaskStore,
        agenda: TaskSet,
        leadership: Leadership,
        clock: Clock,
        planned: Callable[[str, datetime, int], None],
        cleaner: Cleaner,
        publisher: TaskEventPublisher,
    ) -> None:
        self._store = store
        self._task_set = agenda
        self._leadership = leadership
        self._clock = clock
        self._planned = planned
        self._cleaner = cleaner
        self._publisher = publisher
        self._flushing = asyncio.Lock()

    async def flush(self, database: str, batch: ChangeBatch) -> None:
        """Plan what changed; when this returns, none of it is needed any more."""
        for collection, at in batch.replaced.items():
            for declaration in self._task_set.of(database, collection):
                try:
                    await self._insist(partial(self._begin_anew, declaration, at))
                except TaskBrokenError as error:
                    await self._set_quarantine(declaration, error)
        for collection in batch.collections:
            changes = batch.changes(collection)
            for declaration in self._task_set.of(database, collection):
                try:
                    await self.examine(declaration, changes)
                except TaskBrokenError as error:
                    await self._set_quarantine(declaration, error)

    async def examine(self, declaration: Declaration, changes: JobStreams) -> None:
        """Plan one task for these documents; raise `TaskBrokenError` if it cannot be planned."""
        if changes.ids:
            await self._insist(partial(self._plan, declaration, changes))

    async def _plan(self, declaration: Declaration, changes: JobStreams) -> None:
        async with self._flushing:
            now, term = self._clock.now(), self._leadership.term
            planned = await self._store.planning.plan(declaration, changes, now, term)
            if planned.parked or declaration.name in self._task_set.parked:
                await self._store.progress.unpark(declaration, changes.ids)
            for source_id, error in planned.parked:
                await self._park(declaration, source_id, error, now)
        if planned.matched:
            self._planned(declaration.name, now + declaration.debounce, planned.matched)
        if planned.matched < len(changes.ids):
            self._cleaner.expect(declaration)

    async def _park(
        self, declaration: Declaration, source_id: Any, error: Exception, now: datetime
    ) -> None:
        """Report a document that cannot be planned for, and go on without it."""
        self._task_set.parked.add(declaration.name)
        await self._store.progress.park(
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

    async def _begin_anew(self, declaration: Declaration, at: Timestamp) -> None:
        """Re-arm all documents of a task: they went with their collection, or came with it."""
        async with self._flushing:
            now, term = self._clock.now(), self._leadership.term
            # With a whole database, the records have lost their indexes, too.
            await self._store.prepare(declaration)
            await self._store.planning.rearm_all(declaration, at, now, term)
            await self._store.progress.ask_reconcile(
                declaration.name, "its collection was dropped, renamed or replaced", now
            )

    async def _set_quarantine(self, declaration: Declaration, error: TaskBrokenError) -> None:
        """Let a task that cannot be planned hold up no other; it is examined again later."""
        self._publisher.errored(error)
        ask = self._store.progress.ask_reconcile
        await self._insist(
            partial(ask, declaration.name, "it could not be planned", self._clock.now())
        )
        # Only now: what is not planned from here on, that reconciliation will find.
        self._task_set.broken.add(declaration.name)

    async def _insist(self, write: Callable[[], Awaitable[object]]) -> None:
        """Write until it is written; what was lost on its way must never count later."""
        pause = ExponentialPause(_FIRST_PAUSE, _LONGEST_PAUSE)
        is_term_new = True
        while True:
            try:
                if not is_term_new:
                    await self._leadership.begin_term()
                    is_term_new = True
                await write()
                return
            except MonqueConnectionError as error:
                self._publisher.errored(error)
                is_term_new = False
            await pause.sleep()
