"""Foreign documents in the jobs collection."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import bson
from bson import ObjectId

_LARGEST_DOCUMENT = 16 << 20


def garbage() -> list[dict[str, Any]]:
    """Return one document of each kind; workers must quarantine those marked `unreadable`."""
    long_ago = datetime.now(UTC) - timedelta(days=1)
    job = {
        "name": "quick",
        "data": {},
        "status": "pending",
        "nextRunAt": long_ago,
        "failCount": 0,
        "createdAt": long_ago,
        "updatedAt": long_ago,
    }
    claimed = {**job, "status": "processing"}
    documents: list[dict[str, Any]] = [
        {"hello": "world"},
        {**job, "failCount": "many", "unreadable": True},
        {**job, "createdAt": "2020-01-01", "unreadable": True},
        {**job, "timeoutMs": {"a": 1}, "unreadable": True},
        {**job, "name": ["quick"], "unreadable": True},
        {**job, "nextRunAt": "2020-01-01"},
        {**job, "status": 7},
        {**claimed, "failCount": -1, "unreadable": True},
        {**claimed, "lockedAt": "2020-01-01", "claims": 1.5, "unreadable": True},
        # Without room for a claim.
        {**job, "data": {"filling": ""}, "unreadable": True},
    ]
    for document in documents:
        document |= {"_id": ObjectId(), "garbage": True}
    size = len(bson.encode(documents[-1]))
    documents[-1]["data"]["filling"] = "x" * (_LARGEST_DOCUMENT - size - 50)
    return documents
