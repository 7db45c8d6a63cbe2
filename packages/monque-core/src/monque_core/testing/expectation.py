"""The job that a test expects, and how far another is from it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from unittest.mock import ANY

from monque_core.clock import truncate
from monque_core.jobs.job import JobStatus
from monque_core.jobs.selector import check_statuses
from monque_core.testing.wording import brief, either
from monque_core.validation import check_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from monque_core.jobs.job import AnyJob, StatusName
    from monque_core.jobs.selector import Statuses

_ANOTHER_NAME = 10


@dataclass(frozen=True)
class Expectation:
    """A job by its name, and by its data, unique key and status where these are not `ANY`."""

    name: str
    data: object
    unique_key: str | None
    status: Statuses | None

    def __post_init__(self) -> None:
        """Refuse a name or status that no job can have."""
        check_name(self.name)
        check_statuses(self.status)
        object.__setattr__(self, "data", _as_stored(self.data))

    def __str__(self) -> str:
        criteria = [
            f"{field}={brief(value)}"
            for field, value in (("data", self.data), ("unique_key", self.unique_key))
            if value is not ANY
        ]
        described = f" with {' and '.join(criteria)}" if criteria else ""
        return f"{self.name!r}{described}"

    @property
    def _statuses(self) -> tuple[StatusName, ...]:
        return check_statuses(self.status) or JobStatus.ALL

    @property
    def state(self) -> str:
        """Give the expected statuses in words."""
        return "in any status" if self.status is None else either(self._statuses)

    def is_met_by(self, job: AnyJob) -> bool:
        """Tell whether this is the job."""
        return not any(True for _ in self.misses(job))

    def misses(self, job: AnyJob) -> Iterator[str]:
        """Tell what about a job is not as expected."""
        if job.name != self.name:
            yield "another name"
        if job.status not in self._statuses:
            yield f"it is {job.status}"
        # The expected value stands left, since `ANY` and `pytest.approx` do the comparing.
        if not self.unique_key == job.unique_key:  # noqa: SIM201
            yield f"unique_key is {brief(job.unique_key)}, not {brief(self.unique_key)}"
        yield from differences("data", self.data, job.data)

    def distance(self, job: AnyJob) -> float:
        """Tell how far a job is from the expected one: the name counts most."""
        distance = 0.0
        if job.name != self.name:
            likeness = difflib.SequenceMatcher(None, self.name, job.name).ratio()
            distance += _ANOTHER_NAME * (2 - likeness)
        distance += job.status not in self._statuses
        distance += not self.unique_key == job.unique_key  # noqa: SIM201  # as above
        return distance + 2 * _unlikeness(self.data, job.data)


def differences(path: str, expected: object, found: object) -> Iterator[str]:
    """Tell where a stored value differs from the expected one."""
    if expected == found:
        return
    if not (isinstance(expected, Mapping) and isinstance(found, Mapping)):
        yield f"{path} is {brief(found)}, not {brief(expected)}"
        return
    for key, value in expected.items():
        if key in found:
            yield from differences(f"{path}[{key!r}]", value, found[key])
        else:
            yield f"{path}[{key!r}] is missing"
    for key in found:
        if key not in expected:
            yield f"{path}[{key!r}] was not expected"


def _unlikeness(expected: object, found: object) -> float:
    """Give 0 for equal values, 1 for such that have nothing in common."""
    if expected == found:
        return 0
    if not (isinstance(expected, Mapping) and isinstance(found, Mapping)):
        return 1
    keys = expected.keys() | found.keys()
    shared = sum(key in found and bool(value == found[key]) for key, value in expected.items())
    return 1 - shared / (len(keys) + 1)


def _as_stored(value: object) -> object:
    """Give a value as it is read back from MongoDB."""
    if isinstance(value, Mapping):
        return {key: _as_stored(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_stored(item) for item in value]
    if isinstance(value, datetime):
        return truncate(value if value.tzinfo else value.replace(tzinfo=UTC))
    return value
