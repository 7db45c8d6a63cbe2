"""What the next claim plan depends on, kept between claims."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from monque_core.scheduler.claim_plan import (
    InstanceSnapshot,
    NameSnapshot,
    Snapshot,
    contention_pause,
    next_contention,
)
from monque_core.scheduler.fairness import Fairness
from monque_core.scheduler.pauses import Pauses
from monque_core.scheduler.poison_guard import PoisonGuard
from monque_core.scheduler.timings import Timings

if TYPE_CHECKING:
    from monque_core.scheduler.backlog import Backlog
    from monque_core.scheduler.claim_plan import ClaimPlan
    from monque_core.scheduler.claimer import ClaimResult
    from monque_core.scheduler.slots import Slots
    from monque_core.scheduler.wakeups import Wakeups


class ClaimState:
    """Takes the snapshot for a plan, and learns from the result of each claim."""

    def __init__(self, slots: Slots, backlog: Backlog[Any], wakeups: Wakeups) -> None:
        self._slots = slots
        self._backlog = backlog
        self._wakeups = wakeups
        self._fairness = Fairness()
        self._is_contended = False
        self._contention = 0
        self.not_before = 0.0
        """When to look again, by the time of the event loop."""
        self.timings = Timings()
        self.poison_guard = PoisonGuard()
        self.pauses = Pauses()

    def snapshot(self) -> Snapshot:
        """Return what this instance runs, holds and expects."""
        slots, timings, guard = self._slots, self.timings, self.poison_guard
        names = [
            NameSnapshot(
                name,
                expected=self._wakeups.expected(name),
                concurrency=slots.limit(name),
                free=slots.free(name),
                prefetched=self._backlog.count(name),
                run_seconds=timings.of(name),
                is_held=self._is_held(name),
                next_is_recovered=name in guard.waiting_recovered,
            )
            for name in self._fairness.order(self._wakeups.expected_names)
        ]
        instance = None
        if slots.instance_limit is not None:
            instance = InstanceSnapshot(
                slots.instance_limit,
                slots.free_over_all(),
                len(self._backlog),
                timings.run_seconds,
            )
        return Snapshot(
            names,
            timings.claim_seconds,
            timings.claim_seconds_per_job,
            instance,
            is_contended=self._is_contended,
            is_isolating=guard.is_isolating(asyncio.get_running_loop().time()),
        )

    def learn(self, plan: ClaimPlan, result: ClaimResult[Any], seconds: float) -> None:
        """Record the result of a claim, and how long the claim took."""
        selection = result.selection
        if result.works:
            self.timings.claimed(len(result.works), seconds)
        self._is_contended = selection.is_contended
        if selection.size and result.error is None:
            self._contention = next_contention(self._contention, selection.size, len(result.works))
            pause = contention_pause(self._contention, self.timings.claim_seconds)
            self.not_before = asyncio.get_running_loop().time() + pause
        for name in selection.picked:
            self._fairness.served(name)
        self.poison_guard.looked_at(
            plan.limits, selection.waiting_recovered, selection.waiting_suspects
        )
        for name, remaining in selection.remaining.items():
            self._wakeups.hint(name, remaining)

    def publish_demand(self) -> None:
        """Publish to the other sources whether this one would use a slot of the instance."""
        if self._slots.are_shared:
            expected = self._wakeups.expected_names
            claimable = [name for name in expected if not self._is_held(name)]
            self._slots.set_waiting([*self._backlog.names, *claimable])

    def _is_held(self, name: str) -> bool:
        """Whether nothing of a name may be claimed now, whatever slots are free."""
        now = asyncio.get_running_loop().time()
        return self.pauses.is_paused(name) or self.poison_guard.is_held(name, now)
