"""Claims that may exist although no reply confirmed them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from bson import ObjectId

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from monque_core.clock import Clock

_SECOND = timedelta(seconds=1)
_SECOND_LOOK_AFTER = 5.0


@dataclass(slots=True, eq=False)
class ClaimAttempt:
    """One claim write, from before it is sent until its jobs are handed over."""

    names: Sequence[str]
    claimed_at: datetime
    sent_at: float
    token: ObjectId = field(default_factory=ObjectId)
    look_at: float = 0.0
    """When to look for it by its token, by the time of the event loop."""
    is_answered: bool = False
    """Whether the server has replied: then one look is enough."""


class UnconfirmedClaims:
    """Every claim that was sent and whose jobs were not handed over.

    A reply can be lost, and a cancelled claim can still reach the server. Such a claim is read
    back by its token, at once and again a little later, for the write may arrive after the first
    look. A claim whose reply took longer than claims last without a heartbeat is read back too:
    another instance may own its jobs by now.
    """

    def __init__(self, clock: Clock, patience: timedelta) -> None:
        self._clock = clock
        self._patience = patience
        self._attempts: list[ClaimAttempt] = []

    def begin(self, names: Sequence[str]) -> ClaimAttempt:
        """Return a new attempt on jobs of these names, stamped with the current time."""
        attempt = ClaimAttempt(names, self._clock.now(), asyncio.get_running_loop().time())
        self._attempts.append(attempt)
        return attempt

    def confirm(self, attempt: ClaimAttempt) -> bool:
        """Whether the jobs of an attempt can be run; otherwise it is read back first."""
        age = max(
            self._clock.now() - attempt.claimed_at,
            (asyncio.get_running_loop().time() - attempt.sent_at) * _SECOND,
        )
        if age > self._patience:
            attempt.is_answered = True
            return False
        self._attempts.remove(attempt)
        return True

    def due(self, *, is_last_look: bool = False) -> Iterator[ClaimAttempt]:
        """Yield the attempts to read back now."""
        now = asyncio.get_running_loop().time()
        for attempt in list(self._attempts):
            if attempt.look_at <= now or is_last_look:
                yield attempt

    def looked_at(self, attempt: ClaimAttempt) -> None:
        """Schedule the second look at an attempt, or forget it if there is none."""
        if attempt.look_at or attempt.is_answered:
            self._attempts.remove(attempt)
        else:
            attempt.look_at = asyncio.get_running_loop().time() + _SECOND_LOOK_AFTER

    @property
    def is_unread(self) -> bool:
        """Whether there is an attempt that was never read back."""
        return any(not attempt.look_at for attempt in self._attempts)

    def next_look(self) -> float:
        """Return when the next attempt is due, infinity if there is none."""
        return min((attempt.look_at for attempt in self._attempts), default=float("inf"))
