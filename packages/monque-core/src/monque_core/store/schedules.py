"""Storing, changing and removing schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monque_core.errors import MonqueError
from monque_core.jobs.job import JobStatus
from monque_core.jobs.outcome import next_tick
from monque_core.jobs.payload import schedule_key
from monque_core.store.documents import to_job
from monque_core.store.indexes import RECURRING
from monque_core.store.shard_key import BY_ID, identified

if TYPE_CHECKING:
    from datetime import datetime

    from bson.codec_options import CodecOptions

    from monque_core.jobs.job import AnyJob
    from monque_core.store.driver import Collection, Document, Session
    from monque_core.store.inserts import Inserts

_ATTEMPTS = 100


class Schedules:
    """Writes the recurring jobs."""

    def __init__(self, collection: Collection, inserts: Inserts, codec: CodecOptions[Any]) -> None:
        self._collection = collection
        self._inserts = inserts
        self._codec = codec

    async def put(self, wanted: AnyJob, session: Session | None) -> AnyJob:
        """Store a schedule, or update the active one that has its key."""
        for _ in range(_ATTEMPTS):
            stored = await self._inserts.insert_unique(wanted, session)
            if not stored.deduplicated:
                return stored
            is_same = self._is_same(stored, wanted)
            update = _repair(stored) if is_same else _update(stored, wanted)
            if update is None:
                return stored
            updated = await self._collection.find_one_and_update(
                _unchanged(stored), update, session=session, hint=BY_ID
            )
            if updated is not None:
                return to_job(updated, deduplicated=True)
        raise MonqueError(
            f"the schedule of {wanted.name!r} could not be updated in {_ATTEMPTS} attempts: others "
            "change it at the same time; try again"
        )

    async def remove(self, name: str, unique_key: str | None, now: datetime) -> int:
        """Remove schedules and return how many; a running one ends as an ordinary job."""
        chosen: Document = {"name": name, **RECURRING}
        if unique_key is not None:
            chosen["uniqueKey"] = unique_key
        removed = 0
        while True:
            deleted = await self._collection.delete_many({**chosen, "status": JobStatus.PENDING})
            stripped = await self._collection.update_many(
                {**chosen, "status": JobStatus.PROCESSING},
                {"$unset": {"repeatInterval": "", "timezone": ""}, "$set": {"updatedAt": now}},
            )
            if not deleted and not stripped:
                return removed
            # One may have become pending between the two writes: look again.
            removed += deleted + stripped

    def _is_same(self, stored: AnyJob, wanted: AnyJob) -> bool:
        return stored.priority == wanted.priority and self._digest(stored) == self._digest(wanted)

    def _digest(self, job: AnyJob) -> str:
        return schedule_key(job.repeat_interval or "", job.timezone or "UTC", job.data, self._codec)


def _unchanged(job: AnyJob) -> Document:
    """Match the job only as it was read, so that concurrent changes do not mix."""
    condition: Document = {
        **identified([job]),
        "status": job.status,
        "repeatInterval": job.repeat_interval,
        "timezone": job.timezone,
    }
    if job.status == JobStatus.PENDING:
        condition["nextRunAt"] = job.next_run_at
    return condition


def _repair(stored: AnyJob) -> Document | None:
    """Return the update that corrects a next run which Node computed without the time zone.

    Node's runs leave their heartbeat interval behind, and end when the document was last changed.
    """
    is_moved_by_node = (
        stored.status == JobStatus.PENDING
        and stored.heartbeat_interval is not None
        and not stored.fail_count
        # Otherwise it is retried, or was rescheduled to run at once.
        and stored.next_run_at > stored.updated_at
    )
    if not is_moved_by_node:
        return None
    tick = next_tick(stored, stored.updated_at)
    if stored.next_run_at == tick:
        return None
    return {"$set": {"nextRunAt": tick, "claims": 0}, "$unset": {"heartbeatInterval": ""}}


def _update(stored: AnyJob, wanted: AnyJob) -> Document:
    changes: Document = {
        "repeatInterval": wanted.repeat_interval,
        "timezone": wanted.timezone,
        "data": wanted.data,
        "updatedAt": wanted.updated_at,
    }
    if stored.status == JobStatus.PENDING and _moves(stored, wanted):
        tick = wanted.next_run_at
        # A one-off job that becomes a schedule still has its own run ahead.
        due_at = tick if stored.is_recurring else min(tick, stored.next_run_at)
        changes |= {"nextRunAt": due_at, "failCount": 0, "claims": 0}
    if not wanted.priority:
        return {"$set": changes, "$unset": {"priority": ""}}
    return {"$set": {**changes, "priority": wanted.priority}}


def _moves(stored: AnyJob, wanted: AnyJob) -> bool:
    return (stored.repeat_interval, stored.timezone or "UTC") != (
        wanted.repeat_interval,
        wanted.timezone or "UTC",
    )
