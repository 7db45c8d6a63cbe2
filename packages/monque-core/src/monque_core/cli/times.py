"""Parse and format durations and times."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import typer

from monque_core.display import brief_repr

_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_SECONDS = re.compile(r"\d+(?:\.\d+)?")
_DURATION = "a duration such as 90s, 15m, 1h30m or 7d"
_INSTANT = "a time with its zone, such as 2030-01-31T09:00Z or 2030-01-31T09:00+01:00"


def parse_duration(text: str) -> timedelta:
    """Parse a duration such as `1h30m`; a plain number is seconds."""
    try:
        if _SECONDS.fullmatch(text):
            return timedelta(seconds=float(text))
        if not text or _PART.sub("", text):
            raise typer.BadParameter(f"{brief_repr(text)} is not {_DURATION}")
        parts = (float(amount) * _UNITS[unit] for amount, unit in _PART.findall(text))
        return sum(parts, timedelta())
    except OverflowError:
        raise typer.BadParameter(f"{brief_repr(text)} is too long") from None


def parse_time(text: str) -> datetime:
    """Parse a time, which must have a time zone."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{brief_repr(text)} is not {_INSTANT}") from None
    if found.tzinfo is None:
        complete = found.isoformat(timespec="auto" if found.second else "minutes")
        raise typer.BadParameter(
            f"{brief_repr(text)} has no time zone: write {complete}Z if it is UTC"
        )
    return found


@dataclass(frozen=True, slots=True)
class Age:
    """How old something is: a duration, or the point in time that it goes back to."""

    value: datetime | timedelta


def parse_age(text: str) -> Age:
    """Parse a duration or a time."""
    if re.match(r"\d{4}-", text):
        return Age(parse_time(text))
    try:
        return Age(parse_duration(text))
    except typer.BadParameter:
        raise typer.BadParameter(
            f"{brief_repr(text)} is neither {_DURATION}, nor {_INSTANT}"
        ) from None


def format_time(moment: datetime) -> str:
    """Format a time so that it can be typed again."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_duration(length: timedelta) -> str:
    """Format a duration with one or two units."""
    seconds = abs(length.total_seconds())
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    for unit, size, smaller, smaller_size in (
        ("d", 86400, "h", 3600),
        ("h", 3600, "m", 60),
        ("m", 60, "s", 1),
    ):
        if whole >= size:
            rest = whole % size // smaller_size
            return f"{whole // size}{unit}" + (f"{rest}{smaller}" if rest else "")
    return f"{whole}s"


def format_relative(moment: datetime, now: datetime) -> str:
    """Format a time relative to now."""
    return (
        f"in {format_duration(moment - now)}"
        if moment > now
        else (f"{format_duration(now - moment)} ago")
    )
