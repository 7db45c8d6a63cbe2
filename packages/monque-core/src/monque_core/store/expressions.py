"""Filters and aggregation expressions that tolerate any stored value.

One bad value, stored by another program, must not fail the update of a whole batch.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from monque_core.store.driver import Document

REMOVE: Final = "$$REMOVE"
EARLIEST: Final = datetime(1, 1, 2, tzinfo=UTC)
"""A bound for "is a date" that has index bounds, which `$type` under `$not` does not have."""


def one_of(values: Sequence[object]) -> Any:
    """Match any of some values, with the simplest possible condition."""
    return values[0] if len(values) == 1 else {"$in": list(values)}


def literal(value: object) -> Document:
    """Keep text that begins with a dollar sign from being read as a field."""
    return {"$literal": value}


def either(condition: object, then: object, otherwise: object) -> Document:
    """Choose by a condition."""
    return {"$cond": [condition, then, otherwise]}


def one_among(field: str, values: Sequence[str]) -> Document:
    """Whether a field has one of some values."""
    return {"$in": [field, literal(list(values))]}


def has_status(status: str) -> Document:
    """Whether the document has a status."""
    return {"$eq": ["$status", status]}


def is_date(field: str) -> Document:
    """Whether a field is a date."""
    return {"$eq": [{"$type": field}, "date"]}


def date_or(field: str, otherwise: object) -> Document:
    """Return a field if it is a date, else something else."""
    return either(is_date(field), field, otherwise)


def number_or_zero(field: str) -> Document:
    """Return a field if it is a number, else zero."""
    return either({"$isNumber": field}, field, 0)


def array_or_empty(field: str) -> Document:
    """Return a field if it is an array, else an empty array."""
    return either({"$isArray": field}, field, [])


def milliseconds(duration: timedelta) -> int:
    """Return a duration as it is added to a date."""
    return duration // timedelta(milliseconds=1)


def by_task(values: Mapping[str, Any]) -> Any:
    """Return the value of the record's task; `values` has at least one task."""
    first, *others = values.values()
    if all(other == first for other in others):
        return first
    cases = [({"$eq": ["$task", literal(name)]}, value) for name, value in values.items()]
    return first_of(*cases, otherwise=first)


def first_of(*cases: tuple[object, object], otherwise: object) -> Document:
    """Choose by the first condition that holds."""
    return {
        "$switch": {
            "branches": [{"case": case, "then": value} for case, value in cases],
            "default": otherwise,
        }
    }
