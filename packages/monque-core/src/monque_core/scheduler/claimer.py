"""Claiming what was asked for, in as few round trips as can be."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from bson import ObjectId

from monque_core.scheduler.source import C, W
from monque_core.scheduler.turns import Turns
from monque_core.scheduler.wakeups import MANY
from monque_core.store.turned_away import TurnedAway

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from datetime import datetime

    from monque_core.clock import Clock
    from monque_core.scheduler.source import Source

R = TypeVar("R")
_SECOND_LOOK_AFTER = 5.0


@dataclass(frozen=True, slots=True)
class Demand:
    """How much work of a name is thought to be due, and how much could be taken now."""

    name: str
    expected: int
    room: int
    free: int
    """Slots that are free right now; the rest of the room is ahead of them."""

    @property
    def ask(self) -> int:
        """Give how many to ask for."""
        return min(self.expected, self.room)

    def left_over(self, taken: int) -> int:
        """Give how many more are thought to be due after so many were taken."""
        return MANY if self.expected == MANY else self.expected - taken


@dataclass(slots=True)
class Harvest:
    """What came of a claim beside the work, and where another look is worth it."""

    count: int = 0
    """How much work was claimed; whoever asked for it has it already."""
    more: dict[str, int] = field(default_factory=dict)
    held_back: set[str] = field(default_factory=set)
    """Names with recovered work at hand, which waits for a free slot to be claimed alone."""
    awaiting_trial: set[str] = field(default_factory=set)
    """Names with suspicious work at hand, which waits for the trial of another to end."""
    fault: Exception | None = None
    """What kept the claim from being all that it might have been."""


@dataclass(slots=True, eq=False)
class _Doubt:
    """A claim that may have been made although it failed, or be lost although it was made."""

    claimed_at: datetime
    stamped_at: float
    """When the clock was read, by the loop's time."""
    token: ObjectId = field(default_factory=ObjectId)
    look_at: float = 0.0


