"""Calling idle instances while work waits and the slots here are taken."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from monque_core.scheduler.loop import Loop
from monque_core.waiting import wait_for_event

if TYPE_CHECKING:
    from collections.abc import Callable

    from monque_core.clock import Clock
    from monque_core.scheduler.cluster import Cluster
    from monque_core.scheduler.idle_tracker import IdleTracker
    from monque_core.scheduler.slots import Slots
    from monque_core.scheduler.source import Source
    from monque_core.scheduler.wakeups import Wakeups

_FIRST_GAP: Final = 0.04
_LONGEST_GAP: Final = 5.0
_FIRST_CALLED: Final = 3
_MOST_CALLED: Final = 100
_SECONDS_ALONE: Final = 10.0


class Overflow(Loop):
    """Wakes instances on standby, more each time, as long as due work finds no slot here."""

    def __init__(
        self,
        source: Source[Any, Any],
        slots: Slots,
        wakeups: Wakeups,
        tracker: IdleTracker,
        cluster: Cluster,
        clock: Clock,
        report: Callable[[BaseException], None],
    ) -> None:
        super().__init__(report)
        self._source = source
        self._slots = slots
        self._wakeups = wakeups
        self._tracker = tracker
        self._cluster = cluster
        self._clock = clock

    async def _run(self) -> None:
        gap, called, hinted = _FIRST_GAP, _FIRST_CALLED, self._wakeups.hinted
        is_calm = True
        while True:
            await self._tracker.wait_until_pressed()
            # While others keep up, only the next job is a reason to look soon.
            if is_calm and await wait_for_event(hinted, gap - _FIRST_GAP):
                gap = _FIRST_GAP
            hinted.clear()
            instant = self._clock.now()
            await asyncio.sleep(_FIRST_GAP if is_calm else gap)
            await self._cluster.invite()
            names = self._full_names()
            is_calm = not names or not await self._source.queue.has_due(names, instant)
            gap = min(_LONGEST_GAP, 2 * gap) if names else _FIRST_GAP
            if is_calm:
                called = _FIRST_CALLED
            elif await self._cluster.call(names, called):
                called = min(_MOST_CALLED, 2 * called)
            else:
                await asyncio.sleep(_SECONDS_ALONE)
            self._went_well()

    def _full_names(self) -> list[str]:
        """Return the names without a free slot whose work this instance is to see to."""
        return [
            name
            for name in self._source.workers.names
            if not self._slots.free(name)
            and (self._cluster.is_listener or self._wakeups.expected(name))
        ]
