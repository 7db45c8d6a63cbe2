"""Which jobs a bulk action or a page is about."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

from monque_core.display import brief_repr, suggestion
from monque_core.durations import Duration, to_timedelta
from monque_core.errors import InvalidJobError
from monque_core.jobs.job import JobStatus, StatusName
from monque_core.jobs.rules import check_aware, check_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    Statuses: TypeAlias = StatusName | Sequence[StatusName]


@dataclass(frozen=True)
class JobSelector:
    """Jobs by name, status and age; what is None does not narrow the choice.

    `older_than` and `newer_than` tell when a job was created: a point in time, or an age in
    seconds or as a `timedelta`.
    """

    name: str | None = None
    status: Statuses | None = None
    older_than: datetime | Duration | None = None
    newer_than: datetime | Duration | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be meant, before MongoDB is touched."""
        if self.name is not None:
            check_name(self.name)
        check_statuses(self.status)
        for field in ("older_than", "newer_than"):
            _limit(field, getattr(self, field))

    @property
    def is_empty(self) -> bool:
        """Tell whether every job is chosen."""
        return self == JobSelector()

    @property
    def identity(self) -> str:
        """Give a text that equal selectors share, however they were written."""
        limits = [_limit("older_than", self.older_than), _limit("newer_than", self.newer_than)]
        return repr((self.name, self.statuses, *map(str, limits)))

    @property
    def statuses(self) -> tuple[StatusName, ...] | None:
        """Give the chosen statuses, None for all."""
        return check_statuses(self.status)

    def created_before(self, now: datetime) -> datetime | None:
        """Give the time before which the chosen jobs were created."""
        return _as_of(now, _limit("older_than", self.older_than))

    def created_after(self, now: datetime) -> datetime | None:
        """Give the time after which the chosen jobs were created."""
        return _as_of(now, _limit("newer_than", self.newer_than))


def check_selector(selector: object) -> JobSelector:
    """Return a selector; refuse what only looks like one."""
    if not isinstance(selector, JobSelector):
        raise TypeError(
            f"a JobSelector is expected, not {brief_repr(selector)}: JobSelector(name=…, status=…)"
        )
    return selector


def check_statuses(status: object) -> tuple[StatusName, ...] | None:
    """Return the statuses that are meant, None for all of them."""
    if status is None:
        return None
    given = [status] if isinstance(status, str) else status
    if not isinstance(given, (list, tuple, set, frozenset)):
        raise _no_status(status, f"is a {type(status).__name__}")
    if not given:
        raise _no_status(status, "names none: leave it out for all")
    for one in given:
        if one not in JobStatus.ALL:
            close = suggestion(one, JobStatus.ALL)
            raise _no_status(one, f"is none: did you mean {close!r}?" if close else "is none")
    return tuple(name for name in JobStatus.ALL if name in given)


def _no_status(value: object, problem: str) -> InvalidJobError:
    known = ", ".join(JobStatus.ALL)
    return InvalidJobError(
        "status", value, f"status={brief_repr(value)} {problem}; there are {known}"
    )


def _limit(field: str, value: object) -> datetime | timedelta | None:
    """Read a point in time, or an age."""
    if value is None:
        return None
    if isinstance(value, datetime):
        return check_aware(value, field=field)
    try:
        age = to_timedelta(value)
    except ValueError as error:
        raise InvalidJobError(
            field, value, f"{field}={brief_repr(value)} {error}: give an aware datetime or an age"
        ) from None
    if age < timedelta(0):
        raise InvalidJobError(field, value, f"{field}={brief_repr(value)} is a negative age")
    return age


def _as_of(now: datetime, limit: datetime | timedelta | None) -> datetime | None:
    return now - limit if isinstance(limit, timedelta) else limit
