"""Letting the leader, whoever it is, know which tasks this instance has."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from monque_core.scheduler.loop import Loop

if TYPE_CHECKING:
    from monque_core.options import Options
    from monque_core.reactive.announcer import TaskAnnouncer
    from monque_core.reactive.conductor import Conductor
    from monque_core.reactive.registry import Registry
    from monque_core.store.tasks.store import TaskStore

_REFRESH_GAP = 3600.0


class Declarer(Loop):
    """Declares tasks when they come, and says now and then that they are still there."""

    def __init__(
        self,
        store: TaskStore,
        options: Options,
        registry: Registry,
        conductor: Conductor,
        announcer: TaskAnnouncer,
    ) -> None:
        super().__init__(announcer.errored)
        self._store = store
        self._clock = options.clock
        self._registry = registry
        self._conductor = conductor
        self._declared: set[str] = set()
        self._signal = asyncio.Event()
        self.has_declared = asyncio.Event()
        """Set while every registered task is declared."""

    def declare_soon(self) -> None:
        """Declare the tasks that have come."""
        self.has_declared.clear()
        self._signal.set()

    def declare_again(self) -> None:
        """Declare all tasks, as after their declarations went away or were forgotten."""
        self._declared.clear()
        self.declare_soon()

    async def _run(self) -> None:
        while True:
            self._signal.clear()
            await self._declare()
            if not self._signal.is_set():
                self.has_declared.set()
            try:
                async with asyncio.timeout(_REFRESH_GAP):
                    await self._signal.wait()
            except TimeoutError:
                self._declared.clear()

    async def _declare(self) -> None:
        new = [one for one in self._registry if one.name not in self._declared]
        for definition in new:
            declaration = definition.declaration
            await self._store.prepare(declaration.database, declaration.collection)
            await self._store.progress.declare(declaration, self._clock.now())
            self._declared.add(definition.name)
        if new:
            self._conductor.look_again()
