"""What the engine asks of a source of work; jobs are one, reactive tasks another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence
    from datetime import datetime, timedelta

    from bson import ObjectId

    from monque_core.scheduler.polling import Polling
    from monque_core.scheduler.runs import Run
    from monque_core.scheduler.workers import Work, Worker, Workers
    from monque_core.store.ledger import Loss
    from monque_core.store.turned_away import TurnedAway

Claim: TypeAlias = "tuple[Hashable, ObjectId | None]"
"""What proves whose run it is: the id of the work and the token of its claim."""


class Claimed(Protocol):
    """Work that a claim has brought in."""

    @property
    def id(self) -> Any:
        """Tell it apart from the rest of its source."""
        ...

    @property
    def name(self) -> str:
        """Give the name its worker is registered under."""
        ...

    @property
    def claim_token(self) -> ObjectId | None:
        """Tell this claim apart from every other of the same work."""
        ...


class Candidate(Protocol):
    """Due work that a look has seen; whether it can be had, only the claim tells."""

    @property
    def name(self) -> str:
        """Give the name its worker is registered under."""
        ...

    @property
    def interrupted(self) -> bool:
        """Tell whether a claim of it ended without an outcome, as a killed process leaves it."""
        ...


W = TypeVar("W", bound=Claimed)
W_co = TypeVar("W_co", bound=Claimed, covariant=True)
C = TypeVar("C", bound=Candidate)


class Queue(Protocol[W_co, C]):
    """Where due work is looked for and claimed."""

    async def look(
        self, names: Sequence[str], limit: int, now: datetime
    ) -> Sequence[C | TurnedAway]:
        """See the first due work of all these names together, in one cheap query."""
        ...

    async def look_at_each(
        self, limits: Mapping[str, int], now: datetime
    ) -> Sequence[C | TurnedAway]:
        """See the first due work of each name, so that no name hides another."""
        ...

    async def upcoming(
        self, names: Sequence[str], after: datetime, until: datetime, limit: int
    ) -> list[tuple[str, datetime]]:
        """See which of these names become due when, soonest first."""
        ...

    async def claim_first(
        self, name: str, token: ObjectId, now: datetime
    ) -> W_co | TurnedAway | None:
        """Claim the first due work of a name in a single operation."""
        ...

    async def claim_one(
        self, candidate: C, token: ObjectId, now: datetime
    ) -> W_co | TurnedAway | None:
        """Claim this by itself."""
        ...

    async def claim_batch(
        self, candidates: Sequence[C], token: ObjectId, now: datetime
    ) -> Sequence[W_co | TurnedAway]:
        """Claim as many of these as are still to be had."""
        ...

    async def claimed_with(self, token: ObjectId, at: datetime) -> Sequence[W_co | TurnedAway]:
        """Read back what a token has claimed at that time, though no reply told of it."""
        ...

    async def has_due(self, names: Sequence[str], now: datetime) -> bool:
        """Tell whether anything of these names could be claimed now."""
        ...


class Ending(Generic[W]):
    """How a run ended."""

    __slots__ = ("duration", "error", "outcome", "run")

    def __init__(
        self,
        run: Run[W],
        outcome: Any,
        error: BaseException | None,
        duration: timedelta,
    ) -> None:
        self.run = run
        self.outcome = outcome
        """What follows for the work, in the terms of its source."""
        self.error = error
        self.duration = duration


class Source(ABC, Generic[W, C]):
    """One kind of work: where it is claimed, what its runs get, and what their ends mean."""

    queue: Queue[W, C]
    workers: Workers
    polling: Polling
    renewal_interval: timedelta
    """How often claims are kept alive."""

    @abstractmethod
    def is_suspicious(self, candidate: C) -> bool:
        """Tell whether waiting work may be what killed its processes."""

    @abstractmethod
    def is_on_trial(self, work: W) -> bool:
        """Tell whether claimed work was suspicious when it was waiting."""

    @abstractmethod
    def turned_away(self, found: TurnedAway, error: Exception) -> None:
        """Say that something in the queue was set aside."""

    @abstractmethod
    def begin(self, run: Run[W]) -> Work:
        """Say that a run starts, and give what its middleware and handler see."""

    @abstractmethod
    def time_limit(self, work: W, worker: Worker) -> timedelta | None:
        """Tell how long one run may take."""

    @abstractmethod
    def conclude(self, run: Run[W], error: BaseException | None, duration: timedelta) -> Ending[W]:
        """Decide what the end of a handler means."""

    @abstractmethod
    def hand_back(self, run: Run[W]) -> Ending[W]:
        """End a claim as if it had never been made."""

    @abstractmethod
    async def settle(self, endings: Sequence[Ending[W]], now: datetime) -> Sequence[Any]:
        """Write outcomes in as few round trips as can be, and say for each what became of it."""

    @abstractmethod
    def close(self, ending: Ending[W], verdict: Any, now: datetime) -> bool:
        """Tell what was written; False if the ending was changed and must be settled again."""

    def abridge(self, ending: Ending[W], refusal: Exception) -> bool:  # noqa: ARG002  # if it can be
        """Make an outcome that MongoDB refuses smaller; False if that cannot be, or cannot help."""
        return False

    @abstractmethod
    def refused(self, work: W, error: Exception) -> None:
        """Say that MongoDB refuses an outcome, which is kept and tried again."""

    @abstractmethod
    async def renew(self, runs: Sequence[Run[W]], now: datetime) -> Mapping[Claim, Loss]:
        """Keep claims alive, and return those that are no longer ours, and why."""

    @abstractmethod
    def lost(self, work: W, loss: Loss) -> None:
        """Report that work was taken over, or deleted, while its handler ran."""
