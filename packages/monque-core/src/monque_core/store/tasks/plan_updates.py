"""How a change of a source document updates the record of a task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from monque_core.store.expressions import (
    REMOVE,
    date_or,
    either,
    first_of,
    has_status,
    is_date,
    milliseconds,
    one_among,
)
from monque_core.store.tasks.indexes import IS_DATE
from monque_core.store.transitions import Transition
from monque_core.tasks.record import TaskStatus

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from bson import Timestamp

    from monque_core.store.driver import Document
    from monque_core.tasks.definition import Declaration

_IS_DIRTY: Final = has_status(TaskStatus.PROCESSING_DIRTY)
_IS_FORGOTTEN: Final[Document] = {"$eq": [{"$type": "$lastObservedValues"}, "missing"]}
_IS_SAME: Final[Document] = {"$eq": ["$lastObservedValues", "$$new.lastObservedValues"]}
# Without a lock, no run would ever end.
_IS_RUNNING: Final[Document] = {
    "$and": [one_among("$status", TaskStatus.RUNNING), is_date("$nextRunAt")]
}
_IS_RETRYING: Final[Document] = {
    "$and": [
        has_status(TaskStatus.PENDING),
        {"$gt": ["$attempts", 0]},
        is_date("$nextRunAt"),
    ]
}


@dataclass(frozen=True, slots=True)
class Deletion:
    """A document was deleted, whether or not it exists again."""

    id: Any
    at: Timestamp
    """The cluster time of the delete."""


@dataclass(frozen=True, slots=True)
class ChangedDocuments:
    """Changed documents of one collection."""

    ids: Sequence[Any]
    deletions: Sequence[Deletion] = ()
    """The latest delete of each document that was deleted; its id may be missing in `ids`."""
    until: Timestamp | None = None
    """The cluster time up to which the change stream was read; None without a stream."""


def change(declaration: Declaration, records: str, now: datetime, term: int) -> Document:
    """Return the `$merge` of new records into the collection: → pending, processing_dirty.

    Equal values change nothing, and neither does an older leader. The server parses the pipeline
    for each record, so it is kept short.
    """
    seen = {
        "lastObservedValues": "$$new.lastObservedValues",
        # Missing if the server does not report it: the older time stays and is still right.
        "lastObservedAt": "$$new.lastObservedAt",
        "plannedTerm": term,
        "updatedAt": now,
    }
    changed = {"$mergeObjects": [seen, _consequence(declaration, now + declaration.debounce)]}
    update = first_of(
        (_is_planned_after(term), {}), (_IS_SAME, {"plannedTerm": term}), otherwise=changed
    )
    return {
        "$merge": {
            "into": records,
            "on": ["sourceDocId", "task"],
            "let": {
                "new": "$$ROOT",
                "fresh": {
                    "status": "$status",
                    "attempts": "$attempts",
                    "nextRunAt": "$nextRunAt",
                    "dueAt": "$dueAt",
                },
            },
            "whenMatched": [
                {"$replaceWith": {"$mergeObjects": ["$$ROOT", update]}},
                {
                    "$set": {
                        "unmatchedAt": either(_IS_FORGOTTEN, "$unmatchedAt", REMOVE),
                        "firstErrorAt": either({"$gt": ["$attempts", 0]}, "$firstErrorAt", REMOVE),
                    }
                },
            ],
            "whenNotMatched": "insert",
        }
    }


def rearm(
    task: str, ids: Sequence[Any], matched: Sequence[Any], term: int, now: datetime
) -> Transition:
    """Remove the values of documents that do not match now, so that they run when they match again.

    The status stays.
    """
    return _forget(
        {"task": task, "sourceDocId": {"$in": list(ids), "$nin": list(matched)}}, term, now
    )


def rearm_deleted(task: str, deletion: Deletion, term: int, now: datetime) -> Transition:
    """Remove the values of a document that was deleted and exists again, so that it runs.

    Values that were read after the delete stay: a change stream is read again from its last saved
    token, and an old event must not undo what was planned from a later one. The status stays.
    """
    chosen = {"task": task, "sourceDocId": {"$eq": deletion.id}}
    return _forget({**chosen, **_observed_before(deletion.at)}, term, now)


def rearm_all(task: str, at: Timestamp, term: int, now: datetime) -> Transition:
    """Remove all values of a task that were read before a cluster time. The status stays."""
    return _forget({"task": task, **_observed_before(at)}, term, now)


def _observed_before(at: Timestamp) -> Document:
    """Match records whose values may be older than an event; many have no time."""
    return {"lastObservedAt": {"$not": {"$gte": at}}}


def _forget(selection: Document, term: int, now: datetime) -> Transition:
    is_armed = {"$and": [_IS_FORGOTTEN, is_date("$unmatchedAt")]}
    return Transition(
        {
            "$and": [
                selection,
                {"plannedTerm": {"$not": {"$gt": term}}},
                {
                    "$or": [
                        {"lastObservedValues": {"$exists": True}},
                        {"unmatchedAt": {"$not": IS_DATE}},
                        # Writes of an older leader that are still in flight must be rejected, too.
                        {"plannedTerm": {"$ne": term}},
                    ]
                },
            ],
        },
        [
            {
                "$set": {
                    "unmatchedAt": date_or("$unmatchedAt", now),
                    "plannedTerm": term,
                    "updatedAt": either(is_armed, "$updatedAt", now),
                }
            },
            {"$unset": "lastObservedValues"},
        ],
    )


def next_run(declaration: Declaration, now: datetime) -> Document:
    """Compute the next run of a record that changes now: debounced, but within `max_wait`."""
    return _next_run(declaration, now + declaration.debounce)


def _next_run(declaration: Declaration, due_at: datetime) -> Document:
    return {"$min": [due_at, _latest_run(declaration, due_at)]}


def _latest_run(declaration: Declaration, due_at: datetime) -> Document:
    """Compute the latest time to which changes may postpone a record."""
    longest_wait = milliseconds(declaration.max_wait - declaration.debounce)
    return {"$add": [date_or("$dueAt", due_at), longest_wait]}


def _is_debouncing(declaration: Declaration, due_at: datetime) -> Document:
    """Compute whether a record waits for its first run and is not deferred."""
    return {
        "$and": [
            has_status(TaskStatus.PENDING),
            {"$not": [{"$gt": ["$attempts", 0]}]},
            {"$lte": ["$nextRunAt", _latest_run(declaration, due_at)]},
        ]
    }


def _consequence(declaration: Declaration, due_at: datetime) -> Document:
    """Compute the other fields that a change of values sets, by the state of the record."""
    dirty = {
        "status": TaskStatus.PROCESSING_DIRTY,
        "dueAt": either(_IS_DIRTY, "$dueAt", due_at),
    }
    debounced = {"nextRunAt": _next_run(declaration, due_at)}
    is_debouncing = _is_debouncing(declaration, due_at)
    if declaration.reset_on_change:
        return first_of((_IS_RUNNING, dirty), (is_debouncing, debounced), otherwise="$$fresh")
    return first_of(
        (_IS_RUNNING, dirty),
        (_IS_RETRYING, {}),
        (is_debouncing, debounced),
        (has_status(TaskStatus.FAILED), {"$mergeObjects": ["$$fresh", {"attempts": "$attempts"}]}),
        otherwise="$$fresh",
    )


def _is_planned_after(term: int) -> Document:
    return {"$and": [{"$isNumber": "$plannedTerm"}, {"$gt": ["$plannedTerm", term]}]}
