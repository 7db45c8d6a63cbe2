"""The wall-clock times that a cron expression matches, without any time zone.

The syntax is that of `@monque/core` for Node, with the same meaning: five fields, a sixth for
seconds in front of them, fewer fields (the missing ones in front are `*`), or one of ten
shorthands. When neither day nor weekday is `*` or `?`, a day that matches either one matches. `H`
is refused: Node draws a new value for it at every tick, so that no two readers agree. Other syntax
of croniter is refused, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, time, timedelta
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from monque_core.errors import InvalidCronError
from monque_core.jobs.cron_field import FieldKind, parse_field
from monque_core.validation import is_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date

    from monque_core.jobs.cron_field import CronField

_SHORTHANDS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@weekdays": "0 0 * * 1-5",
    "@weekends": "0 0 * * 0,6",
    "@daily": "0 0 * * *",
    "@hourly": "0 * * * *",
    "@minutely": "* * * * *",
    "@secondly": "* * * * * *",
}
_FIELDS: Final = (
    FieldKind.SECOND,
    FieldKind.MINUTE,
    FieldKind.HOUR,
    FieldKind.DAY,
    FieldKind.MONTH,
    FieldKind.WEEKDAY,
)
_DEFAULTS: Final = ("0", "*", "*", "*", "*", "*")
_ORDINARY_FIELDS: Final = 5
_LONGEST_TEXT: Final = 1024
_LONGEST_DAY: Final = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}


@dataclass(frozen=True, slots=True)
class CronExpression:
    """A parsed expression: the values that each field allows."""

    text: str
    """The expression as it is stored: read alike by every parser, the one for Node included."""
    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    day: CronField
    months: frozenset[int]
    weekday: CronField
    starred_hour: bool
    """Whether the hour field starts with `*`, or with `?`, which is the same."""

    def matches(self, after: datetime) -> Iterator[datetime]:
        """Yield the matching wall times later than `after`, in order and without end."""
        today = after.date()
        for day in self._matching_days(today):
            for hour in self.hours:
                for minute in self.minutes:
                    if day == today and (hour, minute) < (after.hour, after.minute):
                        continue
                    for second in self.seconds:
                        wall = datetime.combine(day, time(hour, minute, second))
                        if wall > after:
                            yield wall

    def _matching_days(self, day: date) -> Iterator[date]:
        while True:
            if day.month not in self.months:
                day = _next_month(day)
                continue
            if self._is_matching(day):
                yield day
            day += timedelta(days=1)

    def _is_matching(self, day: date) -> bool:
        by_day = day.day in self.day.values or (self.day.last_day and _is_last_day(day))
        weekday = day.isoweekday() % 7
        by_weekday = (
            weekday in self.weekday.values and self.weekday.nth in (None, (day.day + 6) // 7)
        ) or (weekday in self.weekday.last_weekdays and _is_last_of_its_weekday(day))
        if self.day.is_wildcard or self.weekday.is_wildcard:
            return by_day and by_weekday
        return by_day or by_weekday


def parse_cron(cron: object) -> CronExpression:
    """Return a parsed expression; raise `InvalidCronError` if it cannot be read or never fires."""
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
    is_shorthand = bool(texts) and texts[0].startswith("@")
    if is_shorthand:
        texts = _expand_shorthand(cron).split()
    if not 0 < len(texts) <= len(_FIELDS):
        raise InvalidCronError(cron, f"it has {len(texts)} fields")
    missing = len(_FIELDS) - len(texts)
    second, minute, hour, day, month, weekday = (
        parse_field(cron, kind, text)
        for kind, text in zip(_FIELDS, [*_DEFAULTS[:missing], *texts], strict=True)
    )
    if weekday.is_wildcard and not day.last_day:
        _check_days(cron, day, month)
    fields = [second, minute, hour, day, month, weekday]
    # Seconds are stored only if they were given: most parsers know five fields only.
    written = fields if len(texts) == len(_FIELDS) else fields[-_ORDINARY_FIELDS:]
    return CronExpression(
        text=cron.strip() if is_shorthand else " ".join(field.text for field in written),
        seconds=tuple(sorted(second.values)),
        minutes=tuple(sorted(minute.values)),
        hours=tuple(sorted(hour.values)),
        day=day,
        months=month.values,
        weekday=weekday,
        starred_hour=hour.text.startswith(("*", "?")),
    )


def _expand_shorthand(cron: str) -> str:
    shorthand = cron.strip()
    if shorthand not in _SHORTHANDS:
        close = get_close_matches(shorthand.lower(), _SHORTHANDS, n=1)
        hint = f", did you mean {close[0]!r}?" if close else ""
        raise InvalidCronError(cron, f"{shorthand!r} is not a known shorthand{hint}")
    return _SHORTHANDS[shorthand]


def _check_days(cron: str, day: CronField, month: CronField) -> None:
    """Raise for days that none of the months has."""
    earliest = min(day.values)
    if all(earliest > _LONGEST_DAY.get(each, 31) for each in month.values):
        raise InvalidCronError(
            cron, f"it never fires, as no month of {month.text!r} has a day {earliest}"
        )


def _next_month(day: date) -> date:
    return (day.replace(day=28) + timedelta(days=4)).replace(day=1)


def _is_last_day(day: date) -> bool:
    return (day + timedelta(days=1)).day == 1


def _is_last_of_its_weekday(day: date) -> bool:
    return (day + timedelta(days=7)).month != day.month
