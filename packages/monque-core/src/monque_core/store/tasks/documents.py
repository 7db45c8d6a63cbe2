"""The record of a task: camelCase in MongoDB, `TaskRecord` in Python."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeGuard

from bson import ObjectId

from monque_core.errors import MonqueError
from monque_core.tasks.record import (
    Execution,
    ExecutionStatus,
    RunSummary,
    TaskRecord,
    TaskStatus,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_LARGEST_COUNT = 2**53
_LONGEST_RUN_MS = 1e14


class InvalidRecordError(MonqueError, ValueError):
    """A stored document cannot be read as the record of a task."""

    def __init__(self, field: str, value: object) -> None:
        super().__init__(f"the stored task record cannot be read: {field} is {_described(value)}")
        self.field = field
        self.value = value


def records_name(collection: str) -> str:
    """Return the name of the collection with the records of a source collection."""
    return f"{collection}_tasks"


def to_record(document: Mapping[str, Any], *, collection: str | None = None) -> TaskRecord:
    """Return a stored record; raise `InvalidRecordError` if it cannot be read.

    Unreadable fields that no run depends on are left out.
    """
    if "sourceDocId" not in document:
        raise InvalidRecordError("sourceDocId", None)
    identity, token = document["_id"], document.get("claimToken")
    if not isinstance(identity, ObjectId):
        raise InvalidRecordError("_id", identity)
    if not isinstance(token, ObjectId | None):
        raise InvalidRecordError("claimToken", token)
    status = document.get("status")
    if status not in TaskStatus.ALL:
        raise InvalidRecordError("status", status)
    created_at = _date(document.get("createdAt")) or identity.generation_time
    return TaskRecord(
        id=identity,
        task=_task(document.get("task")),
        source_id=document["sourceDocId"],
        status=status,
        created_at=created_at,
        updated_at=_date(document.get("updatedAt")) or created_at,
        attempts=_count("attempts", document.get("attempts")),
        next_run_at=_date(document.get("nextRunAt")),
        due_at=_date(document.get("dueAt")),
        started_at=_date(document.get("startedAt")),
        completed_at=_date(document.get("completedAt")),
        first_error_at=_date(document.get("firstErrorAt")),
        last_error=_text(document.get("lastError")),
        last_finalized_at=_date(document.get("lastFinalizedAt")),
        values=document.get("lastObservedValues"),
        last_success=_success(document.get("lastSuccess")),
        history=_history(document.get("executionHistory")),
        claimed_by=_text(document.get("claimedBy")),
        claim_token=token,
        planned_term=_term(document.get("plannedTerm")),
        unmatched_at=_date(document.get("unmatchedAt")),
        collection=collection,
    )


def _task(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidRecordError("task", value)
    return value


def _count(field: str, value: object) -> int:
    if value is None:
        return 0
    if not _is_number(value) or not 0 <= value <= _LARGEST_COUNT or value != int(value):
        raise InvalidRecordError(field, value)
    return int(value)


def _term(value: object) -> int | None:
    return int(value) if _is_number(value) and abs(value) <= _LARGEST_COUNT else None


def _date(value: object) -> datetime | None:
    return value if isinstance(value, datetime) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _duration(value: object) -> timedelta | None:
    if _is_number(value) and 0 <= value <= _LONGEST_RUN_MS:
        return timedelta(milliseconds=value)
    return None


def _success(value: object) -> RunSummary | None:
    if not isinstance(value, dict):
        return None
    at, duration = _date(value.get("at")), _duration(value.get("durationMs"))
    return None if at is None or duration is None else RunSummary(at, duration)


def _history(value: object) -> tuple[Execution, ...]:
    entries = value if isinstance(value, list) else []
    return tuple(
        Execution(
            entry["at"],
            entry["status"],
            _duration(entry.get("durationMs")),
            _text(entry.get("error")),
        )
        for entry in entries
        if isinstance(entry, dict)
        and isinstance(entry.get("at"), datetime)
        and entry.get("status") in ExecutionStatus.ALL
    )


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _described(value: object) -> str:
    return "missing" if value is None else f"{str(value)[:50]!r} ({type(value).__name__})"
