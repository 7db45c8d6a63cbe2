"""When a claim counts as abandoned."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, TypeGuard

from monque_core.jobs.job import JobStatus
from monque_core.options import STALE_AFTER_HEARTBEATS
from monque_core.store.expressions import EARLIEST

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from monque_core.store.driver import Document

_LONGEST_INTERVAL_MS = timedelta(days=365) // timedelta(milliseconds=1)


def stale(intervals: Iterable[object], now: datetime, lock_timeout: timedelta) -> Document:
    """Match claims without a heartbeat for three intervals, or locked too long without any.

    `intervals` are the heartbeat intervals found on claimed jobs. Listed one by one, they give the
    index exact bounds; with `$expr`, one invalid value would fail the query.
    """
    known = sorted({value for value in intervals if is_interval(value)})
    # "Not since" rather than "before", so that a lock without a date counts as well.
    locked_too_long = {"lockedAt": {"$not": {"$gte": now - lock_timeout}}}
    branches: list[Document] = []
    for interval_ms in known:
        silence = STALE_AFTER_HEARTBEATS * timedelta(milliseconds=interval_ms)
        branches += [
            {"heartbeatInterval": interval_ms, "lastHeartbeat": {"$lt": now - silence}},
            {
                "heartbeatInterval": interval_ms,
                "lastHeartbeat": {"$not": {"$gte": EARLIEST}},
                **locked_too_long,
            },
        ]
    branches.append({"heartbeatInterval": {"$nin": known}, **locked_too_long})
    return {"status": JobStatus.PROCESSING, "$or": branches}


def is_interval(value: object) -> TypeGuard[float]:
    """Whether a stored value is a heartbeat interval; other programs may store anything."""
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and 0 < value <= _LONGEST_INTERVAL_MS
    )
