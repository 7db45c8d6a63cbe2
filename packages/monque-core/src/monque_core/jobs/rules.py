"""What a job may look like: checked before MongoDB is touched."""

from __future__ import annotations

import unicodedata
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from bson import ObjectId

from monque_core.clock import truncate
from monque_core.display import brief_repr
from monque_core.durations import to_timedelta
from monque_core.errors import InvalidJobError
from monque_core.texts import is_text

if TYPE_CHECKING:
    from monque_core.durations import Duration

LONGEST_NAME = 255
LONGEST_KEY = 1024
_BYTE_ORDER_MARK = "\ufeff"
"""Whitespace to Node."""
_LARGEST_INT = 2**31 - 1


def check_name(name: object) -> str:
    """Return a job name that is fit to be stored."""
    return _check_text(name, field="name", longest=LONGEST_NAME, spaces=False)


def check_unique_key(key: object) -> str:
    """Return a unique key that is fit to be stored."""
    return _check_text(key, field="unique_key", longest=LONGEST_KEY, spaces=True)


def check_priority(priority: object) -> int:
    """Return a priority; 0 is the lowest and the default."""
    return _check_int(priority, field="priority", least=0)


def check_max_retries(max_retries: object) -> int | None:
    """Return how many runs in all the job may have, None leaving it to the instance."""
    if max_retries is None:
        return None
    meaning = ", the number of runs in all,"
    return _check_int(max_retries, field="max_retries", least=1, meaning=meaning)


def check_timeout(timeout: object) -> timedelta | None:
    """Return the time limit of one run, None for no limit of its own."""
    if timeout is None:
        return None
    duration = _check_duration(timeout, field="timeout")
    if duration < timedelta(milliseconds=1):
        raise InvalidJobError(
            "timeout",
            timeout,
            f"timeout={brief_repr(timeout)} is not allowed: it must be at least 1 ms",
        )
    return duration


def check_id(job_id: object) -> ObjectId:
    """Return a job's id from an `ObjectId` or its text."""
    if isinstance(job_id, ObjectId):
        return job_id
    if is_text(job_id) and ObjectId.is_valid(job_id):
        return ObjectId(job_id)
    raise InvalidJobError(
        "id",
        job_id,
        f"{brief_repr(job_id)} is not the id of a job: "
        "an ObjectId or its 24 hex digits are expected",
    )


def check_whole_number(value: object, *, field: str, least: int) -> int:
    """Return a whole number that is not too small."""
    return _check_int(value, field=field, least=least)


def check_concurrency(concurrency: object) -> int:
    """Return how many runs of one worker may overlap."""
    return _check_int(concurrency, field="concurrency", least=1)


def check_aware(instant: object, *, field: str) -> datetime:
    """Return the instant in UTC milliseconds; refuse a naive one."""
    if not isinstance(instant, datetime):
        raise InvalidJobError(
            field,
            instant,
            f"{field}={brief_repr(instant)} is not a datetime: give a timezone-aware one",
        )
    if instant.tzinfo is None or instant.utcoffset() is None:
        raise InvalidJobError(
            field,
            instant,
            f"{field}={brief_repr(instant)} has no time zone: make it aware, for example "
            "datetime.now(timezone.utc) or value.replace(tzinfo=ZoneInfo('Europe/Berlin'))",
        )
    try:
        return truncate(instant)
    except OverflowError:
        raise InvalidJobError(
            field, instant, f"{field}={brief_repr(instant)} is out of range"
        ) from None


def resolve_run_at(now: datetime, run_at: datetime | None, delay: Duration | None) -> datetime:
    """Give the time a new job becomes due."""
    if run_at is not None and delay is not None:
        raise InvalidJobError(
            "run_at", run_at, "give run_at (a point in time) or delay (a duration), not both"
        )
    if run_at is not None:
        return check_aware(run_at, field="run_at")
    if delay is None:
        return now
    duration = _check_duration(delay, field="delay")
    if duration < timedelta(0):
        raise InvalidJobError(
            "delay", delay, f"delay={brief_repr(delay)} is negative: leave it out to run at once"
        )
    try:
        return truncate(now + duration)
    except OverflowError:
        raise InvalidJobError("delay", delay, f"delay={brief_repr(delay)} is too long") from None


def _check_text(value: object, *, field: str, longest: int, spaces: bool) -> str:
    def refuse(problem: str) -> InvalidJobError:
        forbidden = "control characters" if spaces else "whitespace or control characters"
        return InvalidJobError(
            field,
            value,
            f"{field}={brief_repr(value)} {problem}: "
            f"a text of 1 to {longest} characters without {forbidden} is expected",
        )

    if not is_text(value):
        raise refuse(f"is a {type(value).__name__}")
    if not value.replace(_BYTE_ORDER_MARK, " ").strip():
        raise refuse("is blank")
    if len(value) > longest:
        raise refuse(f"has {len(value)} characters")
    # Node counts a character beyond U+FFFF twice.
    if 2 * len(value) > longest and (units := _utf16_units(value)) > longest:
        raise refuse(f"takes {units} units of UTF-16, by which Node counts")
    if value.isprintable() and (spaces or " " not in value):
        return value
    for character in value:
        category = unicodedata.category(character)
        if category == "Cs":
            raise refuse("holds half of a surrogate pair, which UTF-8 cannot store")
        if not spaces and (character.isspace() or character == _BYTE_ORDER_MARK):
            raise refuse("holds whitespace")
        if category == "Cc":
            raise refuse("holds a control character")
    return value


def _utf16_units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _check_int(value: object, *, field: str, least: int, meaning: str = "") -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _LARGEST_INT:
        raise InvalidJobError(
            field,
            value,
            f"{field}={brief_repr(value)} is not allowed: "
            f"a whole number of at least {least}{meaning} is expected",
        )
    return value


def _check_duration(value: object, *, field: str) -> timedelta:
    try:
        return to_timedelta(value)
    except ValueError as error:
        raise InvalidJobError(
            field,
            value,
            f"{field}={brief_repr(value)} {error}: give seconds or a timedelta",
        ) from None
