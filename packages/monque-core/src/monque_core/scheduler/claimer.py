"""Executing a claim plan: one look at the queue, then as few claim writes as possible."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from monque_core.scheduler.claim_plan import Selection, select_candidates
from monque_core.scheduler.source import C, W
from monque_core.scheduler.unconfirmed_claims import UnconfirmedClaims
from monque_core.scheduler.wakeups import MANY
from monque_core.store.quarantine import Rejected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monque_core.clock import Clock
    from monque_core.scheduler.claim_plan import ClaimPlan, Demand
    from monque_core.scheduler.source import Source
    from monque_core.scheduler.unconfirmed_claims import ClaimAttempt

R = TypeVar("R")
_Claimed: TypeAlias = "tuple[ClaimAttempt, Sequence[W | Rejected | None]]"


@dataclass(slots=True)
class ClaimResult(Generic[W]):
    """The claimed work and the selection it comes from."""

    selection: Selection[Any]
    works: list[W] = field(default_factory=list)
    error: Exception | None = None
    """Why part of the selection, or all of it, was not claimed."""


class Claimer(Generic[W, C]):
    """Looks at the queue and claims what a plan asks for."""

    def __init__(self, source: Source[W, C], clock: Clock) -> None:
        self._source = source
        self._queue = source.queue
        self._clock = clock
        self.unconfirmed = UnconfirmedClaims(clock, source.renewal_interval)

    async def claim(self, plan: ClaimPlan) -> ClaimResult[W]:
        """Claim up to what the plan allows, and return the work together with any error.

        If this is cancelled, every claim it has made stays unconfirmed, to be read back.
        """
        try:
            if plan.look == "first":
                return await self._claim_first(plan.demands[0])
            return await self._claim_selected(plan)
        except Exception as error:  # noqa: BLE001  # the caller retries what the plan asked for
            return ClaimResult(Selection(remaining=dict.fromkeys(plan.limits, MANY)), error=error)

    async def read_back(self, attempt: ClaimAttempt) -> list[W]:
        """Return what an unconfirmed claim has claimed."""
        found = await self._queue.claimed_with(attempt.token, attempt.names, attempt.claimed_at)
        self.unconfirmed.looked_at(attempt)
        return self._without_rejected(found)

    async def _claim_first(self, demand: Demand) -> ClaimResult[W]:
        attempt = self.unconfirmed.begin([demand.name])
        found = await self._queue.claim_first(demand.name, attempt.token, attempt.claimed_at)
        works = self._handed_over(attempt, [found])
        selection = Selection[C]()
        if found is not None:
            selection.picked = [demand.name]
            if left_over := demand.left_over(len(works)):
                selection.remaining[demand.name] = left_over
        return ClaimResult(selection, works)

    async def _claim_selected(self, plan: ClaimPlan) -> ClaimResult[W]:
        candidates, is_contended = await self._look(plan)
        selection = select_candidates(
            plan, candidates, self._source.is_suspect, is_contended=is_contended
        )
        result = ClaimResult[W](selection)
        together, alone = selection.together, selection.alone
        if len(together) == 1:
            together, alone = [], [*together, *alone]
        claims = [self._claim_batch(together)] if together else []
        claims += [self._claim_one(candidate) for candidate in alone]
        # Most claims are one batch, which needs no tasks.
        if len(claims) == 1:
            result.works = self._handed_over(*await claims[0])
            return result
        outcomes = await asyncio.gather(*claims, return_exceptions=True)
        # What ends the process is raised before any work is handed over: all stays unconfirmed.
        errors = [_as_error(one) for one in outcomes if isinstance(one, BaseException)]
        result.error = errors[-1] if errors else None
        for claimed in outcomes:
            if isinstance(claimed, BaseException):
                selection.remaining.update(dict.fromkeys(plan.limits, MANY))
            else:
                result.works += self._handed_over(*claimed)
        return result

    async def _look(self, plan: ClaimPlan) -> tuple[list[C], bool]:
        """Return due candidates, and whether more of several names are due than the plan takes."""
        now, limits = self._clock.now(), plan.limits
        if plan.look == "each":
            found = await self._queue.look_at_each(limits, now)
        else:
            found = await self._queue.look(list(limits), plan.total, now)
        candidates = self._without_rejected(found)
        # A rejected document has taken the place of the candidate behind it.
        is_incomplete = len(candidates) < len(found)
        return candidates, is_incomplete or plan.is_exceeded_by(len(found))

    async def _claim_batch(self, candidates: Sequence[C]) -> _Claimed[W]:
        attempt = self.unconfirmed.begin(list({candidate.name for candidate in candidates}))
        return attempt, await self._queue.claim_batch(candidates, attempt.token, attempt.claimed_at)

    async def _claim_one(self, candidate: C) -> _Claimed[W]:
        attempt = self.unconfirmed.begin([candidate.name])
        found = await self._queue.claim_one(candidate, attempt.token, attempt.claimed_at)
        return attempt, [found]

    def _handed_over(self, attempt: ClaimAttempt, found: Sequence[W | Rejected | None]) -> list[W]:
        """Return the work of a claim, unless it has to be read back first."""
        works: list[W] = self._without_rejected(found)
        return works if self.unconfirmed.confirm(attempt) else []

    def _without_rejected(self, found: Sequence[R | Rejected | None]) -> list[R]:
        """Report what was quarantined, and return the rest."""
        rest: list[R] = []
        for one in found:
            if isinstance(one, Rejected):
                if one.error is not None:
                    self._source.report_rejected(one, one.error)
            elif one is not None:
                rest.append(one)
        return rest


def _as_error(raised: BaseException) -> Exception:
    """Return an error of a claim; whatever ends the process is raised."""
    if isinstance(raised, Exception):
        return raised
    raise raised
