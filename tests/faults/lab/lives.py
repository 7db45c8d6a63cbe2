"""What MongoDB says became of each job: every write that a majority has, in order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bson import ObjectId

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from bson.timestamp import Timestamp
    from pymongo.asynchronous.database import AsyncDatabase

_END = "the end of the history"


@dataclass(frozen=True, slots=True)
class Step:
    """One write to one document, as it was before and after."""

    at: int
    """When the server made it, in nanoseconds; the server's own precision is a millisecond."""
    order: int
    before: dict[str, Any] | None
    after: dict[str, Any] | None

    @property
    def statuses(self) -> tuple[Any, Any]:
        """Give the status before and after, None where there was no document."""
        return (
            None if self.before is None else self.before.get("status"),
            None if self.after is None else self.after.get("status"),
        )

    @property
    def token_before(self) -> str:
        """Give the claim that was in force."""
        return _text(self.before, "claimToken")

    @property
    def token_after(self) -> str:
        """Give the claim that is in force from now on."""
        return _text(self.after, "claimToken")

    @property
    def is_claim(self) -> bool:
        """Tell whether a job was taken from the queue."""
        return self.statuses == ("pending", "processing")

    @property
    def is_taking_over(self) -> bool:
        """Tell whether a claim was taken from the one who held it."""
        is_revived = self.statuses == ("processing", "pending") and not self.token_after
        is_adopted = (
            self.statuses == ("processing", "processing") and self.token_before != self.token_after
        )
        return is_revived or is_adopted

    @property
    def is_settling(self) -> bool:
        """Tell whether the outcome of a claim was written."""
        return (
            self.statuses[0] == "processing"
            and self.statuses[1] in ("completed", "failed", "pending")
            and not self.is_taking_over
        )

    @property
    def is_adoption(self) -> bool:
        """Tell whether recovery took over a claim in order to give its job up."""
        return self.is_taking_over and self.statuses[1] == "processing"

    @property
    def is_failure(self) -> bool:
        """Tell whether a failed run was counted, another one being left."""
        if self.before is None or self.after is None or not self.is_settling:
            return False
        failures = [int(document.get("failCount") or 0) for document in (self.before, self.after)]
        return self.statuses[1] == "pending" and failures[1] == failures[0] + 1

    @property
    def is_recurrence(self) -> bool:
        """Tell whether a schedule was moved to its next tick."""
        if self.before is None or self.after is None or not self.is_settling:
            return False
        is_moved = self.after.get("nextRunAt") != self.before.get("nextRunAt")
        is_anew = not self.after.get("failCount") and not self.after.get("claims")
        return bool(self.before.get("repeatInterval")) and is_moved and is_anew

    @property
    def is_release(self) -> bool:
        """Tell whether a claim was handed back as if it had never been made."""
        if self.before is None or self.after is None or not self.is_settling:
            return False
        is_uncounted = self.after.get("claims", 0) == self.before.get("claims", 0) - 1
        is_in_place = self.after.get("nextRunAt") == self.before.get("nextRunAt")
        return self.statuses[1] == "pending" and is_uncounted and is_in_place


@dataclass(slots=True)
class Life:
    """All writes to one document."""

    id: str
    steps: list[Step] = field(default_factory=list)

    @property
    def born(self) -> dict[str, Any]:
        """Give the document as it was first stored."""
        first = self.steps[0].after
        assert first is not None
        return first

    @property
    def last(self) -> dict[str, Any] | None:
        """Give the document as it is now, None if it was deleted."""
        return self.steps[-1].after

    @property
    def is_foreign(self) -> bool:
        """Tell whether it was never meant to be a job."""
        return bool(self.born.get("garbage"))

    def limit(self, otherwise: int) -> int:
        """Tell how often the job may run."""
        return int(self.born.get("maxRetries") or otherwise)

    def is_lost(self, token: str, before: int) -> bool:
        """Tell whether a claim was taken over before that time."""
        return any(
            step.is_taking_over and step.token_before == token and step.at <= before
            for step in self.steps
        )

    def adopted(self) -> dict[str, Step]:
        """Give by their tokens the claims that recovery took over to give the job up."""
        return {step.token_after: step for step in self.steps if step.is_adoption}

    @property
    def name(self) -> Any:
        """Give the name of the job."""
        return self.born.get("name")


async def read_lives(
    db: AsyncDatabase[dict[str, Any]], since: Timestamp, collection: str = "monque_jobs"
) -> dict[str, Life]:
    """Read what was done to the jobs since a time, up to now."""
    jobs = db[collection]
    end = ObjectId()
    # It carries a mark of its own, and is no job.
    await jobs.insert_one({"_id": end, "garbage": True, "note": _END})
    lives: dict[str, Life] = {}
    pipeline = [{"$project": {"fullDocument.data.filling": 0, "ns": 0}}]
    async with await jobs.watch(
        pipeline, start_at_operation_time=since, batch_size=5000, max_await_time_ms=1000
    ) as stream:
        order = 0
        async for event in stream:
            order += 1
            key = str(event["documentKey"]["_id"])
            if key == str(end):
                break
            life = lives.setdefault(key, Life(key))
            life.steps.append(_step(event, order, life))
    await jobs.delete_one({"_id": end})
    return lives


def in_order(lives: Iterable[Life]) -> list[tuple[Life, Step]]:
    """Give the writes to all documents in the order they were made."""
    steps = [(life, step) for life in lives for step in life.steps]
    steps.sort(key=lambda pair: pair[1].order)
    return steps


def told(life: Life, step: Step) -> str:
    """Put a write into words."""
    before, after = step.statuses
    return f"{life.name} {life.id} ({before} → {after})"


def _step(event: dict[str, Any], order: int, life: Life) -> Step:
    before = life.steps[-1].after if life.steps else None
    match event["operationType"]:
        case "insert" | "replace":
            after = event["fullDocument"]
        case "update":
            changes = event["updateDescription"]
            removed = set(changes["removedFields"])
            # Only whole fields of the top level are looked at.
            after = {
                name: value
                for name, value in {**(before or {}), **changes["updatedFields"]}.items()
                if name not in removed
            }
        case "delete":
            after = None
        case other:
            raise AssertionError(f"{other} in the history of the jobs")
    return Step(nanoseconds(event["wallTime"]), order, before, after)


def nanoseconds(instant: datetime) -> int:
    """Give a time as the processes write theirs down."""
    return int(instant.timestamp() * 1000) * 1_000_000


def _text(document: dict[str, Any] | None, name: str) -> str:
    value = None if document is None else document.get(name)
    return "" if value is None else str(value)
