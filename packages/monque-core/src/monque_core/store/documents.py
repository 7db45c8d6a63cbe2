"""The job document: camelCase in MongoDB, `Job` in Python."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import MISSING, fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeGuard

from bson import Code, ObjectId

from monque_core.durations import to_milliseconds
from monque_core.errors import InvalidJobError, MonqueError
from monque_core.jobs.cron import check_cron
from monque_core.jobs.job import AnyJob, Job, JobStatus
from monque_core.store.lenient_decoding import Undecodable, undecodable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from monque_core.store.driver import Document

_LARGEST_COUNT = 2**53

_OPTIONAL = {
    "fail_reason": "failReason",
    "locked_at": "lockedAt",
    "claimed_by": "claimedBy",
    "last_heartbeat": "lastHeartbeat",
    "heartbeat_interval": "heartbeatInterval",
    "repeat_interval": "repeatInterval",
    "timezone": "timezone",
    "unique_key": "uniqueKey",
    "claim_token": "claimToken",
    "claimed_at": "claimedAt",
    "max_retries": "maxRetries",
}
_ATTRIBUTES = {
    "_id": "id",
    "name": "name",
    "data": "data",
    "status": "status",
    "nextRunAt": "next_run_at",
    "failCount": "fail_count",
    "createdAt": "created_at",
    "updatedAt": "updated_at",
    "claims": "claims",
    "priority": "priority",
    **{field: attribute for attribute, field in _OPTIONAL.items()},
}
_COUNTS = ("fail_count", "claims", "priority")
_WITHOUT_DEFAULT = tuple(field.name for field in fields(Job) if field.default is MISSING)


def to_document(job: AnyJob) -> Document:
    """Write a job down; what is unset is absent, never null."""
    document: Document = {
        "_id": job.id,
        "name": job.name,
        "data": job.data,
        "status": job.status,
        "nextRunAt": job.next_run_at,
        "failCount": job.fail_count,
        "createdAt": job.created_at,
        "updatedAt": job.updated_at,
    }
    for attribute, field in _OPTIONAL.items():
        value = getattr(job, attribute)
        if value is not None:
            document[field] = value
    if job.claims:
        document["claims"] = job.claims
    if job.priority:
        document["priority"] = job.priority
    if job.timeout is not None:
        document["timeoutMs"] = to_milliseconds(job.timeout)
    return document


def to_job(document: Mapping[str, Any], *, deduplicated: bool = False) -> AnyJob:
    """Read a job; a stored null is unset. Raise `InvalidJobError` for what no job can be."""
    if type(document) is Undecodable:
        raise undecodable(document["data"], document["_id"])
    job = _read(document, deduplicated=deduplicated)
    if not _is_sound(job):
        _mend(job)
    return job


def _read(document: Mapping[str, Any], *, deduplicated: bool) -> AnyJob:
    # Not by its __init__, which takes several times as long: what is unset, the class has. What
    # is read here is checked afterwards.
    job: AnyJob = object.__new__(Job)
    read = job.__dict__
    for field, value in document.items():
        if value is not None and field in _ATTRIBUTES:
            read[_ATTRIBUTES[field]] = value
    for attribute in _WITHOUT_DEFAULT:
        if attribute not in read:
            read[attribute] = None
    for count in _COUNTS:
        # Whatever else stands for nothing.
        if count in read and not read[count]:
            del read[count]
    if document.get("timeoutMs") is not None:
        read["timeout"] = _milliseconds(document["timeoutMs"], document["_id"])
    if deduplicated:
        read["deduplicated"] = True
    return job


def _milliseconds(value: object, job_id: object) -> timedelta:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e15:
        return timedelta(milliseconds=value)
    raise unreadable("timeoutMs", value, job_id)


_REQUIRED: dict[str, type] = {
    "name": str,
    "next_run_at": datetime,
    "created_at": datetime,
    "updated_at": datetime,
    "fail_count": int,
    "claims": int,
    "priority": int,
}
_IF_SET: dict[str, type] = {
    "max_retries": int,
    "repeat_interval": str,
    "timezone": str,
    "claim_token": ObjectId,
}


def _is_sound(job: AnyJob) -> bool:
    return (
        type(job.id) is ObjectId
        and type(job.name) is str
        and type(job.next_run_at) is datetime
        and type(job.created_at) is datetime
        and type(job.updated_at) is datetime
        and type(job.fail_count) is int
        and type(job.claims) is int
        and type(job.priority) is int
        and 0 <= job.fail_count <= _LARGEST_COUNT
        and 0 <= job.claims <= _LARGEST_COUNT
        and 0 <= job.priority <= _LARGEST_COUNT
        and (job.claim_token is None or type(job.claim_token) is ObjectId)
        and job.max_retries is None
        and job.repeat_interval is None
        and job.timezone is None
        and job.status in JobStatus.ALL
    )


def _mend(job: AnyJob) -> None:
    """Accept what other programs write a little differently; refuse what no job can be."""
    if not isinstance(job.id, Hashable):
        raise unreadable("_id", job.id, job.id)
    if isinstance(job.id, ObjectId):
        for attribute in ("created_at", "updated_at"):
            if getattr(job, attribute) is None:
                setattr(job, attribute, job.id.generation_time)
    for attribute, kind in (_REQUIRED | _IF_SET).items():
        value = getattr(job, attribute)
        if kind is int and _is_count(value):
            setattr(job, attribute, int(value))
        # Code is text to Python, and not to MongoDB.
        elif (kind is int or not isinstance(value, kind) or type(value) is Code) and not (
            value is None and attribute in _IF_SET
        ):
            raise unreadable(attribute, value, job.id)
    if job.status not in JobStatus.ALL:
        raise unreadable("status", job.status, job.id)


def _is_count(value: object) -> TypeGuard[float]:
    """Tell whether a stored value is a whole number that can be counted on with."""
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and 0 <= value <= _LARGEST_COUNT
        and value == int(value)
    )


def unreadable(field: str, value: object, job_id: object) -> InvalidJobError:
    """Say which field keeps which document from being a job."""
    return InvalidJobError(
        field,
        value,
        f"the stored job cannot be read: {field} is {_described(value)}, "
        f"in the document {_brief(job_id)}",
    )


def schedule_problem(job_id: object, cron: object, timezone: object) -> InvalidJobError | None:
    """Return why the next run of a stored schedule is not known here, None if it is.

    What is no text at all is no problem of the schedule: no job has that, and `to_job` refuses it.
    """
    if type(cron) is not str or (timezone is not None and type(timezone) is not str):
        return None
    try:
        check_cron(cron, timezone or "UTC")
    except MonqueError as error:
        problem = InvalidJobError(
            "repeatInterval",
            cron,
            f"the stored schedule {_brief(job_id)} cannot be read here and is left to workers that "
            f"can: {error}",
        )
        problem.__cause__ = error
        return problem
    return None


def _described(value: object) -> str:
    return "missing" if value is None else f"{_brief(value)} ({type(value).__name__})"


def _brief(value: object) -> str:
    return repr(str(value)[:50])
