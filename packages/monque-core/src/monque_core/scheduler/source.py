"""What the engine needs from a source of work; jobs are one, reactive tasks another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence
    from datetime import datetime

    from bson import ObjectId

    from monque_core.scheduler.polling import Polling
    from monque_core.scheduler.runs import Run
    from monque_core.scheduler.workers import Work, Worker, Workers
    from monque_core.store.claim_renewal import Loss
    from monque_core.store.quarantine import Rejected

Claim: TypeAlias = "tuple[Hashable, ObjectId | None]"
"""What identifies a claim: the id of the work and the claim token."""


class Claimed(Protocol):
    """Work that was claimed."""

    @property
    def id(self) -> Any:
        """Return the id, unique within the source."""
        ...

    @property
    def name(self) -> str:
        """Return the name its worker is registered under."""
        ...

    @property
    def claim_token(self) -> ObjectId | None:
        """Return the fencing token of this claim."""
        ...


class Candidate(Protocol):
    """Due work that a look has found; another instance may claim it first."""

    @property
    def name(self) -> str:
        """Return the name its worker is registered under."""
        ...

    @property
    def interrupted(self) -> bool:
        """Whether a claim of it ended without an outcome, as after a killed process."""
        ...


W = TypeVar("W", bound=Claimed)
W_co = TypeVar("W_co", bound=Claimed, covariant=True)
C = TypeVar("C", bound=Candidate)


class WorkQueue(Protocol[W_co, C]):
    """Where due work is found and claimed."""

    async def look(self, names: Sequence[str], limit: int, now: datetime) -> Sequence[C | Rejected]:
        """Return the first due work of all these names together, in one cheap query."""
        ...

    async def look_at_each(
        self, limits: Mapping[str, int], now: datetime
    ) -> Sequence[C | Rejected]:
        """Return the first due work of each name, so that no name hides another."""
        ...

    async def upcoming(
        self, names: Sequence[str], after: datetime, until: datetime, limit: int
    ) -> list[tuple[str, datetime]]:
        """Return the next due times of these names, soonest first."""
        ...

    async def claim_first(
        self, name: str, token: ObjectId, now: datetime
    ) -> W_co | Rejected | None:
        """Claim the first due work of a name in a single operation."""
        ...

    async def claim_one(
        self, candidate: C, token: ObjectId, now: datetime
    ) -> W_co | Rejected | None:
        """Claim one candidate by itself."""
        ...

    async def claim_batch(
        self, candidates: Sequence[C], token: ObjectId, now: datetime
    ) -> Sequence[W_co | Rejected]:
        """Claim as many of these candidates as are still due."""
        ...

    async def claimed_with(
        self, token: ObjectId, names: Sequence[str], at: datetime
    ) -> Sequence[W_co | Rejected]:
        """Return what a token has claimed at that time, although no reply confirmed it."""
        ...

    async def has_due(self, names: Sequence[str], now: datetime) -> bool:
        """Whether anything of these names could be claimed now."""
        ...


class RunResult(Generic[W]):
    """How a run ended."""

    __slots__ = ("error", "outcome", "run", "seconds")

    def __init__(
        self,
        run: Run[W],
        outcome: Any,
        error: BaseException | None,
        seconds: float = 0.0,
    ) -> None:
        self.run = run
        self.outcome = outcome
        """What to write, in the terms of the source."""
        self.error = error
        self.seconds = seconds

    @property
    def duration(self) -> timedelta:
        """Return how long the handler took."""
        return timedelta(seconds=self.seconds)


class Source(ABC, Generic[W, C]):
    """One kind of work: where it is claimed, what its handlers get, how its runs are settled."""

    queue: WorkQueue[W, C]
    workers: Workers
    polling: Polling
    renewal_interval: timedelta
    """How often claims are renewed."""

    @abstractmethod
    def is_suspect(self, candidate: C) -> bool:
        """Whether waiting work may be a poison job."""

    @abstractmethod
    def due_at(self, work: W) -> datetime | None:
        """Return when claimed work was due."""

    @abstractmethod
    def needs_isolation(self, work: W) -> bool:
        """Whether claimed work was a suspect while it waited."""

    @abstractmethod
    def report_rejected(self, rejected: Rejected, error: Exception) -> None:
        """Report a document that was quarantined."""

    @abstractmethod
    def begin(self, run: Run[W]) -> Work:
        """Publish that a run starts, and return what its middleware and handler get."""

    @abstractmethod
    def timeout(self, work: W, worker: Worker) -> timedelta | None:
        """Return how long one run may take, None for any time."""

    @abstractmethod
    def conclude(self, run: Run[W], error: BaseException | None, seconds: float) -> RunResult[W]:
        """Return the result of a run whose handler has ended after so many seconds."""

    @abstractmethod
    def release(self, run: Run[W]) -> RunResult[W]:
        """Return a result that undoes the claim."""

    @abstractmethod
    async def settle(self, results: Sequence[RunResult[W]], now: datetime) -> Sequence[Any]:
        """Write outcomes in as few round trips as possible, and return a verdict for each."""

    @abstractmethod
    def finalize(self, result: RunResult[W], verdict: Any, now: datetime) -> bool:
        """Publish what was written; False if the result has changed and must be settled again."""

    def truncate(self, result: RunResult[W], error: Exception) -> bool:  # noqa: ARG002  # if it can be
        """Shorten an outcome that MongoDB rejects, and return whether it is shorter now."""
        return False

    @abstractmethod
    def report_write_error(self, work: W, error: Exception) -> None:
        """Report that MongoDB rejects an outcome, which is kept and retried."""

    @abstractmethod
    async def renew(self, runs: Sequence[Run[W]], now: datetime) -> Mapping[Claim, Loss]:
        """Renew claims, and return those that were lost, and why."""

    @abstractmethod
    def report_lost(self, work: W, loss: Loss) -> None:
        """Report that work was taken over, or deleted, while its handler ran."""
