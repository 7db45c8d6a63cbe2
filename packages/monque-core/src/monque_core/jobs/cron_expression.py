"""What a cron expression says: the wall-clock minutes it matches, without any time zone.

Accepted is standard cron: five fields of numbers, names (`JAN`, `mon`), `*`, lists, ranges and
steps, or one of five shorthands. `5/15` is `5-59/15`; weekday 7 is Sunday. When neither day nor
weekday is `*`, a day that matches either will do. Whatever else croniter knows is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from croniter import CroniterError, croniter

from monque_core.errors import InvalidCronError
from monque_core.texts import is_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date

_SHORTHANDS: Final = {
    "@yearly": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_FIELDS: Final = (
    ("minute", "0 to 59"),
    ("hour", "0 to 23"),
    ("day", "1 to 31"),
    ("month", "1 to 12 or JAN to DEC"),
    ("weekday", "0 to 7 or SUN to SAT"),
)
_WEEKDAY: Final = 4
_VALUE: Final = r"[0-9]+|[A-Za-z]{3}"
_ITEM: Final = re.compile(
    rf"(?:\*|(?P<low>{_VALUE})(?:-(?P<high>{_VALUE}))?)(?:/(?P<step>[0-9]+))?"
)
_LONGEST_TEXT: Final = 500
_LONGEST_DAY: Final = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}


@dataclass(frozen=True, slots=True)
class CronExpression:
    """The values each field allows."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool
    """Whether it is enough that one of day and weekday matches."""
    starred_hour: bool
    """Whether the hour field starts with `*`."""

    def matches(self, after: datetime) -> Iterator[datetime]:
        """Yield the matching wall times later than `after`, in order and without end."""
        today = after.date()
        for day in self._matching_days(today):
            for hour in self.hours:
                if day == today and hour < after.hour:
                    continue
                for minute in self.minutes:
                    wall = datetime.combine(day, time(hour, minute))
                    if wall > after:
                        yield wall

    def _matching_days(self, day: date) -> Iterator[date]:
        while True:
            if day.month not in self.months:
                day = (day.replace(day=28) + timedelta(days=4)).replace(day=1)
                continue
            by_day = day.day in self.days
            by_weekday = day.isoweekday() % 7 in self.weekdays
            if (by_day or by_weekday) if self.either_day else (by_day and by_weekday):
                yield day
            day += timedelta(days=1)


def parse_cron(cron: object) -> CronExpression:
    """Read an expression that fires now and then; raise `InvalidCronError` for any other."""
    if not is_text(cron):
        raise InvalidCronError(cron, f"it is of type {type(cron).__name__}, not str")
    if len(cron) > _LONGEST_TEXT:
        raise InvalidCronError(
            f"{cron[:40]}…", f"it has {len(cron)} characters, more than {_LONGEST_TEXT}"
        )
    return _parse(cron)


@lru_cache(maxsize=1024)
def _parse(cron: str) -> CronExpression:
    texts = cron.split()
    if texts and texts[0].startswith("@"):
        texts = _expand_shorthand(cron).split()
    if len(texts) != len(_FIELDS):
        raise InvalidCronError(cron, f"it has {len(texts)} field{'s' * (len(texts) != 1)}")
    minutes, hours, days, months, weekdays = (
        {value for item in text.split(",") for value in _expand_item(cron, index, item)}
        for index, text in enumerate(texts)
    )
    _, _, day_text, month_text, weekday_text = texts
    if weekday_text == "*" and all(min(days) > _LONGEST_DAY.get(month, 31) for month in months):
        raise InvalidCronError(
            cron, f"it never fires, as no month of {month_text!r} has a day {min(days)}"
        )
    return CronExpression(
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=frozenset(days),
        months=frozenset(months),
        weekdays=frozenset(weekdays),
        either_day="*" not in (day_text, weekday_text),
        starred_hour=texts[1].startswith("*"),
    )


def _expand_shorthand(cron: str) -> str:
    shorthand = cron.strip()
    if shorthand not in _SHORTHANDS:
        close = get_close_matches(shorthand.lower(), _SHORTHANDS, n=1)
        hint = f", did you mean {close[0]!r}?" if close else ""
        raise InvalidCronError(cron, f"{shorthand!r} is not a known shorthand{hint}")
    return _SHORTHANDS[shorthand]


def _expand_item(cron: str, index: int, item: str) -> set[int]:
    """Expand one element of a field's list.

    Ranges are not left to croniter, which takes one of a single value (`9-9`, `23/2`) for the
    whole field.
    """
    name, _ = _FIELDS[index]
    match = _ITEM.fullmatch(item)
    if match is None:
        raise InvalidCronError(
            cron, f"{item!r} in the {name} field is not a number, name, range, step or '*'"
        )
    low, high, step = match.group("low", "high", "step")
    if step is not None and int(step) == 0:
        raise InvalidCronError(cron, f"{item!r} in the {name} field has a step of zero")
    first, last = croniter.RANGES[index]
    if low is not None:
        first = _read_value(cron, index, low)
        last = max(first, last) if step is not None else first
    if high is not None:
        last = _read_value(cron, index, high)
    if index == _WEEKDAY and first > 0 and last == 0:
        last = 7
    if first > last:
        raise InvalidCronError(cron, f"the range {item!r} in the {name} field runs backwards")
    values = range(first, last + 1, int(step or 1))
    return {value % 7 for value in values} if index == _WEEKDAY else set(values)


def _read_value(cron: str, index: int, text: str) -> int:
    fields = ["*"] * len(_FIELDS)
    fields[index] = text
    try:
        (value,) = croniter.expand(" ".join(fields))[0][index]
    except CroniterError as error:
        name, allowed = _FIELDS[index]
        raise InvalidCronError(
            cron, f"{text!r} in the {name} field is not within {allowed}"
        ) from error
    # Sunday as 7 would come back as 0, which cannot end a range.
    return int(text) if text.isdigit() else int(value)
