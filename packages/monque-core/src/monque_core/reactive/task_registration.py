"""Storing the tasks of this instance, for the leader to plan."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from monque_core.scheduler.loop import Loop
from monque_core.store.tasks.declarations import FORGOTTEN_AFTER
from monque_core.waiting import wait_for_event

if TYPE_CHECKING:
    from collections.abc import Collection

    from monque_core.options import Options
    from monque_core.reactive.leader_session import LeaderSession
    from monque_core.reactive.task_event_publisher import TaskEventPublisher
    from monque_core.reactive.task_registry import TaskRegistry
    from monque_core.store.tasks.store import TaskStore

_REFRESH_GAP = 3600.0
_RETRY_GAP = 1.0


class TaskRegistration(Loop):
    """Declares new tasks, and refreshes their declarations periodically."""

    def __init__(
        self,
        store: TaskStore,
        options: Options,
        registry: TaskRegistry,
        leader_session: LeaderSession,
        publisher: TaskEventPublisher,
    ) -> None:
        super().__init__(publisher.errored)
        self._store = store
        self._clock = options.clock
        self._registry = registry
        self._leader_session = leader_session
        self._declared: set[str] = set()
        self._seen_at = self._clock.now()
        self._signal = asyncio.Event()
        self.has_declared = asyncio.Event()
        """Set while every registered task is declared, except for those that failed."""

    @property
    def declared(self) -> Collection[str]:
        """Return the names of the declared tasks."""
        return self._declared

    def declare_soon(self) -> None:
        """Declare new tasks soon."""
        self.has_declared.clear()
        self._signal.set()

    def declare_again(self) -> None:
        """Declare all tasks again, as their declarations were deleted or forgotten."""
        self._declared.clear()
        self.declare_soon()

    async def _run(self) -> None:
        while True:
            self._signal.clear()
            is_complete = await self._declare()
            if not self._signal.is_set():
                self.has_declared.set()
            is_asked = await wait_for_event(
                self._signal, _REFRESH_GAP if is_complete else _RETRY_GAP
            )
            if is_complete and not is_asked:
                await self._refresh()

    async def _declare(self) -> bool:
        """Declare the new tasks; an error of one does not affect the others."""
        new = [one.declaration for one in self._registry if one.name not in self._declared]
        for declaration in new:
            try:
                await self._store.prepare(declaration)
                await self._store.planner_state.declare(declaration, self._clock.now())
            except Exception as error:  # noqa: BLE001  # it is retried
                self._report(error)
            else:
                self._declared.add(declaration.name)
        self._seen_at = self._clock.now()
        if new:
            self._leader_session.look_again()
        return all(declaration.name in self._declared for declaration in new)

    async def _refresh(self) -> None:
        """Refresh the time at which all tasks were last seen, not their options.

        An instance of a newer version may have changed the options. After a long gap, as on a
        machine that slept, the tasks count as forgotten and are declared again.
        """
        now, names = self._clock.now(), list(self._declared)
        is_forgotten = now - self._seen_at > FORGOTTEN_AFTER / 2
        if is_forgotten or await self._store.planner_state.refresh(names, now) < len(names):
            self._declared.clear()
        self._seen_at = now
