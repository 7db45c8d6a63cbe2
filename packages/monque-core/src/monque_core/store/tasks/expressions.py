"""Aggregation expressions that hold whatever is stored: one bad value must not fail a batch."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from monque_core.store.driver import Document

REMOVE: Final = "$$REMOVE"


def literal(value: object) -> Document:
    """Keep a text that begins with a dollar sign from being read as a field."""
    return {"$literal": value}


def either(condition: object, then: object, otherwise: object) -> Document:
    """Choose by a condition."""
    return {"$cond": [condition, then, otherwise]}


def one_among(field: str, values: Sequence[str]) -> Document:
    """Tell whether a field has one of some values."""
    return {"$in": [field, literal(list(values))]}


def has_status(status: str) -> Document:
    """Tell whether the record has a status."""
    return {"$eq": ["$status", status]}


def is_date(field: str) -> Document:
    """Tell whether a field is a date."""
    return {"$eq": [{"$type": field}, "date"]}


def date_or(field: str, otherwise: object) -> Document:
    """Give a date, or something else where there is none."""
    return either(is_date(field), field, otherwise)


def number_or_zero(field: str) -> Document:
    """Give a number, zero where there is none."""
    return either({"$isNumber": field}, field, 0)


def array_or_empty(field: str) -> Document:
    """Give an array, an empty one where there is none."""
    return either({"$isArray": field}, field, [])


def milliseconds(duration: timedelta) -> int:
    """Give a duration as it is added to a date."""
    return duration // timedelta(milliseconds=1)


def by_task(values: Mapping[str, Any]) -> Any:
    """Choose what belongs to the record's task, of which one is given at least."""
    first, *others = values.values()
    if all(other == first for other in others):
        return first
    return {
        "$switch": {
            "branches": [
                {"case": {"$eq": ["$task", literal(name)]}, "then": value}
                for name, value in values.items()
            ],
            "default": first,
        }
    }


def first_of(*cases: tuple[object, object], otherwise: object) -> Document:
    """Choose by the first condition that holds."""
    return {
        "$switch": {
            "branches": [{"case": case, "then": value} for case, value in cases],
            "default": otherwise,
        }
    }
