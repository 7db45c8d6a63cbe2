"""Durations and points in time on the command line."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
import typer

from monque_core.cli import times

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7d", timedelta(days=7)),
        ("1h30m", timedelta(minutes=90)),
        ("90", timedelta(seconds=90)),
        ("0.5", timedelta(milliseconds=500)),
        ("250ms", timedelta(milliseconds=250)),
        ("1.5h", timedelta(minutes=90)),
        ("2w", timedelta(days=14)),
    ],
)
def test_a_duration_is_read(text: str, expected: timedelta) -> None:
    assert times.parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "d", "7x", "7 d", "-1s", "1h30", "nan", "inf", "9" * 30])
def test_what_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        times.parse_duration(text)


@pytest.mark.parametrize("text", ["2026-01-01T12:00Z", "2026-01-01T13:00:00+01:00"])
def test_a_time_is_read(text: str) -> None:
    assert times.parse_time(text) == NOON
    assert times.parse_age(text).value == NOON


@pytest.mark.parametrize("text", ["noon", "2026-01-01T12:00", "2026-13-01T12:00Z", "12:00Z"])
def test_what_is_not_a_time_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        times.parse_time(text)


@pytest.mark.parametrize(
    "text", ["2030-01-31", "2030-01-31T09", "2030-01-31T09:00", "2030-01-31 09:00:30", "20300131"]
)
def test_a_time_without_a_zone_comes_with_one_that_is_accepted(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="has no time zone") as refused:
        times.parse_time(text)
    (advised,) = re.findall("write (.*) if it is UTC", str(refused.value))
    assert times.parse_time(advised) == datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (timedelta(milliseconds=12.4), "12ms"),
        (timedelta(seconds=1.25), "1.2s"),
        (timedelta(seconds=59.7), "1m"),
        (timedelta(seconds=61), "1m1s"),
        (timedelta(hours=1, minutes=30, seconds=9), "1h30m"),
        (timedelta(days=3, hours=2), "3d2h"),
        (timedelta(seconds=-20), "20s"),
    ],
)
def test_a_duration_is_shown_briefly(length: timedelta, expected: str) -> None:
    assert times.format_duration(length) == expected


def test_a_time_is_shown_as_it_can_be_typed() -> None:
    assert times.parse_time(times.format_time(NOON)) == NOON
    assert times.format_relative(NOON + timedelta(hours=2), NOON) == "in 2h"
    assert times.format_relative(NOON - timedelta(minutes=2), NOON) == "2m ago"
