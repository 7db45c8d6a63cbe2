"""The history of each document: every write that a majority has, in order."""

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
class Write:
    """One write to one document, with its states before and after."""

    at: int
    """When the server executed it, in nanoseconds; the server's precision is a millisecond."""
    order: int
    before: dict[str, Any] | None
    after: dict[str, Any] | None

    @property
    def statuses(self) -> tuple[Any, Any]:
        """Return the status before and after; None where there was no document."""
        return (
            None if self.before is None else self.before.get("status"),
            None if self.after is None else self.after.get("status"),
        )

    @property
    def token_before(self) -> str:
        """Return the claim token before the write."""
        return _text(self.before, "claimToken")

    @property
    def token_after(self) -> str:
        """Return the claim token after the write."""
        return _text(self.after, "claimToken")

    @property
    def is_claim(self) -> bool:
        """Return whether a pending job was claimed."""
        return self.statuses == ("pending", "processing")

    @property
    def is_takeover(self) -> bool:
        """Return whether a claim was taken from its owner."""
        is_revived = self.statuses == ("processing", "pending") and not self.token_after
        is_adopted = (
            self.statuses == ("processing", "processing") and self.token_before != self.token_after
        )
        return is_revived or is_adopted

    @property
    def is_outcome(self) -> bool:
        """Return whether the outcome of a claim was written."""
        return (
            self.statuses[0] == "processing"
            and self.statuses[1] in ("completed", "failed", "pending")
            and not self.is_takeover
        )

    @property
    def is_adoption(self) -> bool:
        """Return whether recovery took over a claim in order to give its job up."""
        return self.is_takeover and self.statuses[1] == "processing"

    @property
    def is_failure(self) -> bool:
        """Return whether a failed run was counted, with another one to follow."""
        if self.before is None or self.after is None or not self.is_outcome:
            return False
        failures = [int(document.get("failCount") or 0) for document in (self.before, self.after)]
        return self.statuses[1] == "pending" and failures[1] == failures[0] + 1

    @property
    def is_recurrence(self) -> bool:
        """Return whether a schedule was moved to its next tick."""
        if self.before is None or self.after is None or not self.is_outcome:
            return False
        is_moved = self.after.get("nextRunAt") != self.before.get("nextRunAt")
        is_anew = not self.after.get("failCount") and not self.after.get("claims")
        return bool(self.before.get("repeatInterval")) and is_moved and is_anew

    @property
    def is_release(self) -> bool:
        """Return whether a claim was handed back, with the claim count restored."""
        if self.before is None or self.after is None or not self.is_outcome:
            return False
        is_uncounted = self.after.get("claims", 0) == self.before.get("claims", 0) - 1
        is_in_place = self.after.get("nextRunAt") == self.before.get("nextRunAt")
        return self.statuses[1] == "pending" and is_uncounted and is_in_place


@dataclass(slots=True)
class DocumentHistory:
    """All writes to one document."""

    id: str
    writes: list[Write] = field(default_factory=list)

    @property
    def initial(self) -> dict[str, Any]:
        """Return the document as it was first stored."""
        first = self.writes[0].after
        assert first is not None
        return first

    @property
    def current(self) -> dict[str, Any] | None:
        """Return the current document, or None if it was deleted."""
        return self.writes[-1].after

    @property
    def is_foreign(self) -> bool:
        """Return whether the document was never meant to be a job."""
        return bool(self.initial.get("garbage"))

    def limit(self, otherwise: int) -> int:
        """Return how often the job may run."""
        return int(self.initial.get("maxRetries") or otherwise)

    def is_lost(self, token: str, before: int) -> bool:
        """Return whether a claim was taken over up to that time."""
        return any(
            write.is_takeover and write.token_before == token and write.at <= before
            for write in self.writes
        )

    def adopted(self) -> dict[str, Write]:
        """Return the claims with which recovery gave the job up, by their tokens."""
        return {write.token_after: write for write in self.writes if write.is_adoption}

    @property
    def name(self) -> Any:
        """Return the name of the job."""
        return self.initial.get("name")


async def read_document_histories(
    db: AsyncDatabase[dict[str, Any]], since: Timestamp, collection: str = "monque_jobs"
) -> dict[str, DocumentHistory]:
    """Read all writes to the jobs from a time until now."""
    jobs = db[collection]
    end = ObjectId()
    # A marker, which is not a job.
    await jobs.insert_one({"_id": end, "garbage": True, "note": _END})
    documents: dict[str, DocumentHistory] = {}
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
            document = documents.setdefault(key, DocumentHistory(key))
            document.writes.append(_write(event, order, document))
    await jobs.delete_one({"_id": end})
    return documents


def writes_in_order(documents: Iterable[DocumentHistory]) -> list[tuple[DocumentHistory, Write]]:
    """Return the writes to all documents in the order in which they were made."""
    writes = [(document, write) for document in documents for write in document.writes]
    writes.sort(key=lambda pair: pair[1].order)
    return writes


def describe(document: DocumentHistory, write: Write) -> str:
    """Return a description of a write."""
    before, after = write.statuses
    return f"{document.name} {document.id} ({before} → {after})"


def _write(event: dict[str, Any], order: int, document: DocumentHistory) -> Write:
    before = document.writes[-1].after if document.writes else None
    match event["operationType"]:
        case "insert" | "replace":
            after = event["fullDocument"]
        case "update":
            changes = event["updateDescription"]
            removed = set(changes["removedFields"])
            # Only top-level fields are checked.
            after = {
                name: value
                for name, value in {**(before or {}), **changes["updatedFields"]}.items()
                if name not in removed
            }
        case "delete":
            after = None
        case other:
            raise AssertionError(f"{other} in the history of the jobs")
    return Write(nanoseconds(event["wallTime"]), order, before, after)


def nanoseconds(instant: datetime) -> int:
    """Return a time in the unit of the records."""
    return int(instant.timestamp() * 1000) * 1_000_000


def _text(document: dict[str, Any] | None, name: str) -> str:
    value = None if document is None else document.get(name)
    return "" if value is None else str(value)
