"""The jobs that a bulk action or a page is about."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

from monque_core.display import brief_repr
from monque_core.durations import to_timedelta
from monque_core.errors import InvalidJobError
from monque_core.jobs.job import JobStatus, StatusName
from monque_core.validation import (
    check_aware,
    check_choice,
    check_name,
    refusal,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monque_core.durations import Duration

    Statuses: TypeAlias = StatusName | Sequence[StatusName]


@dataclass(frozen=True)
class JobSelector:
    """Jobs by name, status and age; what is None does not narrow the choice.

    `older_than` and `newer_than` limit when a job was created: a point in time, or an age in
    seconds or as a `timedelta`.
    """

    name: str | None = None
    status: Statuses | None = None
    older_than: datetime | Duration | None = None
    newer_than: datetime | Duration | None = None

    def __post_init__(self) -> None:
        """Raise `InvalidJobError` for a criterion that no job can meet."""
        if self.name is not None:
            check_name(self.name)
        check_statuses(self.status)
        for field in ("older_than", "newer_than"):
            _limit(field, getattr(self, field))

    @property
    def is_empty(self) -> bool:
        """Whether every job is chosen."""
        return self == JobSelector()

    @property
    def identity(self) -> str:
        """Return a text that equal selectors share, however they were written."""
        limits = [_limit("older_than", self.older_than), _limit("newer_than", self.newer_than)]
        return repr((self.name, self.statuses, *map(str, limits)))

    @property
    def statuses(self) -> tuple[StatusName, ...] | None:
        """Return the chosen statuses, None for all."""
        return check_statuses(self.status)

    def created_before(self, now: datetime) -> datetime | None:
        """Return the time before which the chosen jobs were created."""
        return _as_of(now, _limit("older_than", self.older_than))

    def created_after(self, now: datetime) -> datetime | None:
        """Return the time after which the chosen jobs were created."""
        return _as_of(now, _limit("newer_than", self.newer_than))


def check_selector(selector: object) -> JobSelector:
    """Return a selector; raise `TypeError` for anything else."""
    if not isinstance(selector, JobSelector):
        raise TypeError(
            f"a JobSelector is expected, not {brief_repr(selector)}: JobSelector(name=…, status=…)"
        )
    return selector


def check_statuses(status: object) -> tuple[StatusName, ...] | None:
    """Return the chosen statuses, None for all of them."""
    if status is None:
        return None
    given = [status] if isinstance(status, str) else status
    if not isinstance(given, (list, tuple, set, frozenset)) or not given:
        expected = f"one or some of {', '.join(map(repr, JobStatus.ALL))}, or None for all"
        raise refusal("status", status, expected, error=InvalidJobError)
    chosen = {check_choice("status", one, JobStatus.ALL, error=InvalidJobError) for one in given}
    return tuple(name for name in JobStatus.ALL if name in chosen)


def _limit(field: str, value: object) -> datetime | timedelta | None:
    """Return a point in time or an age, checked."""
    if value is None:
        return None
    if isinstance(value, datetime):
        return check_aware(value, field=field)
    expected = "an aware datetime, or an age that is not negative, in seconds or as a timedelta"
    try:
        age = to_timedelta(value)
    except ValueError as problem:
        raise refusal(field, value, f"{expected}; this {problem}", error=InvalidJobError) from None
    if age < timedelta(0):
        raise refusal(field, value, expected, error=InvalidJobError)
    return age


def _as_of(now: datetime, limit: datetime | timedelta | None) -> datetime | None:
    return now - limit if isinstance(limit, timedelta) else limit
