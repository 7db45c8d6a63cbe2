"""The reactive tasks of one running instance: pipelines, registration and leader."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from monque_core.reactive.leader import Leader
from monque_core.reactive.leader_session import LeaderSession
from monque_core.reactive.task_registration import TaskRegistration
from monque_core.reactive.task_source import TaskSource
from monque_core.scheduler.loop import end
from monque_core.scheduler.wakeups import MANY, Wakeups

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from monque_core.options import Options
    from monque_core.reactive.task_event_publisher import TaskEventPublisher
    from monque_core.reactive.task_registry import Namespace, TaskRegistry
    from monque_core.reactive.task_set import TaskSet
    from monque_core.scheduler.engine import Engine
    from monque_core.scheduler.pipeline import Pipeline
    from monque_core.store.store import Store
    from monque_core.store.tasks.queue import TaskCandidate
    from monque_core.tasks.record import TaskRecord


class ReactiveRuntime:
    """Runs the registered tasks on an engine, also those that are registered later."""

    def __init__(
        self,
        store: Store,
        options: Options,
        registry: TaskRegistry,
        engine: Engine,
        publisher: TaskEventPublisher,
    ) -> None:
        self._store = store
        self._options = options
        self._registry = registry
        self._engine = engine
        self._publisher = publisher
        self._pipelines: dict[Namespace, Pipeline[TaskRecord, TaskCandidate]] = {}
        self._leader_session = LeaderSession(
            store.tasks, options, self._planned, self._read, publisher
        )
        self._leader = Leader(store.leases, options, self._leader_session, publisher)
        self._registration = TaskRegistration(
            store.tasks, options, registry, self._leader_session, publisher
        )
        self._is_at_work = False

    def serve(self) -> None:
        """Run the tasks that are registered now."""
        if not len(self._registry):
            return
        for place, workers in self._registry.places.items():
            if place in self._pipelines:
                self._pipelines[place].dispatcher.look_ahead_again()
                continue
            wakeups = Wakeups(workers)
            definitions = self._registry.definitions
            source = TaskSource(
                self._store.tasks.records(*place, definitions),
                self._store.tasks.sources,
                self._registry,
                workers,
                self._options,
                wakeups,
                self._publisher,
            )
            self._pipelines[place] = pipeline = self._engine.open_pipeline(source, wakeups)
            wakeups.rank = partial(self._rank, wakeups.rank)
            source.pause = pipeline.dispatcher.pause
        if self._is_at_work:
            self._registration.declare_soon()
        else:
            self._is_at_work = True
            self._engine.follow(self._registration)
            self._engine.follow(self._leader)

    def _rank(
        self, rank: Callable[[str, datetime], int | None], name: str, at: datetime
    ) -> int | None:
        """Return how many instances come before this one: none if it leads, since it planned it."""
        return 0 if self._leader.is_leading else rank(name, at)

    async def catch_up(self) -> None:
        """If this instance leads, wait until all changes before this call are planned."""
        is_complete = not self._is_at_work
        while not is_complete:
            await self._registration.has_declared.wait()
            await self._leader.is_decided.wait()
            if self._leader.is_leading:
                await self._catch_up()
            # The leader may have found that its own tasks are no longer declared.
            is_complete = self._registration.has_declared.is_set()

    async def _catch_up(self) -> None:
        self._leader_session.look_again()
        catching_up = asyncio.create_task(self._leader_session.catch_up())
        ceasing = asyncio.create_task(self._leader.is_over.wait())
        try:
            await asyncio.wait([catching_up, ceasing], return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end(ceasing)
            await end(catching_up)

    def _read(self, task_set: TaskSet) -> None:
        """Declare tasks again that the leader, this instance, did not find in the database."""
        is_settled = self._registration.has_declared.is_set()
        if is_settled and not all(name in task_set for name in self._registration.declared):
            self._registration.declare_again()

    def _planned(self, name: str, due_at: datetime, count: int) -> None:
        """Wake the pipeline of a task: up to `count` records become due then."""
        for pipeline in self._pipelines.values():
            if name in pipeline.source.workers:
                if due_at <= self._options.clock.now():
                    pipeline.wakeups.hint(name, count)
                else:
                    pipeline.wakeups.hint_at(name, due_at, MANY)
