"""Examining all documents of a task, for whatever was missed or has a new meaning."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from monque_core.errors import LeadershipLostError
from monque_core.store.tasks.plan_updates import JobStreams
from monque_core.store.tasks.plan_writer import TaskBrokenError
from monque_core.store.tasks.source_collections import LastId
from monque_core.waiting import ExponentialPause, wait_for_event

if TYPE_CHECKING:
    from monque_core.clock import Clock
    from monque_core.options import ReactiveOptions
    from monque_core.reactive.cleaner import Cleaner
    from monque_core.reactive.event_publisher import TaskEventPublisher
    from monque_core.reactive.leader import Leadership
    from monque_core.reactive.planner import Planner
    from monque_core.reactive.task_set import TaskSet
    from monque_core.store.tasks.planner_state import DeclaredTask, Phase, ReconcileRequest
    from monque_core.store.tasks.store import TaskStore
    from monque_core.tasks.definition import Declaration

_LOOK_GAP = 10.0
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 300.0


class _AskedAnew(Exception):  # noqa: N818  # it begins again, and is no error
    """The reconciliation that is under way was asked for again."""


class Reconciler:
    """Scans source collections by `_id`, ids only, through the same flush as changes."""

    def __init__(
        self,
        store: TaskStore,
        agenda: TaskSet,
        planner: Planner,
        cleaner: Cleaner,
        leadership: Leadership,
        clock: Clock,
        options: ReactiveOptions,
        publisher: TaskEventPublisher,
    ) -> None:
        self._store = store
        self._task_set = agenda
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
        """Set while no task is waiting to be examined, but those that failed lately."""

    def poke(self) -> None:
        """Look soon which tasks are to be examined."""
        self.is_idle.clear()
        self._signal.set()

    async def run(self) -> None:
        """Examine what is to be examined, until cancelled."""
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
        """Read which tasks of the agenda are to be examined."""
        declared = await self._store.progress.declarations(self._clock.now())
        return [
            task
            for task in declared
            if task.reconciliation is not None
            # By what is planned by, too: a change must mean the same to the scan and to the flush.
            and task.declaration == self._task_set.get(task.declaration.name)
        ]

    async def _try(self, task: DeclaredTask) -> None:
        """Examine one task; an error is told, and the task stays to be examined."""
        name, term = task.declaration.name, self._leadership.term
        try:
            await self._reconcile(task)
        except LeadershipLostError:
            raise
        except _AskedAnew:
            self.poke()
        except Exception as error:  # noqa: BLE001  # it stays to be examined
            self._publisher.errored(error)
            pause = self._pauses.setdefault(name, ExponentialPause(_FIRST_PAUSE, _LONGEST_PAUSE))
            self._not_before[name] = asyncio.get_running_loop().time() + pause.lengthen()
            if isinstance(error, TaskBrokenError):
                # What changes from then on is not planned, so that only a scan of all will do.
                await self._store.progress.ask_reconcile(name, "it failed", self._clock.now())
                self._task_set.broken.add(name)
            await self._store.progress.set_error(name, str(error), term)
        else:
            self._pauses.pop(name, None)
            self._not_before.pop(name, None)
            if task.error is not None:
                await self._store.progress.set_error(name, None, term)

    async def _reconcile(self, task: DeclaredTask) -> None:
        declaration, asked = task.declaration, task.reconciliation
        assert asked is not None
        await self._store.prepare(declaration)
        # Before the first id is read: what changes from now on must be planned.
        self._task_set.broken.discard(declaration.name)
        self._publisher.reconciles(declaration.name, asked.reason)
        documents = 0
        if asked.phase == "scan":
            documents = await self._scan(declaration, asked)
            asked = replace(asked, phase="orphans", after=None)
        await self._rearm_orphans(declaration, asked)
        progress, now = self._store.progress, self._clock.now()
        if await progress.mark_reconciled(
            declaration.name, asked.ticket, now, self._leadership.term
        ):
            # What could not be planned for and is still there was parked again by this one.
            await progress.unpark_before(declaration.name, asked.asked_at)
            self._publisher.reconciled(declaration.name, asked.reason, documents)
            self._cleaner.poke()

    async def _scan(self, declaration: Declaration, asked: ReconcileRequest) -> int:
        """Plan for all documents there are, and tell how many."""
        documents, after = 0, asked.after
        while ids := await self._store.sources.ids_after(
            declaration.database, declaration.collection, after, self._batch_size
        ):
            await self._planner.examine(declaration, JobStreams(ids))
            documents += len(ids)
            after = LastId(ids[-1])
            await self._checkpoint(declaration, asked, "scan", after)
        await self._checkpoint(declaration, asked, "orphans", None)
        return documents

    async def _rearm_orphans(self, declaration: Declaration, asked: ReconcileRequest) -> None:
        """Let documents that went unseen be news when they come back."""
        after = asked.after
        while True:
            orphans = await self._store.upkeep.orphans(declaration, after, self._batch_size)
            await self._planner.examine(declaration, JobStreams(orphans.ids))
            after = orphans.after
            if after is None:
                return
            await self._checkpoint(declaration, asked, "orphans", after)

    async def _checkpoint(
        self, declaration: Declaration, asked: ReconcileRequest, phase: Phase, after: LastId | None
    ) -> None:
        """Save how far it is; whoever asked anew meanwhile wants it from the beginning."""
        is_current = await self._store.progress.checkpoint(
            declaration.name, asked.ticket, phase, after, self._leadership.term
        )
        if not is_current:
            raise _AskedAnew

    def _is_due(self, name: str) -> bool:
        return asyncio.get_running_loop().time() >= self._not_before.get(name, 0.0)
