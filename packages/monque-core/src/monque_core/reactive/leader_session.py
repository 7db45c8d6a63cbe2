"""What a leader does: keep the agenda, follow the changes, examine and clean up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from monque_core.durations import to_timedelta
from monque_core.reactive.cleaner import Cleaner
from monque_core.reactive.follower import Follower
from monque_core.reactive.planner import Planner
from monque_core.reactive.reconciler import Reconciler
from monque_core.reactive.task_set import TaskSet
from monque_core.scheduler.loop import end, finish
from monque_core.waiting import wait_for_event

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from monque_core.options import Options
    from monque_core.reactive.event_publisher import TaskEventPublisher
    from monque_core.reactive.leader import Leadership
    from monque_core.store.tasks.store import TaskStore


class LeaderSession:
    """One leadership from beginning to end, all its tasks in one group."""

    def __init__(
        self,
        store: TaskStore,
        options: Options,
        planned: Callable[[str, datetime, int], None],
        has_read: Callable[[TaskSet], None],
        publisher: TaskEventPublisher,
    ) -> None:
        self._store = store
        self._options = options
        self._planned = planned
        self._tell_read = has_read
        self._publisher = publisher
        self._look_gap = to_timedelta(options.reactive_options.leader_lease).total_seconds() / 3
        self._signal = asyncio.Event()
        self._has_read = asyncio.Event()
        self._beginnings = 0
        self._followers: dict[str, Follower] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._reconciler: Reconciler | None = None

    def look_again(self) -> None:
        """Read soon which tasks are declared."""
        self._has_read.clear()
        self._signal.set()

    async def lead(self, leadership: Leadership) -> None:
        """Plan until cancelled."""
        store, pace, publisher = self._store, self._options.reactive_options, self._publisher
        clock = self._options.clock
        agenda = TaskSet()
        self._followers = {}
        cleaner = Cleaner(store, agenda, clock, pace, publisher)
        planner = Planner(store, agenda, leadership, clock, self._planned, cleaner, publisher)
        self._reconciler = reconciler = Reconciler(
            store, agenda, planner, cleaner, leadership, clock, pace, publisher
        )

        def follower(database: str) -> Follower:
            return Follower(
                database, store, agenda, planner, reconciler, leadership, clock, pace, publisher
            )

        try:
            async with asyncio.TaskGroup() as group:
                await store.progress.take_over(leadership.term)
                agenda.parked |= set(await store.progress.count_parked())
                await self._read(agenda, leadership)
                self._tasks = [
                    group.create_task(reconciler.run(), name="monque-reconcile"),
                    group.create_task(cleaner.run(), name="monque-clean"),
                ]
                try:
                    while True:
                        self._follow(agenda, group, follower)
                        # What was declared meanwhile may not have been seen.
                        if not self._signal.is_set():
                            self._has_read.set()
                        reconciler.poke()
                        await self._wait()
                        await self._read(agenda, leadership)
                finally:
                    # A group cancels its tasks once, which the driver may swallow.
                    await finish(self._end_tasks())
                    self._let_go()
        except BaseExceptionGroup as faults:
            # The first one has ended the others.
            raise faults.exceptions[0] from None

    async def catch_up(self) -> None:
        """Wait until everything that was written and declared before this call is planned."""
        is_complete = False
        while not is_complete:
            beginnings = self._beginnings
            await self._has_read.wait()
            for follower in list(self._followers.values()):
                await follower.catch_up()
            if self._reconciler is not None:
                await self._reconciler.is_idle.wait()
            # A fault may have ended what was waited for, and begun it anew.
            is_complete = beginnings == self._beginnings

    async def _read(self, agenda: TaskSet, leadership: Leadership) -> None:
        """Read the declared tasks, and let what a new version asks for run again."""
        self._signal.clear()
        progress, now = self._store.progress, self._options.clock.now()
        declared = await progress.declarations(now)
        for task in declared:
            # A lower one is that of an instance which a deployment has not reached yet.
            if task.declaration.version > task.applied_version:
                await self._store.planning.rerun(task.declaration, now)
                version, term = task.declaration.version, leadership.term
                await progress.mark_version(task.declaration.name, version, term)
        agenda.replace(task.declaration for task in declared)
        self._tell_read(agenda)

    def _follow(
        self, agenda: TaskSet, group: asyncio.TaskGroup, make: Callable[[str], Follower]
    ) -> None:
        """Have one follower for each database, for the collections that are watched now."""
        for database, collections in agenda.places.items():
            if database not in self._followers:
                self._followers[database] = one = make(database)
                task = group.create_task(one.run(), name=f"monque-follow-{database}")
                self._tasks.append(task)
            elif self._followers[database].collections != collections:
                self._followers[database].follow_anew()

    def _let_go(self) -> None:
        """Let whoever waits for what has ended wait for what comes after it."""
        self._beginnings += 1
        self._has_read.clear()
        for follower in self._followers.values():
            follower.give_up()
        if self._reconciler is not None:
            self._reconciler.is_idle.set()

    async def _end_tasks(self) -> None:
        await asyncio.gather(*map(end, self._tasks))

    async def _wait(self) -> None:
        await wait_for_event(self._signal, self._look_gap)
