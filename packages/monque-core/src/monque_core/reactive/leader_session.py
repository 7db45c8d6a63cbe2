"""What a leader runs: a follower per database, the reconciler and the cleaner."""

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
    from monque_core.reactive.leader import Leadership
    from monque_core.reactive.task_event_publisher import TaskEventPublisher
    from monque_core.store.tasks.store import TaskStore


class LeaderSession:
    """Runs everything that only the leader does, in one task group."""

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
        self._report_read = has_read
        self._publisher = publisher
        self._look_gap = to_timedelta(options.reactive_options.leader_lease).total_seconds() / 3
        self._signal = asyncio.Event()
        self._has_read = asyncio.Event()
        self._sessions = 0
        self._followers: dict[str, Follower] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._reconciler: Reconciler | None = None

    def look_again(self) -> None:
        """Read the declared tasks again soon."""
        self._has_read.clear()
        self._signal.set()

    async def lead(self, leadership: Leadership) -> None:
        """Plan until cancelled."""
        store, pace, publisher = self._store, self._options.reactive_options, self._publisher
        clock = self._options.clock
        task_set = TaskSet()
        self._followers = {}
        cleaner = Cleaner(store, task_set, clock, pace, publisher)
        planner = Planner(store, task_set, leadership, clock, self._planned, cleaner, publisher)
        self._reconciler = reconciler = Reconciler(
            store, task_set, planner, cleaner, leadership, clock, pace, publisher
        )

        def follower(database: str) -> Follower:
            return Follower(
                database, store, task_set, planner, reconciler, leadership, clock, pace, publisher
            )

        try:
            async with asyncio.TaskGroup() as group:
                await store.planner_state.take_over(leadership.term)
                task_set.parked |= set(await store.planner_state.count_parked())
                await self._read(task_set, leadership)
                self._tasks = [
                    group.create_task(reconciler.run(), name="monque-reconcile"),
                    group.create_task(cleaner.run(), name="monque-clean"),
                ]
                try:
                    while True:
                        self._follow(task_set, group, follower)
                        # Tasks that were declared meanwhile may be missing.
                        if not self._signal.is_set():
                            self._has_read.set()
                        reconciler.poke()
                        await self._wait()
                        await self._read(task_set, leadership)
                finally:
                    # A group cancels its tasks only once, and the driver may swallow that.
                    await finish(self._end_tasks())
                    self._restart_waiters()
        except BaseExceptionGroup as faults:
            # The first error has ended the other tasks.
            raise faults.exceptions[0] from None

    async def catch_up(self) -> None:
        """Wait until everything that was written and declared before this call is planned."""
        is_complete = False
        while not is_complete:
            sessions = self._sessions
            await self._has_read.wait()
            for follower in list(self._followers.values()):
                await follower.catch_up()
            if self._reconciler is not None:
                await self._reconciler.is_idle.wait()
            # An error may have restarted the session meanwhile.
            is_complete = sessions == self._sessions

    async def _read(self, task_set: TaskSet, leadership: Leadership) -> None:
        """Read the declared tasks, and run records again that a new version asks for."""
        self._signal.clear()
        state, now = self._store.planner_state, self._options.clock.now()
        declared = await state.declarations(now)
        for task in declared:
            # A lower version comes from an instance that is not deployed yet.
            if task.declaration.version > task.applied_version:
                await self._store.plan_writer.rerun(task.declaration, now)
                version, term = task.declaration.version, leadership.term
                await state.mark_version(task.declaration.name, version, term)
        task_set.replace(task.declaration for task in declared)
        self._report_read(task_set)

    def _follow(
        self, task_set: TaskSet, group: asyncio.TaskGroup, make: Callable[[str], Follower]
    ) -> None:
        """Run one follower per database, for the collections that are watched now."""
        for database, collections in task_set.places.items():
            if database not in self._followers:
                self._followers[database] = one = make(database)
                task = group.create_task(one.run(), name=f"monque-follow-{database}")
                self._tasks.append(task)
            elif self._followers[database].collections != collections:
                self._followers[database].reopen()

    def _restart_waiters(self) -> None:
        """Make waiting `catch_up` calls wait for the next session."""
        self._sessions += 1
        self._has_read.clear()
        for follower in self._followers.values():
            follower.give_up()
        if self._reconciler is not None:
            self._reconciler.is_idle.set()

    async def _end_tasks(self) -> None:
        await asyncio.gather(*map(end, self._tasks))

    async def _wait(self) -> None:
        await wait_for_event(self._signal, self._look_gap)
