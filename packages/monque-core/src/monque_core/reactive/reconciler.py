"""Reconciliation: examining all documents of a task after missed changes or a new filter."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from monque_core.errors import LeadershipLostError
from monque_core.store.tasks.plan_updates import ChangedDocuments
from monque_core.store.tasks.plan_writer import TaskBrokenError
from monque_core.store.tasks.source_collections import LastId
from monque_core.waiting import ExponentialPause, wait_for_event

if TYPE_CHECKING:
    from monque_core.clock import Clock
    from monque_core.options import ReactiveOptions
    from monque_core.reactive.cleaner import Cleaner
    from monque_core.reactive.leader import Leadership
    from monque_core.reactive.planner import Planner
    from monque_core.reactive.task_event_publisher import TaskEventPublisher
    from monque_core.reactive.task_set import TaskSet
    from monque_core.store.tasks.declarations import DeclaredTask, Phase, ReconcileRequest
    from monque_core.store.tasks.store import TaskStore
    from monque_core.tasks.definition import Declaration

_LOOK_GAP = 10.0
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 300.0


class _RestartRequested(Exception):  # noqa: N818  # control flow, not an error
    """A new request has replaced the running reconciliation."""


class Reconciler:
    """Scans source collections by `_id`, ids only, and plans them like changes."""

    def __init__(
        self,
        store: TaskStore,
        task_set: TaskSet,
        planner: Planner,
        cleaner: Cleaner,
        leadership: Leadership,
        clock: Clock,
        options: ReactiveOptions,
        publisher: TaskEventPublisher,
    ) -> None:
        self._store = store
        self._task_set = task_set
        self._planner = planner
        self._cleaner = cleaner
        self._leadership = leadership
        self._clock = clock
        self._batch_size = options.flush_size
        self._publisher = publisher
        self._signal = asyncio.Event()
        self._pauses: dict[str, ExponentialPause] = {}
        self._not_before: dict[str, float] = {}
        self.is_idle = asyncio.Event()
        """Set while no reconciliation is waiting, except for those that failed lately."""

    def poke(self) -> None:
        """Look for requested reconciliations soon."""
        self.is_idle.clear()
        self._signal.set()

    async def run(self) -> None:
        """Run requested reconciliations until cancelled."""
        while True:
            self._signal.clear()
            waiting = await self._waiting()
            for task in waiting:
                name = task.declaration.name
                if self._is_due(name) and self._task_set.is_followed(task.declaration):
                    await self._try(task)
            is_trying = any(task.declaration.name not in self._not_before for task in waiting)
            if not is_trying and not self._signal.is_set():
                self.is_idle.set()
            await wait_for_event(self._signal, _FIRST_PAUSE if waiting else _LOOK_GAP)

    async def _waiting(self) -> list[DeclaredTask]:
        """Return the tasks with a requested reconciliation."""
        declared = await self._store.planner_state.declarations(self._clock.now())
        return [
            task
            for task in declared
            if task.reconciliation is not None
            # Only with the declaration in use: scan and flush must plan by the same one.
            and task.declaration == self._task_set.get(task.declaration.name)
        ]

    async def _try(self, task: DeclaredTask) -> None:
        """Reconcile one task; after an error, it is retried."""
        name, term = task.declaration.name, self._leadership.term
        try:
            await self._reconcile(task)
        except LeadershipLostError:
            raise
        except _RestartRequested:
            self.poke()
        except Exception as error:  # noqa: BLE001  # it is retried
            self._publisher.errored(error)
            pause = self._pauses.setdefault(name, ExponentialPause(_FIRST_PAUSE, _LONGEST_PAUSE))
            self._not_before[name] = asyncio.get_running_loop().time() + pause.lengthen()
            if isinstance(error, TaskBrokenError):
                # Later changes are not planned, so only a new scan finds them.
                await self._store.planner_state.ask_reconcile(name, "it failed", self._clock.now())
                self._task_set.broken.add(name)
            await self._store.planner_state.set_error(name, str(error), term)
        else:
            self._pauses.pop(name, None)
            self._not_before.pop(name, None)
            if task.error is not None:
                await self._store.planner_state.set_error(name, None, term)

    async def _reconcile(self, task: DeclaredTask) -> None:
        declaration, asked = task.declaration, task.reconciliation
        assert asked is not None
        await self._store.prepare(declaration)
        # Before the first id is read, as changes from now on must be planned.
        self._task_set.broken.discard(declaration.name)
        self._publisher.reconcile_started(declaration.name, asked.reason)
        documents = 0
        if asked.phase == "scan":
            documents = await self._scan(declaration, asked)
            asked = replace(asked, phase="orphans", after=None)
        await self._rearm_orphans(declaration, asked)
        state, now = self._store.planner_state, self._clock.now()
        if await state.mark_reconciled(declaration.name, asked.ticket, now, self._leadership.term):
            # Documents that still cannot be planned were parked again by this reconciliation.
            await state.unpark_before(declaration.name, asked.asked_at)
            self._publisher.reconcile_completed(declaration.name, asked.reason, documents)
            self._cleaner.poke()

    async def _scan(self, declaration: Declaration, asked: ReconcileRequest) -> int:
        """Plan all documents of the collection, and return how many there are."""
        documents, after = 0, asked.after
        while ids := await self._store.sources.ids_after(
            declaration.database, declaration.collection, after, self._batch_size
        ):
            await self._planner.examine(declaration, ChangedDocuments(ids))
            documents += len(ids)
            after = LastId(ids[-1])
            await self._checkpoint(declaration, asked, "scan", after)
        await self._checkpoint(declaration, asked, "orphans", None)
        return documents

    async def _rearm_orphans(self, declaration: Declaration, asked: ReconcileRequest) -> None:
        """Update the records of documents that were deleted unseen."""
        after = asked.after
        while True:
            orphans = await self._store.record_cleanup.orphans(declaration, after, self._batch_size)
            await self._planner.examine(declaration, ChangedDocuments(orphans.ids))
            after = orphans.after
            if after is None:
                return
            await self._checkpoint(declaration, asked, "orphans", after)

    async def _checkpoint(
        self, declaration: Declaration, asked: ReconcileRequest, phase: Phase, after: LastId | None
    ) -> None:
        """Save the progress; raise `_RestartRequested` if there is a new request."""
        is_current = await self._store.planner_state.checkpoint(
            declaration.name, asked.ticket, phase, after, self._leadership.term
        )
        if not is_current:
            raise _RestartRequested

    def _is_due(self, name: str) -> bool:
        return asyncio.get_running_loop().time() >= self._not_before.get(name, 0.0)
