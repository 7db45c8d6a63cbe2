"""How the values of a job's fields are stored and read."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from bson import Code, ObjectId

from monque_core.durations import to_milliseconds
from monque_core.jobs.job import JobStatus

if TYPE_CHECKING:
    from collections.abc import Callable

_LARGEST_COUNT: Final = 2**53
_LONGEST_TIMEOUT_MS: Final = 1e15


@dataclass(frozen=True, slots=True)
class Kind:
    """How a stored value is read and written.

    Other programs write documents, too: a float for a whole number is accepted, and what no job
    can have is refused.
    """

    exact: type | None = None
    """Values of exactly this type are taken as they are."""
    read: Callable[[object], object] | None = None
    """Return the attribute for any other value, or raise `ValueError`; None accepts everything."""
    write: Callable[[Any], object] | None = None
    """Return the stored value of an attribute; None stores it as it is."""


def _instance_of(kind: type) -> Callable[[object], object]:
    def read(value: object) -> object:
        # To Python, Code is text; to MongoDB, it is not.
        if not isinstance(value, kind) or type(value) is Code:
            raise ValueError(kind.__name__)
        return value

    return read


def _read_id(value: object) -> object:
    if not isinstance(value, Hashable):
        raise ValueError("unhashable")  # noqa: TRY004  # what all readers raise
    return value


def _read_status(value: object) -> object:
    if value not in JobStatus.ALL:
        raise ValueError("unknown")
    return value


def _read_whole_number(value: object) -> int:
    if type(value) is int and 0 <= value <= _LARGEST_COUNT:
        return value
    if (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and 0 <= value <= _LARGEST_COUNT
        and value == int(value)
    ):
        return int(value)
    raise ValueError("not a whole number")


def _read_count(value: object) -> int:
    if type(value) is int and 0 <= value <= _LARGEST_COUNT:
        return value
    return _read_whole_number(value) if value else 0


def _read_milliseconds(value: object) -> timedelta:
    if (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and 0 < value < _LONGEST_TIMEOUT_MS
    ):
        return timedelta(milliseconds=value)
    raise ValueError("not a number of milliseconds")


ANYTHING: Final = Kind()
TEXT: Final = Kind(str, _instance_of(str))
DATE: Final = Kind(datetime, _instance_of(datetime))
TOKEN: Final = Kind(ObjectId, _instance_of(ObjectId))
DOCUMENT_ID: Final = Kind(ObjectId, _read_id)
STATUS: Final = Kind(read=_read_status)
WHOLE_NUMBER: Final = Kind(read=_read_whole_number)
COUNT: Final = Kind(read=_read_count)
MILLISECONDS: Final = Kind(read=_read_milliseconds, write=to_milliseconds)
