"""When a cron expression fires in a time zone, daylight saving time included.

- A wall time that the clock skips runs at the first instant after the gap, once for the whole gap.
- A wall time that the clock shows twice runs the first time only.
- An hour field that starts with `*` runs both times that the clock shows. After a gap, `*` runs as
  usual, because no hour of real time is missing. `*/2` names hours, and a skipped one runs after
  the gap.
"""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, available_timezones

from monque_core.display import brief_repr
from monque_core.errors import InvalidJobError
from monque_core.jobs.cron_expression import parse_cron
from monque_core.validation import check_aware, is_text

if TYPE_CHECKING:
    from datetime import datetime, tzinfo

    from monque_core.jobs.cron_expression import CronExpression


def next_cron_run(cron: str, after: datetime, timezone: str = "UTC") -> datetime:
    """Return the first instant strictly after `after` at which `cron` fires, in UTC.

    The fields are read on the wall clock of `timezone`, an IANA name.
    """
    expression = parse_cron(cron)
    zone = _find_zone(timezone)
    instant = check_aware(after, field="after")
    try:
        return _next_instant(expression, instant, zone)
    except OverflowError as error:
        raise InvalidJobError(
            "after", after, f"after={after!r} is too close to an end of the calendar"
        ) from error


def check_cron(cron: str, timezone: str = "UTC") -> None:
    """Raise for an expression that cannot be read or never fires, and for an unknown time zone."""
    parse_cron(cron)
    _find_zone(timezone)


def canonical_cron(cron: str) -> str:
    """Return an expression as it is stored: every parser reads it alike, the one of Node too.

    Node refuses a value that is named twice (`0 9 * * 0,7`) and a range that ends with Sunday as 0.
    """
    return parse_cron(cron).text


def _next_instant(expression: CronExpression, after: datetime, zone: tzinfo) -> datetime:
    local = after.astimezone(zone)
    shown = wall = local.replace(tzinfo=None, fold=0)
    if expression.starred_hour:
        # In the first pass of a repeated hour, wall times before this one are still to come.
        wall -= _offset(local) - _offset(local.replace(fold=1))
    walls = expression.matches(wall)
    earliest: datetime | None = None
    while earliest is None or wall <= shown:
        wall = next(walls)
        for instant in _instants(expression, wall, zone):
            if after < instant and (earliest is None or instant < earliest):
                earliest = instant
    return earliest


def _instants(expression: CronExpression, wall: datetime, zone: tzinfo) -> tuple[datetime, ...]:
    first = wall.replace(tzinfo=zone)
    second = first.replace(fold=1)
    jump = _offset(second) - _offset(first)
    if jump > timedelta(0):
        every_hour = expression.starred_hour and len(expression.hours) == 24
        return () if every_hour else (_end_of_gap(first, second),)
    if jump < timedelta(0) and expression.starred_hour:
        return first.astimezone(UTC), second.astimezone(UTC)
    return (first.astimezone(UTC),)


def _offset(moment: datetime) -> timedelta:
    return moment.utcoffset() or timedelta(0)


def _end_of_gap(first: datetime, second: datetime) -> datetime:
    """Return the instant at which the clock skips a wall time, given with either `fold`."""
    zone, wall = first.tzinfo, first.replace(tzinfo=None)
    # With the offset after the gap, a skipped time lies before the gap; with the one before, after.
    earliest, latest = second.astimezone(UTC), first.astimezone(UTC)

    def is_past(seconds: int) -> bool:
        moment = earliest + timedelta(seconds=seconds)
        return moment.astimezone(zone).replace(tzinfo=None) > wall

    width = (latest - earliest) // timedelta(seconds=1)
    return earliest + timedelta(seconds=bisect_left(range(width), True, key=is_past))


def _find_zone(timezone: object) -> tzinfo:
    if timezone == "UTC":
        return UTC  # works without a time zone database, too
    if not is_text(timezone):
        raise InvalidJobError(
            "timezone",
            timezone,
            f"timezone={brief_repr(timezone)} is of type {type(timezone).__name__}: "
            "give an IANA name such as 'Europe/Berlin'",
        )
    try:
        return ZoneInfo(timezone)
    except (KeyError, ValueError, OSError) as error:
        raise InvalidJobError("timezone", timezone, _explain_zone(timezone)) from error


def _explain_zone(timezone: str) -> str:
    names = sorted(available_timezones())
    if not names:
        return (
            f"timezone={brief_repr(timezone)} is not known because no time zones are installed: "
            "install tzdata"
        )
    # Etc/GMT+1 is an hour west of Greenwich, so it is no suggestion for GMT+1.
    cities = {name.rpartition("/")[2]: name for name in names if not name.startswith("Etc/")}
    known = {key.lower(): name for key, name in (cities | {name: name for name in names}).items()}
    close = get_close_matches(timezone[:80].lower().replace(" ", "_"), known, n=1, cutoff=0.85)
    hint = f"did you mean {known[close[0]]!r}?" if close else "give one such as 'Europe/Berlin'"
    return f"timezone={brief_repr(timezone)} is not a known IANA name: {hint}"
