"""Declarations of reactive tasks as documents of the meta collection."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from bson import ObjectId

from monque_core.display import log
from monque_core.store.expressions import milliseconds
from monque_core.store.tasks.source_collections import LastId
from monque_core.tasks.definition import Declaration

if TYPE_CHECKING:
    from datetime import datetime

    from monque_core.store.driver import Document

FORGOTTEN_AFTER: Final = timedelta(days=1)
"""A task that no instance has declared for this long is no longer planned."""

# Clocks differ: a leader may have stopped planning the task a little earlier.
_MISSED_AFTER: Final = FORGOTTEN_AFTER - timedelta(hours=1)

Phase: TypeAlias = Literal["scan", "orphans"]


@dataclass(frozen=True, slots=True)
class ReconcileRequest:
    """A requested reconciliation and its progress."""

    ticket: ObjectId
    """Identifies the request: a new one restarts the reconciliation."""
    reason: str
    asked_at: datetime
    phase: Phase = "scan"
    after: LastId | None = None
    """Where the phase continues; None at its beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredTask:
    """A declared task and its planning status."""

    declaration: Declaration
    seen_at: datetime
    applied_version: int
    reconciled_at: datetime | None
    reconciliation: ReconcileRequest | None
    error: str | None
    """Why the task cannot be planned at the moment."""

    def is_forgotten(self, now: datetime) -> bool:
        """Whether no instance has declared the task for so long that it is not planned."""
        return self.seen_at <= now - FORGOTTEN_AFTER


def new_request(now: datetime) -> Document:
    """Return a request for a reconciliation, without its reason."""
    return {"ticket": ObjectId(), "phase": "scan", "askedAt": now}


def reconcile_reason(declaration: Declaration, now: datetime) -> Document:
    """Compute why a declaration requires a reconciliation; null if it does not."""
    is_moved = [
        {"$ne": ["$database", {"$literal": declaration.database}]},
        {"$ne": ["$collection", {"$literal": declaration.collection}]},
    ]
    is_changed = {"$ne": ["$fingerprint", declaration.fingerprint]}
    is_missed = {"$lte": ["$seenAt", now - _MISSED_AFTER]}
    reasons = [
        ({"$eq": [{"$type": "$fingerprint"}, "missing"]}, "the task is new"),
        ({"$or": is_moved}, "its collection is another one"),
        (is_missed, "no instance had it for a day"),
    ]
    if declaration.reconcile_on_change:
        reasons.append((is_changed, "its filter or watch has changed"))
    branches = [{"case": condition, "then": reason} for condition, reason in reasons]
    return {"$switch": {"branches": branches, "default": None}}


def to_document(declaration: Declaration) -> Document:
    """Return the fields that a declaration is stored as."""
    cleanup = declaration.cleanup
    return {
        "task": declaration.name,
        "database": declaration.database,
        "collection": declaration.collection,
        "filter": declaration.filter_text,
        "watch": declaration.watch_text,
        "fingerprint": declaration.fingerprint,
        "debounceMs": milliseconds(declaration.debounce),
        "maxWaitMs": milliseconds(declaration.max_wait),
        "resetOnChange": declaration.reset_on_change,
        "cleanup": {"when": cleanup.when, "keepForMs": milliseconds(cleanup.quiet_time)},
        "declaredVersion": declaration.version,
        "onVersionChange": declaration.on_version_change,
        "reconcileOnChange": declaration.reconcile_on_change,
    }


def to_declared_task(document: Document) -> DeclaredTask | None:
    """Return a stored task; log it and return None if it cannot be read."""
    try:
        return _read(document)
    except (KeyError, TypeError, ValueError) as error:
        log(logging.WARNING, f"the task {document['_id']} is left out: {error!r}")
        return None


def _read(document: Document) -> DeclaredTask:
    cleanup = document["cleanup"]
    declaration = Declaration.restore(
        name=document["task"],
        database=document["database"],
        collection=document["collection"],
        watch_text=document["watch"],
        filter_text=document["filter"],
        debounce=timedelta(milliseconds=document["debounceMs"]),
        max_wait=timedelta(milliseconds=document["maxWaitMs"]),
        reset_on_change=document["resetOnChange"],
        cleanup_when=cleanup["when"],
        keep_for=timedelta(milliseconds=cleanup["keepForMs"]),
        version=document["declaredVersion"],
        on_version_change=document["onVersionChange"],
        reconcile_on_change=document["reconcileOnChange"],
    )
    asked = document.get("reconcile")
    return DeclaredTask(
        declaration=declaration,
        seen_at=document["seenAt"],
        applied_version=document["version"],
        reconciled_at=document.get("reconciledAt"),
        reconciliation=None if asked is None else _reconciliation(asked),
        error=document.get("error"),
    )


def _reconciliation(asked: Document) -> ReconcileRequest:
    after = asked.get("after")
    return ReconcileRequest(
        asked["ticket"],
        asked["reason"],
        asked["askedAt"],
        asked["phase"],
        None if after is None else LastId(after["id"]),
    )
