"""One field of a cron expression: the values it allows, and its text for every parser.

A field is a list of numbers, names (`JAN`, `mon`), `*` or `?`, ranges and steps. `5/15` in the
minutes is `5-59/15`, and Sunday is 0 or 7. The day field knows `L`, the last day of the month; the
weekday field knows `5L`, the last Friday, and `5#2`, the second Friday.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from monque_core.errors import InvalidCronError

WILDCARDS: Final = ("*", "?")


class FieldKind(IntEnum):
    """The fields, numbered as croniter numbers them."""

    MINUTE = 0
    HOUR = 1
    DAY = 2
    MONTH = 3
    WEEKDAY = 4
    SECOND = 5


_ALLOWED: Final = {
    FieldKind.SECOND: "0 to 59",
    FieldKind.MINUTE: "0 to 59",
    FieldKind.HOUR: "0 to 23",
    FieldKind.DAY: "1 to 31",
    FieldKind.MONTH: "1 to 12 or JAN to DEC",
    FieldKind.WEEKDAY: "0 to 7 or SUN to SAT",
}
_VALUE: Final = r"[0-9]+|[A-Za-z]{3}"
_ITEM: Final = re.compile(
    rf"(?:[*?]|(?P<low>{_VALUE})(?:-(?P<high>{_VALUE}))?)(?:/(?P<step>[0-9]+))?"
)
_LAST_WEEKDAY: Final = re.compile(rf"(?P<weekday>{_VALUE})L")
_NTH_WEEKDAY: Final = re.compile(rf"(?P<weekday>[*?]|{_VALUE})#(?P<nth>[1-5])")


@dataclass(frozen=True, slots=True)
class CronField:
    """A parsed field."""

    text: str
    """The field without duplicate values, which Node's parser refuses."""
    values: frozenset[int]
    last_day: bool = False
    """Whether the last day of a month matches as well."""
    last_weekdays: frozenset[int] = frozenset()
    """Weekdays whose last one in a month matches as well."""
    nth: int | None = None
    """Which one in a month the weekdays are, None for every one."""

    @property
    def is_wildcard(self) -> bool:
        """Whether the field restricts nothing."""
        return self.text in WILDCARDS


def parse_field(cron: str, kind: FieldKind, text: str) -> CronField:
    """Return a parsed field; raise `InvalidCronError` if it cannot be read."""
    if kind is FieldKind.WEEKDAY and (match := _NTH_WEEKDAY.fullmatch(text)):
        weekdays = _expand_item(cron, kind, match["weekday"])
        return CronField(text, frozenset(weekdays), nth=int(match["nth"]))
    values: set[int] = set()
    last_weekdays: set[int] = set()
    last_day = False
    texts: list[str] = []
    for item in text.split(","):
        if kind is FieldKind.DAY and item == "L":
            texts += [] if last_day else [item]
            last_day = True
        elif kind is FieldKind.WEEKDAY and (match := _LAST_WEEKDAY.fullmatch(item)):
            weekday = _read_value(cron, kind, match["weekday"]) % 7
            texts += [] if weekday in last_weekdays else [item]
            last_weekdays.add(weekday)
        else:
            found = _expand_item(cron, kind, item)
            is_plain = found.isdisjoint(values) and not _ends_with_sunday_as_zero(kind, item)
            texts += [item] if is_plain else _spelled_out(found - values)
            values |= found
    return CronField(",".join(texts), frozenset(values), last_day, frozenset(last_weekdays))


def _expand_item(cron: str, kind: FieldKind, item: str) -> set[int]:
    """Return the values of one element of a field's list.

    Croniter is not asked for ranges: it reads one of a single value (`9-9`, `23/2`) as the whole
    field.
    """
    name = kind.name.lower()
    match = _ITEM.fullmatch(item)
    if match is None:
        raise InvalidCronError(cron, _explain_item(kind, item))
    low, high, step = match.group("low", "high", "step")
    if step is not None and int(step) == 0:
        raise InvalidCronError(cron, f"{item!r} in the {name} field has a step of zero")
    first, last = _limits(kind)
    if low is not None:
        first = _read_value(cron, kind, low)
        last = last if step is not None else first
    if high is not None:
        last = _read_value(cron, kind, high)
    if _ends_with_sunday_as_zero(kind, item) and first > 0 and last == 0:
        last = 7
    if first > last:
        raise InvalidCronError(cron, f"the range {item!r} in the {name} field runs backwards")
    values = range(first, last + 1, int(step or 1))
    return {value % 7 for value in values} if kind is FieldKind.WEEKDAY else set(values)


def _ends_with_sunday_as_zero(kind: FieldKind, item: str) -> bool:
    """Whether a range ends with Sunday as 0 or SUN, which Node reads as a backward range."""
    end = item.partition("/")[0].partition("-")[2].lower()
    return kind is FieldKind.WEEKDAY and (end == "sun" or (end != "" and not end.strip("0")))


def _explain_item(kind: FieldKind, item: str) -> str:
    problem = f"{item!r} in the {kind.name.lower()} field"
    if "H" in item:
        return f"{problem} stands for a random value that no two programs agree on: write a number"
    return f"{problem} is not a number, name, range, step or '*'"


def _spelled_out(values: set[int]) -> list[str]:
    """Return values as text, consecutive ones as ranges."""
    starts = sorted(value for value in values if value - 1 not in values)
    ends = sorted(value for value in values if value + 1 not in values)
    return [
        str(first) if first == last else f"{first}-{last}"
        for first, last in zip(starts, ends, strict=True)
    ]


def _limits(kind: FieldKind) -> tuple[int, int]:
    """Return the lowest and the highest value of a field."""
    from croniter import croniter  # noqa: PLC0415  # slow to import, and only schedules need it

    return (0, 7) if kind is FieldKind.WEEKDAY else croniter.RANGES[kind]


def _read_value(cron: str, kind: FieldKind, text: str) -> int:
    from croniter import CroniterError, croniter  # noqa: PLC0415  # as above

    fields = ["*"] * len(FieldKind)
    fields[kind] = text
    try:
        (value,) = croniter.expand(" ".join(fields))[0][kind]
    except CroniterError as error:
        name, allowed = kind.name.lower(), _ALLOWED[kind]
        raise InvalidCronError(
            cron, f"{text!r} in the {name} field is not within {allowed}"
        ) from error
    # Sunday as 7 would come back as 0, which cannot end a range.
    return int(text) if text.isdigit() else int(value)