class Claimer(Generic[W, C]):
    """Looks and claims; knows which of its claims may exist although no reply came."""

    def __init__(self, source: Source[W, C], clock: Clock) -> None:
        self._source = source
        self._queue = source.queue
        self._clock = clock
        self._patience = source.renewal_interval.total_seconds()
        self._turns = Turns()
        self._is_crowded = False
        self._doubts: list[_Doubt] = []

    @property
    def is_crowded(self) -> bool:
        """Tell whether the last look over several names saw more than could be taken."""
        return self._is_crowded

    def longest_waiting(self, names: Sequence[str], count: int) -> list[str]:
        """Give those names that have not been served for the longest time."""
        return self._turns.order(names)[:count]

    async def claim(
        self,
        demands: Sequence[Demand],
        total: int,
        hold: Callable[[Sequence[W]], None],
        *,
        may_try: bool,
    ) -> Harvest:
        """Claim up to so much in all; something suspicious only if another trial may begin.

        What is claimed is handed over at once: nothing that comes after may lose it, and from
        then on it is kept alive.
        """
        is_single = len(demands) == 1 and min(demands[0].ask, total) == 1
        if is_single and demands[0].free and may_try:
            return await self._claim_first(demands[0], hold)
        most = max(1, min(total, 2 * total // len(demands))) if self._is_crowded else total
        asks = {demand.name: min(demand.ask, most) for demand in demands}
        candidates = await self._look(asks, total)
        harvest, chosen = self._choose(candidates, demands, asks, total)
        free = {demand.name: demand.free for demand in demands}
        try:
            await self._claim_chosen(chosen, free, harvest, hold, may_try=may_try)
        except Exception as error:  # noqa: BLE001  # what was claimed before it must still run
            harvest.fault = error
            harvest.more.update(dict.fromkeys(asks, MANY))
        return harvest

    async def resolve_doubts(
        self, hold: Callable[[Sequence[W]], None], *, for_the_last_time: bool = False
    ) -> None:
        """Read back claims whose reply was lost, at once and again a little later.

        The write may reach the server after the first look; then nobody would run them.
        """
        clock = asyncio.get_running_loop().time
        for doubt in list(self._doubts):
            if clock() < doubt.look_at and not for_the_last_time:
                continue
            hold(self._sound(await self._queue.claimed_with(doubt.token, doubt.claimed_at)))
            if doubt.look_at:
                self._doubts.remove(doubt)
            else:
                doubt.look_at = clock() + _SECOND_LOOK_AFTER

    def next_doubt(self) -> float | None:
        """Tell when a claim that may exist unseen is to be looked for, by the loop's time."""
        return min((doubt.look_at for doubt in self._doubts), default=None)

    async def _claim_first(self, demand: Demand, hold: Callable[[Sequence[W]], None]) -> Harvest:
        doubt = self._stamp()
        claim = self._queue.claim_first(demand.name, doubt.token, doubt.claimed_at)
        found = await self._doubting(doubt, claim)
        harvest = Harvest()
        if found is None:
            return harvest
        self._turns.served(demand.name)
        works = self._certain([found], doubt)
        hold(works)
        harvest.count = len(works)
        if left_over := demand.left_over(harvest.count):
            harvest.more[demand.name] = left_over
        return harvest

    async def _look(self, asks: Mapping[str, int], total: int) -> dict[str, list[C]]:
        names, now = list(asks), self._clock.now()
        if len(names) > 1 and self._is_crowded:
            candidates = await self._queue.look_at_each(asks, now)
            self._is_crowded = len(candidates) > total
        else:
            limit = min(total, sum(asks.values()))
            candidates = await self._queue.look(names, limit, now)
            self._is_crowded = len(names) > 1 and len(candidates) == limit
        by_name: defaultdict[str, list[C]] = defaultdict(list)
        sound = self._sound(candidates)
        # What was set aside has hidden what is behind it.
        self._is_crowded = self._is_crowded or len(sound) < len(candidates)
        for candidate in sound:
            by_name[candidate.name].append(candidate)
        return by_name

    def _choose(
        self,
        candidates: Mapping[str, list[C]],
        demands: Sequence[Demand],
        asks: Mapping[str, int],
        total: int,
    ) -> tuple[Harvest, list[C]]:
        """Share out what a look has seen, and note where it has left something."""
        harvest = Harvest()
        chosen = self._turns.share_out(candidates, asks, total)
        taken = defaultdict[str, int](int)
        for candidate in chosen:
            taken[candidate.name] += 1
        for demand in demands:
            seen = len(candidates.get(demand.name, ()))
            may_be_more = self._is_crowded or seen >= asks[demand.name]
            left_over = demand.left_over(taken[demand.name])
            if left_over and (may_be_more or taken[demand.name] < seen):
                harvest.more[demand.name] = left_over
        return harvest, chosen

    async def _claim_chosen(
        self,
        chosen: Sequence[C],
        free: dict[str, int],
        harvest: Harvest,
        hold: Callable[[Sequence[W]], None],
        *,
        may_try: bool,
    ) -> None:
        """Claim the innocent together, and by itself and not ahead what recovery brought back."""

        def bring_in(works: Sequence[W]) -> int:
            hold(works)
            for work in works:
                free[work.name] -= 1
            harvest.count += len(works)
            return len(works)

        batch = [candidate for candidate in chosen if not candidate.interrupted]
        bring_in(await self._claim_together(batch))
        for candidate in chosen:
            if not candidate.interrupted:
                continue
            is_suspicious = self._source.is_suspicious(candidate)
            if is_suspicious and not may_try:
                harvest.awaiting_trial.add(candidate.name)
                harvest.more[candidate.name] = MANY
            elif free[candidate.name] <= 0:
                harvest.held_back.add(candidate.name)
                harvest.more[candidate.name] = MANY
            else:
                count = bring_in(await self._claim_one(candidate))
                may_try = may_try and not (is_suspicious and count)

    async def _claim_together(self, batch: Sequence[C]) -> list[W]:
        if not batch:
            return []
        if len(batch) == 1:
            return await self._claim_one(batch[0])
        doubt = self._stamp()
        claim = self._queue.claim_batch(batch, doubt.token, doubt.claimed_at)
        return self._certain(await self._doubting(doubt, claim), doubt)

    async def _claim_one(self, candidate: C) -> list[W]:
        doubt = self._stamp()
        claim = self._queue.claim_one(candidate, doubt.token, doubt.claimed_at)
        return self._certain([await self._doubting(doubt, claim)], doubt)

    def _stamp(self) -> _Doubt:
        """Read the clock for one claim: a stamp that serves several is old for the last of them."""
        return _Doubt(self._clock.now(), asyncio.get_running_loop().time())

    def _is_old(self, doubt: _Doubt) -> bool:
        """Whether a claim is older than claims become without renewal, by either clock."""
        waited = asyncio.get_running_loop().time() - doubt.stamped_at
        age = (self._clock.now() - doubt.claimed_at).total_seconds()
        return max(waited, age) > self._patience

    async def _doubting(self, doubt: _Doubt, claim: Awaitable[R]) -> R:
        """Remember a claim that failed, for it may have been made all the same.

        Remember as well one whose stamp is old when the reply comes, whatever made it old: others
        may have it by now.
        """
        try:
            found = await claim
        except BaseException:
            self._doubts.append(doubt)
            raise
        if self._is_old(doubt):
            self._doubts.append(doubt)
        return found

    def _certain(self, found: Sequence[W | TurnedAway | None], doubt: _Doubt) -> list[W]:
        """Keep what was claimed, unless it has to be read back first."""
        sound: list[W] = self._sound(found)
        return [] if doubt in self._doubts else sound

    def _sound(self, found: Sequence[R | TurnedAway | None]) -> list[R]:
        """Tell of what was set aside, and keep the rest."""
        sound: list[R] = []
        for one in found:
            if isinstance(one, TurnedAway):
                if one.error is not None:
                    self._source.turned_away(one, one.error)
            elif one is not None:
                sound.append(one)
        return sound
