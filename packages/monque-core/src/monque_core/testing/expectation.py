"""The job that a test expects, compared with stored jobs."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from unittest.mock import ANY

from monque_core.clock import truncate
from monque_core.errors import InvalidJobError
from monque_core.jobs.job import JobStatus
from monque_core.jobs.selector import check_statuses
from monque_core.testing.messages import either, format_value, unmet_expectation
from monque_core.validation import check_name, check_whole_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from monque_core.jobs.job import AnyJob, StatusName
    from monque_core.jobs.selector import Statuses

_NAME_WEIGHT = 10


@dataclass(frozen=True)
class Expectation:
    """The name of the expected job, and its data, unique key and status unless `ANY`."""

    name: str
    data: object
    unique_key: str | None
    status: Statuses | None

    def __post_init__(self) -> None:
        """Check the name and the status."""
        check_name(self.name)
        check_statuses(self.status)
        object.__setattr__(self, "data", _as_stored(self.data))

    def __str__(self) -> str:
        criteria = [
            f"{field}={format_value(value)}"
            for field, value in (("data", self.data), ("unique_key", self.unique_key))
            if value is not ANY
        ]
        described = f" with {' and '.join(criteria)}" if criteria else ""
        return f"{self.name!r}{described}"

    @property
    def _statuses(self) -> tuple[StatusName, ...]:
        return check_statuses(self.status) or JobStatus.ALL

    def check(self, stored: Sequence[AnyJob], count: int | None) -> list[AnyJob]:
        """Return the matching jobs; raise `AssertionError` if their number is wrong.

        A count of None means one or more.
        """
        __tracebackhide__ = True
        if count is not None:
            check_whole_number("count", count, least=0, error=InvalidJobError)
        found = [job for job in stored if self.matches(job)]
        if found if count is None else len(found) == count:
            return found
        raise AssertionError(unmet_expectation(self, stored, len(found), count))

    @property
    def state(self) -> str:
        """Return the expected statuses as text."""
        return "in any status" if self.status is None else either(self._statuses)

    def matches(self, job: AnyJob) -> bool:
        """Whether a job meets the expectation."""
        return not any(True for _ in self.differences(job))

    def differences(self, job: AnyJob) -> Iterator[str]:
        """Yield how a job differs from the expected one."""
        if job.name != self.name:
            yield "the name"
        if job.status not in self._statuses:
            yield f"status is {job.status}"
        # The expected value is on the left, so that `ANY` and `pytest.approx` compare.
        if not self.unique_key == job.unique_key:  # noqa: SIM201
            yield (
                f"unique_key is {format_value(job.unique_key)}, not {format_value(self.unique_key)}"
            )
        yield from _data_differences("data", self.data, job.data)

    def distance(self, job: AnyJob) -> float:
        """Return how different a job is from the expected one; the name counts most."""
        distance = 0.0
        if job.name != self.name:
            similarity = difflib.SequenceMatcher(None, self.name, job.name).ratio()
            distance += _NAME_WEIGHT * (2 - similarity)
        distance += job.status not in self._statuses
        distance += not self.unique_key == job.unique_key  # noqa: SIM201  # as above
        return distance + 2 * _data_distance(self.data, job.data)


def _data_differences(path: str, expected: object, found: object) -> Iterator[str]:
    """Yield where a stored value differs from the expected one."""
    if expected == found:
        return
    if not (isinstance(expected, Mapping) and isinstance(found, Mapping)):
        yield f"{path} is {format_value(found)}, not {format_value(expected)}"
        return
    for key, value in expected.items():
        if key in found:
            yield from _data_differences(f"{path}[{key!r}]", value, found[key])
        else:
            yield f"{path}[{key!r}] is missing"
    for key in found:
        if key not in expected:
            yield f"{path}[{key!r}] was not expected"


def _data_distance(expected: object, found: object) -> float:
    """Return 0 for equal values, up to 1 for values without common items."""
    if expected == found:
        return 0
    if not (isinstance(expected, Mapping) and isinstance(found, Mapping)):
        return 1
    keys = expected.keys() | found.keys()
    shared = sum(key in found and bool(value == found[key]) for key, value in expected.items())
    return 1 - shared / (len(keys) + 1)


def _as_stored(value: object) -> object:
    """Return a value as MongoDB stores and returns it."""
    if isinstance(value, Mapping):
        return {key: _as_stored(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_stored(item) for item in value]
    if isinstance(value, datetime):
        return truncate(value if value.tzinfo else value.replace(tzinfo=UTC))
    return value
