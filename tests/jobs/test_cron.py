"""When cron expressions fire, and which ones are rejected."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from monque_core.errors import InvalidCronError, InvalidJobError
from monque_core.jobs.cron import canonical_cron, check_cron, next_cron_run

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
NODE = json.loads((Path(__file__).parent / "data" / "cron_parser.json").read_text("utf-8"))
REWRITTEN = {
    " @daily": "@daily",
    "0 9 * * 0,7": "0 9 * * 0",
    "0 9 * * 0-6,7": "0 9 * * 0-6",
    "0 9 * * fri-sun": "0 9 * * 0,5-6",
    "0 9 * * 5-0": "0 9 * * 0,5-6",
    "0 9 * * 1,mon": "0 9 * * 1",
    "5,5 * * * *": "5 * * * *",
    "*,5 * * * *": "* * * * *",
    "5,* * * * *": "5,0-4,6-59 * * * *",
    "*/2,4 * * * *": "*/2 * * * *",
    "0 */2,4 * * *": "0 */2 * * *",
    "1-5,3-8 * * * *": "1-5,6-8 * * * *",
    "0 0 1,L,L * *": "0 0 1,L * *",
    "0 0 * * 5L,friL": "0 0 * * 5L",
    "0 0 */2,1 * 1": "0 0 */2 * 1",
    "0 0 * * *,1": "0 0 * * *",
}
"""Expressions that Node rejects because they name a value twice, and how they are stored."""
quick = settings(max_examples=150)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def runs(cron: str, after: str, count: int, zone: str = "UTC") -> list[str]:
    """Return the next runs as UTC text, for example `03-29 01:00`."""
    instant, found = utc(after), []
    for _ in range(count):
        instant = next_cron_run(cron, instant, zone)
        found.append(instant.strftime("%m-%d %H:%M"))
    return found


class TestFields:
    @pytest.mark.parametrize(
        ("cron", "expected"),
        [
            ("* * * * *", "2026-05-05 12:35"),
            ("*/15 * * * *", "2026-05-05 12:45"),
            ("5/15 * * * *", "2026-05-05 12:35"),
            ("10,40 * * * *", "2026-05-05 12:40"),
            ("0 9 * * 1-5", "2026-05-06 09:00"),
            ("0 9-17/4 * * *", "2026-05-05 13:00"),
            ("00 09 * * *", "2026-05-06 09:00"),
            ("0 9-9 * * *", "2026-05-06 09:00"),
            ("0 23/2 * * *", "2026-05-05 23:00"),
            ("*/90 * * * *", "2026-05-05 13:00"),
            ("0 0 1 * *", "2026-06-01 00:00"),
            ("0 0 31 * *", "2026-05-31 00:00"),
            ("0 0 * FEB *", "2027-02-01 00:00"),
            ("0 0 * jun-aug *", "2026-06-01 00:00"),
            ("0 0 * * SUN", "2026-05-10 00:00"),
            ("0 0 * * 0", "2026-05-10 00:00"),
            ("0 0 * * 7", "2026-05-10 00:00"),
            ("0 0 * * 7-7", "2026-05-10 00:00"),
            ("0 0 * * 0-7", "2026-05-06 00:00"),
            ("0 0 * * 7/2", "2026-05-10 00:00"),
            ("0 0 * * sun-sun", "2026-05-10 00:00"),
            ("0 0 * * SAT-SUN", "2026-05-09 00:00"),
            ("0 0 * * 6-7/2", "2026-05-09 00:00"),
            (" 0\t0  * * *\n", "2026-05-06 00:00"),
            ("@hourly", "2026-05-05 13:00"),
            ("@daily", "2026-05-06 00:00"),
            ("@weekly", "2026-05-10 00:00"),
            ("@monthly", "2026-06-01 00:00"),
            ("@yearly", "2027-01-01 00:00"),
        ],
    )
    def test_reads_standard_cron(self, cron: str, expected: str) -> None:
        assert next_cron_run(cron, utc("2026-05-05 12:34:56")) == utc(expected)

    def test_sunday_may_end_a_range(self) -> None:
        assert runs("0 0 * * FRI-SUN", "2026-05-05", 4) == [
            *("05-08 00:00", "05-09 00:00", "05-10 00:00"),
            "05-15 00:00",
        ]

    def test_matches_either_day_when_both_are_restricted(self) -> None:
        assert runs("0 0 13 * FRI", "2026-05-05", 4) == [
            *("05-08 00:00", "05-13 00:00", "05-15 00:00", "05-22 00:00"),
        ]

    def test_matches_both_days_when_one_is_a_star(self) -> None:
        assert runs("0 0 13 * *", "2026-05-05", 2) == ["05-13 00:00", "06-13 00:00"]
        assert runs("0 0 * * FRI", "2026-05-05", 2) == ["05-08 00:00", "05-15 00:00"]

    def test_an_impossible_date_leaves_the_weekday(self) -> None:
        assert runs("0 0 30 2 MON", "2026-01-01", 2) == ["02-02 00:00", "02-09 00:00"]

    @pytest.mark.parametrize(
        ("after", "expected"),
        [
            ("2026-01-01", "2028-02-29"),
            ("2028-02-29", "2032-02-29"),
            ("1896-02-29", "1904-02-29"),
            ("2096-02-29", "2104-02-29"),
            ("1999-12-31", "2000-02-29"),
        ],
    )
    def test_finds_leap_days(self, after: str, expected: str) -> None:
        assert next_cron_run("0 0 29 2 *", utc(after)) == utc(expected)

    def test_skips_months_without_the_day(self) -> None:
        assert runs("0 0 31 * *", "2026-01-31", 3) == ["03-31 00:00", "05-31 00:00", "07-31 00:00"]


class TestInstants:
    def test_the_run_is_strictly_later_than_after(self) -> None:
        assert next_cron_run("0 12 * * *", utc("2026-05-05 12:00")) == utc("2026-05-06 12:00")
        just_before = utc("2026-05-05 12:00") - timedelta.resolution
        assert next_cron_run("0 12 * * *", just_before) == utc("2026-05-05 12:00")
        just_after = utc("2026-05-05 12:00") + timedelta.resolution
        assert next_cron_run("0 12 * * *", just_after) == utc("2026-05-06 12:00")

    def test_the_run_is_in_utc_whatever_after_is_in(self) -> None:
        after = datetime(2026, 5, 5, 23, 30, tzinfo=timezone(timedelta(hours=-8)))
        run = next_cron_run("0 9 * * *", after, "Asia/Tokyo")
        assert run == utc("2026-05-07 00:00")
        assert run.tzinfo is UTC

    def test_reads_the_fold_of_after(self) -> None:
        second = datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))
        assert next_cron_run("*/30 * * * *", second, "Europe/Berlin") == utc("2026-10-25 02:00")

    def test_a_fixed_hour_keeps_its_wall_time_over_the_year(self) -> None:
        assert runs("0 9 * * *", "2026-03-27 12:00", 3, "Europe/Berlin") == [
            *("03-28 08:00", "03-29 07:00", "03-30 07:00"),
        ]


class TestClockForward:
    """Berlin skips 02:00 to 03:00 on 2026-03-29, at 01:00 UTC."""

    @pytest.mark.parametrize(
        ("cron", "expected"),
        [
            ("30 2 * * *", ["03-29 01:00", "03-30 00:30"]),
            ("0 2 * * *", ["03-29 01:00", "03-30 00:00"]),
            ("*/30 2 * * *", ["03-29 01:00", "03-30 00:00", "03-30 00:30"]),
            ("0 2,3 * * *", ["03-29 01:00", "03-30 00:00", "03-30 01:00"]),
            ("30 2,3 * * *", ["03-29 01:00", "03-29 01:30", "03-30 00:30"]),
            ("30 1-3 * * *", ["03-29 00:30", "03-29 01:00", "03-29 01:30"]),
        ],
    )
    def test_a_skipped_time_runs_once_after_the_gap(self, cron: str, expected: list[str]) -> None:
        assert runs(cron, "2026-03-28 12:00", len(expected), "Europe/Berlin") == expected

    @pytest.mark.parametrize(
        ("cron", "expected"),
        [
            ("30 * * * *", ["03-28 23:30", "03-29 00:30", "03-29 01:30", "03-29 02:30"]),
            ("0 * * * *", ["03-29 00:00", "03-29 01:00", "03-29 02:00", "03-29 03:00"]),
            ("0 */2 * * *", ["03-29 01:00", "03-29 02:00", "03-29 04:00"]),
            ("0 */3 * * *", ["03-29 01:00", "03-29 04:00", "03-29 07:00"]),
        ],
    )
    def test_a_starred_hour_follows_real_time(self, cron: str, expected: list[str]) -> None:
        assert runs(cron, "2026-03-28 23:00", len(expected), "Europe/Berlin") == expected

    def test_quarter_hours_continue_through_a_gap(self) -> None:
        instant = utc("2026-03-28 23:00")
        for _ in range(20):
            later = next_cron_run("*/15 * * * *", instant, "Europe/Berlin")
            assert later - instant == timedelta(minutes=15)
            instant = later

    def test_a_skipped_midnight_runs_when_the_day_begins(self) -> None:
        assert runs("0 0 * * *", "2018-11-03 12:00", 2, "America/Sao_Paulo") == [
            *("11-04 03:00", "11-05 02:00"),
        ]
        assert runs("@daily", "2026-03-07 12:00", 2, "America/Havana") == [
            *("03-08 05:00", "03-09 04:00"),
        ]

    def test_a_gap_of_half_an_hour(self) -> None:
        assert runs("15 2 * * *", "2026-10-03 00:00", 2, "Australia/Lord_Howe") == [
            *("10-03 15:30", "10-04 15:15"),
        ]

    def test_a_skipped_day_runs_when_the_next_begins(self) -> None:
        assert runs("0 12 * * *", "2011-12-29 12:00", 3, "Pacific/Apia") == [
            *("12-29 22:00", "12-30 10:00", "12-30 22:00"),
        ]
        assert runs("0 * * * FRI", "2011-12-29 12:00", 1, "Pacific/Apia") == ["01-05 10:00"]


class TestClockBack:
    """Berlin repeats 02:00 to 03:00 on 2026-10-25; the second pass begins at 01:00 UTC."""

    @pytest.mark.parametrize(
        ("cron", "expected"),
        [
            ("30 2 * * *", ["10-25 00:30", "10-26 01:30"]),
            ("*/30 2 * * *", ["10-25 00:00", "10-25 00:30", "10-26 01:00"]),
            ("0 2,3 * * *", ["10-25 00:00", "10-25 02:00", "10-26 01:00"]),
            ("30 0-23 * * *", ["10-24 22:30", "10-24 23:30", "10-25 00:30", "10-25 02:30"]),
        ],
    )
    def test_a_repeated_time_runs_once(self, cron: str, expected: list[str]) -> None:
        assert runs(cron, "2026-10-24 22:00", len(expected), "Europe/Berlin") == expected

    def test_a_repeated_time_does_not_run_for_one_who_asks_in_the_second_pass(self) -> None:
        assert runs("30 2 * * *", "2026-10-25 01:10", 1, "Europe/Berlin") == ["10-26 01:30"]

    @pytest.mark.parametrize(
        ("cron", "expected"),
        [
            ("30 * * * *", ["10-24 23:30", "10-25 00:30", "10-25 01:30", "10-25 02:30"]),
            ("0 */2 * * *", ["10-25 00:00", "10-25 01:00", "10-25 03:00", "10-25 05:00"]),
            ("0 */3 * * *", ["10-25 02:00", "10-25 05:00"]),
        ],
    )
    def test_a_starred_hour_runs_both_times(self, cron: str, expected: list[str]) -> None:
        assert runs(cron, "2026-10-24 23:00", len(expected), "Europe/Berlin") == expected

    def test_a_starred_hour_finds_the_second_pass_from_late_in_the_first(self) -> None:
        assert runs("10 * 25 10 *", "2026-10-25 00:50", 1, "Europe/Berlin") == ["10-25 01:10"]


class TestSeconds:
    """Berlin skips an hour at 2026-03-29 01:00 UTC, and repeats one before 2026-10-25 02:00 UTC."""

    def _instants(self, cron: str, after: str, count: int) -> list[str]:
        instants = [utc(after)]
        for _ in range(count):
            instants.append(next_cron_run(cron, instants[-1], "Europe/Berlin"))
        return [instant.strftime("%d %H:%M:%S") for instant in instants[1:]]

    def test_a_skipped_second_runs_once_after_the_gap(self) -> None:
        assert self._instants("*/30 30 2 * * *", "2026-03-28 12:00", 2) == [
            *("29 01:00:00", "30 00:30:00"),
        ]

    def test_a_repeated_second_runs_once(self) -> None:
        assert self._instants("*/30 30 2 * * *", "2026-10-24 22:00", 3) == [
            *("25 00:30:00", "25 00:30:30", "26 01:30:00"),
        ]
        assert self._instants("* * 2 * * *", "2026-10-25 01:10:10", 1) == ["26 01:00:00"]

    @pytest.mark.parametrize("start", ["2026-03-29 00:59:55", "2026-10-25 00:59:55"])
    def test_a_starred_hour_follows_real_time(self, start: str) -> None:
        instant = utc(start)
        for _ in range(10):
            later = next_cron_run("* * * * * *", instant, "Europe/Berlin")
            assert later - instant == timedelta(seconds=1)
            instant = later

    def test_a_question_mark_in_the_hours_is_a_star(self) -> None:
        for start in ("2026-03-28 23:00", "2026-10-24 23:00"):
            assert runs("30 ? * * *", start, 5, "Europe/Berlin") == (
                runs("30 * * * *", start, 5, "Europe/Berlin")
            )


@dataclass(frozen=True)
class Expression:
    """An expression together with its meaning, built without parsing cron."""

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]

    def matches(self, wall: datetime) -> bool:
        _, _, day_text, _, weekday_text = self.text.split()
        days = (wall.day in self.days, wall.isoweekday() % 7 in self.weekdays)
        on_day = all(days) if "*" in (day_text, weekday_text) else any(days)
        on_time = wall.minute in self.minutes and wall.hour in self.hours
        return on_time and on_day and wall.month in self.months

    @property
    def hour_text(self) -> str:
        return self.text.split()[1]

    @property
    def spelled_out(self) -> str:
        """The same without ranges and steps, because croniter gets some of them wrong (`9-9`)."""
        values = (self.minutes, self.hours, self.days, self.months, self.weekdays)
        return " ".join(
            text if text == "*" else ",".join(map(str, sorted(allowed)))
            for text, allowed in zip(self.text.split(), values, strict=True)
        )


@st.composite
def fields(draw: st.DrawFn, low: int, high: int) -> tuple[str, frozenset[int]]:
    everything = range(low, high + 1)
    value = st.sampled_from(everything)
    shape = draw(st.sampled_from(["*", "*/n", "list", "range", "range/n", "a/n"]))
    step = draw(st.integers(2, max(2, (high - low) // 2)))
    if shape == "*":
        return "*", frozenset(everything)
    if shape == "*/n":
        return f"*/{step}", frozenset(everything[::step])
    if shape == "list":
        values = draw(st.lists(value, min_size=1, max_size=4))
        return ",".join(map(str, values)), frozenset(values)
    first, last = sorted((draw(value), draw(value)))
    if shape == "range":
        return f"{first}-{last}", frozenset(range(first, last + 1))
    if shape == "a/n":
        return f"{first}/{step}", frozenset(range(first, high + 1, step))
    return f"{first}-{last}/{step}", frozenset(range(first, last + 1, step))


@st.composite
def expressions(draw: st.DrawFn) -> Expression:
    every_day = draw(st.booleans())
    parts = [draw(fields(0, 59)), draw(fields(0, 23))]
    for low, high in ((1, 31), (1, 12), (0, 6)):
        if every_day:
            parts.append(("*", frozenset(range(low, high + 1))))
        elif high == 6:
            text, weekdays = draw(fields(low, 7))
            parts.append((text, frozenset(weekday % 7 for weekday in weekdays)))
        else:
            parts.append(draw(fields(low, high)))
    texts, values = zip(*parts, strict=True)
    days, months = values[2], values[3]
    longest = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
    assume(texts[4] != "*" or any(min(days) <= longest.get(month, 31) for month in months))
    return Expression(" ".join(texts), *values)


CHANGES = [
    ("Europe/Berlin", "2026-03-29 01:00"),
    ("Europe/Berlin", "2026-10-25 01:00"),
    ("America/New_York", "2026-03-08 07:00"),
    ("America/New_York", "2026-11-01 06:00"),
    ("Australia/Lord_Howe", "2026-04-04 15:00"),
    ("Australia/Lord_Howe", "2026-10-03 15:30"),
    ("America/Havana", "2026-03-08 05:00"),
    ("America/Havana", "2026-11-01 05:00"),
    ("Asia/Beirut", "2026-03-28 22:00"),
    ("Asia/Beirut", "2026-10-24 21:00"),
    ("America/Sao_Paulo", "2018-02-18 02:00"),
    ("America/Sao_Paulo", "2018-11-04 03:00"),
    ("Antarctica/Troll", "2026-03-29 01:00"),
    ("Antarctica/Troll", "2026-10-25 01:00"),
    ("Pacific/Apia", "2011-12-30 10:00"),
    ("Pacific/Kwajalein", "1993-08-21 12:00"),
    ("Asia/Kathmandu", "1985-12-31 18:30"),
]


@cache
def clock(zone: str, change: str) -> list[tuple[datetime, datetime]]:
    """Return every minute around a change of the clock with the wall time at that minute."""
    start, info = utc(change) - 24 * HOUR, ZoneInfo(zone)
    instants = (start + n * MINUTE for n in range(60 * 60))
    return [(instant, instant.astimezone(info).replace(tzinfo=None)) for instant in instants]


def expected_runs(expression: Expression, zone: str, change: str) -> list[datetime]:
    """Return the expected runs by applying the documented rules minute by minute."""
    starred = expression.hour_text.startswith("*")
    found: list[datetime] = []
    shown: set[datetime] = set()
    minutes = clock(zone, change)
    previous = minutes[0][1] - MINUTE
    for instant, wall in minutes:
        skipped = (previous + n * MINUTE for n in range(1, (wall - previous) // MINUTE))
        matches = expression.matches(wall) and (starred or wall not in shown)
        if expression.hour_text != "*":
            matches = matches or any(map(expression.matches, skipped))
        if matches:
            found.append(instant)
        shown.add(wall)
        previous = wall
    return found


class TestEveryExpression:
    @pytest.mark.parametrize(("zone", "change"), CHANGES)
    def test_the_clock_does_change_there(self, zone: str, change: str) -> None:
        walls = dict(clock(zone, change))
        assert walls[utc(change)] - walls[utc(change) - MINUTE] != MINUTE

    @quick
    @given(expressions(), st.sampled_from(CHANGES), st.integers(0, 60 * 60 - 1))
    def test_no_minute_is_missed_or_added_where_the_clock_changes(
        self, expression: Expression, change: tuple[str, str], skip: int
    ) -> None:
        instant = clock(*change)[skip][0]
        end = clock(*change)[-1][0]
        expected = [run for run in expected_runs(expression, *change) if run > instant]
        for run in expected[:60]:
            instant = next_cron_run(expression.text, instant, change[0])
            assert instant == run
        if len(expected) <= 60:
            assert next_cron_run(expression.text, instant, change[0]) > end

    @settings(quick, max_examples=60)
    @given(st.sampled_from(["* * * * *", "*/15 * * * *", "*/20 2 * * *"]), st.data())
    def test_dense_expressions_are_right_at_every_second(self, cron: str, data: st.DataObject):
        zone, change = data.draw(st.sampled_from(CHANGES[:12]))
        seconds = data.draw(st.integers(-3 * 3600, 3 * 3600))
        parts = cron.split()
        expression = Expression(
            cron,
            frozenset(range(0, 60, int(parts[0][2:] or 1))),
            frozenset({2} if parts[1] == "2" else range(24)),
            frozenset(range(1, 32)),
            frozenset(range(1, 13)),
            frozenset(range(7)),
        )
        after = utc(change) + timedelta(seconds=seconds)
        expected = next(run for run in expected_runs(expression, zone, change) if run > after)
        assert next_cron_run(cron, after, zone) == expected

    @quick
    @given(
        expressions(),
        st.datetimes(datetime(1950, 1, 1), datetime(2150, 1, 1), timezones=st.just(UTC)),
        st.sampled_from(["UTC", *dict(CHANGES)]),
    )
    def test_runs_are_later_and_match_but_for_gaps(
        self, expression: Expression, after: datetime, zone: str
    ) -> None:
        info = ZoneInfo(zone)
        for _ in range(3):
            run = next_cron_run(expression.text, after, zone)
            assert run > after
            assert run.tzinfo is UTC
            wall = run.astimezone(info).replace(tzinfo=None)
            before = (run - timedelta(seconds=1)).astimezone(info).replace(tzinfo=None)
            ends_a_gap = wall - before > timedelta(seconds=1)
            assert ends_a_gap or expression.matches(wall)
            after = run

    @quick
    @given(expressions(), st.datetimes(datetime(1971, 1, 1), datetime(2090, 1, 1)))
    def test_agrees_with_croniter_where_there_is_no_time_zone(
        self, expression: Expression, after: datetime
    ) -> None:
        expected = croniter(expression.spelled_out, after).get_next(datetime)
        run = next_cron_run(expression.text, after.replace(tzinfo=UTC))
        assert run.replace(tzinfo=None) == expected

    @settings(quick, max_examples=300)
    @given(st.text("0123456789*/-,@#?LWHRlwhr JANMOjanmo\n", max_size=14))
    def test_any_text_is_read_or_refused(self, text: str) -> None:
        for cron in (text, f"{text} * * * *", f"0 0 {text} 2 *"):
            with suppress(InvalidCronError):
                check_cron(cron)
                assert next_cron_run(cron, utc("2026-01-01")) > utc("2026-01-01")


class TestNode:
    """What cron-parser, the parser of `@monque/core`, makes of these expressions."""

    @pytest.mark.parametrize("cron", NODE["ticks"])
    def test_expressions_that_node_accepts_fire_as_in_node(self, cron: str) -> None:
        for after, expected in NODE["ticks"][cron].items():
            instants = [datetime.fromisoformat(after)]
            for _ in expected:
                instants.append(next_cron_run(cron, instants[-1]))
            assert instants[1:] == [datetime.fromisoformat(tick) for tick in expected]

    @pytest.mark.parametrize("cron", [cron for cron in NODE["refused"] if cron not in REWRITTEN])
    def test_expressions_that_node_refuses_are_refused(self, cron: str) -> None:
        with pytest.raises(InvalidCronError):
            check_cron(cron)

    @pytest.mark.parametrize(("cron", "stored"), REWRITTEN.items())
    def test_expressions_that_only_node_refuses_are_stored_in_a_form_it_accepts(
        self, cron: str, stored: str
    ) -> None:
        assert cron in NODE["refused"]
        assert canonical_cron(cron) == canonical_cron(stored) == stored
        for start in range(0, 400, 3):
            after = utc("2026-01-01") + timedelta(days=start, hours=start)
            assert next_cron_run(cron, after) == next_cron_run(stored, after)

    @pytest.mark.parametrize(
        "cron", [cron for cron in NODE["ticks"] if len(cron.split()) >= 5 or "@" in cron]
    )
    def test_expressions_that_node_accepts_are_stored_unchanged_except_for_whitespace(
        self, cron: str
    ) -> None:
        assert canonical_cron(cron) == " ".join(cron.split())

    @pytest.mark.parametrize(
        ("cron", "stored"),
        [("0 9 * *", "* 0 9 * *"), ("5", "* * * * 5"), ("1#1", "* * * * 1#1")],
    )
    def test_fields_that_were_left_out_are_stored_as_node_reads_them(
        self, cron: str, stored: str
    ) -> None:
        assert canonical_cron(cron) == stored


class TestRefusals:
    @pytest.mark.parametrize(
        ("cron", "reason"),
        [
            ("", "it has 0 fields"),
            ("soon", "'soon' in the weekday field is not a number, name, range, step or '*'"),
            ("0 9 * * * 2026 x", "it has 7 fields"),
            ("@midnight", "'@midnight' is not a known shorthand"),
            ("@reboot", "'@reboot' is not a known shorthand"),
            ("@daily @daily", "'@daily @daily' is not a known shorthand"),
            ("@Daily", "did you mean '@daily'?"),
            ("@weeky", "did you mean '@weekly'?"),
            ("R * * * *", "'R' in the minute field is not a number, name, range, step or '*'"),
            ("H H * * *", "'H' in the minute field stands for a random value"),
            ("H(0-5) * * * *", "'H(0-5)' in the minute field stands for a random value"),
            ("h * * * *", "'h' in the minute field is not a number"),
            ("0 0 15W * *", "'15W' in the day field"),
            ("0 0 * * L5", "'L5' in the weekday field"),
            ("0 0 * * L", "'L' in the weekday field"),
            ("0 0 * * 8L", "'8' in the weekday field is not within 0 to 7 or SUN to SAT"),
            ("0 0 * * 5#6", "'5#6' in the weekday field"),
            ("0 0 L-3 * *", "'L-3' in the day field"),
            ("0 L * * *", "'L' in the hour field"),
            ("60 * * * * *", "'60' in the second field is not within 0 to 59"),
            ("0 0 * JANUARY *", "'JANUARY' in the month field"),
            ("1- * * * *", "'1-' in the minute field"),
            ("-1 * * * *", "'-1' in the minute field"),
            ("1,,2 * * * *", "'' in the minute field"),
            ("*/5/2 * * * *", "'*/5/2' in the minute field"),
            ("1.5 * * * *", "'1.5' in the minute field"),
            ("٣ * * * *", "'٣' in the minute field"),
            ("60 * * * *", "'60' in the minute field is not within 0 to 59"),
            ("0 24 * * *", "'24' in the hour field is not within 0 to 23"),
            ("0 0-24 * * *", "'24' in the hour field is not within 0 to 23"),
            ("0 0 0 * *", "'0' in the day field is not within 1 to 31"),
            ("0 0 0-5 * *", "'0' in the day field is not within 1 to 31"),
            ("0 0 * 13 *", "'13' in the month field is not within 1 to 12 or JAN to DEC"),
            ("0 0 * MON *", "'MON' in the month field is not within 1 to 12 or JAN to DEC"),
            ("0 0 * * 8", "'8' in the weekday field is not within 0 to 7 or SUN to SAT"),
            ("*/0 * * * *", "'*/0' in the minute field has a step of zero"),
            ("0 22-2 * * *", "the range '22-2' in the hour field runs backwards"),
            ("0 0 * * FRI-MON", "the range 'FRI-MON' in the weekday field runs backwards"),
            ("0 0 30 2 *", "it never fires, as no month of '2' has a day 30"),
            ("0 0 31 4,6,9,11 *", "it never fires, as no month of '4,6,9,11' has a day 31"),
            (None, "it is of type NoneType, not str"),
            (5, "it is of type int, not str"),
            (b"* * * * *", "it is of type bytes, not str"),
            (["*"], "it is of type list, not str"),
        ],
    )
    def test_an_expression_says_what_is_wrong_and_how_to_do_it(self, cron, reason) -> None:
        for call in (check_cron, lambda text: next_cron_run(text, utc("2026-01-01"))):
            with pytest.raises(InvalidCronError) as caught:
                call(cron)
            assert reason in str(caught.value)
            assert repr(cron) in str(caught.value)
            assert "for example '0 9 * * 1-5'" in str(caught.value)
            assert caught.value.expression == cron
            assert isinstance(caught.value, ValueError)

    def test_a_very_long_expression_is_not_even_read(self) -> None:
        with pytest.raises(InvalidCronError, match="it has 5000008 characters, more than 1024"):
            check_cron("0" * 5_000_000 + " * * * *")

    @pytest.mark.parametrize("cron", ["0-59," * 80 + "1", "9" * 490, "*/" + "9" * 480])
    def test_a_hostile_expression_is_refused_quickly(self, cron: str) -> None:
        began = time.process_time()
        with suppress(InvalidCronError):
            check_cron(f"{cron} * * * *")
        assert time.process_time() - began < 20

    @pytest.mark.parametrize(
        ("zone", "hint"),
        [
            ("Europe/Berln", "did you mean 'Europe/Berlin'?"),
            ("europe/berlin", "did you mean 'Europe/Berlin'?"),
            ("Berlin", "did you mean 'Europe/Berlin'?"),
            ("New York", "did you mean 'America/New_York'?"),
            ("utc", "did you mean 'UTC'?"),
            ("PST", "give one such as 'Europe/Berlin'"),
            ("GMT+1", "give one such as 'Europe/Berlin'"),
            ("", "give one such as 'Europe/Berlin'"),
            ("/etc/localtime", "give one such as 'Europe/Berlin'"),
            ("../UTC", "is not a known IANA name"),
            ("Europe", "is not a known IANA name"),
            ("a\0b", "is not a known IANA name"),
            ("\ud800", "is not a known IANA name"),
            ("x" * 5000, "is not a known IANA name"),
            (None, "is of type NoneType"),
            (UTC, "is of type timezone"),
            ([], "is of type list"),
        ],
    )
    def test_a_time_zone_must_be_known(self, zone, hint) -> None:
        for call in (check_cron, lambda cron, zone: next_cron_run(cron, utc("2026-01-01"), zone)):
            with pytest.raises(InvalidJobError) as caught:
                call("0 9 * * *", zone)
            assert hint in str(caught.value)
            assert (caught.value.field, caught.value.value) == ("timezone", zone)

    def test_without_a_time_zone_database_the_message_says_so(self, monkeypatch) -> None:
        monkeypatch.setattr("monque_core.jobs.cron.available_timezones", set)
        with pytest.raises(InvalidJobError, match="install tzdata"):
            check_cron("0 9 * * *", "Europe/Nowhere")

    def test_after_must_be_aware(self) -> None:
        naive = datetime(2026, 1, 1)
        with pytest.raises(InvalidJobError, match=r"aware datetime, such as datetime\.now") as e:
            next_cron_run("0 9 * * *", naive)
        assert (e.value.field, e.value.value) == ("after", naive)

    @pytest.mark.parametrize("after", ["9999-12-31 20:00", "0001-01-01 00:00"])
    def test_after_must_leave_room_in_the_calendar(self, after: str) -> None:
        with pytest.raises(InvalidJobError, match="too close to an end of the calendar") as caught:
            next_cron_run("0 9 * * *", utc(after), "America/New_York")
        assert caught.value.field == "after"


def test_threads_may_share_an_expression() -> None:
    starts = [utc("2026-01-01") + n * 7 * HOUR for n in range(300)]
    expected = [next_cron_run("*/7 3-20 * * *", start, "Europe/Berlin") for start in starts]
    with ThreadPoolExecutor(8) as pool:
        results = pool.map(
            lambda start: next_cron_run("*/7 3-20 * * *", start, "Europe/Berlin"), starts
        )
    assert list(results) == expected
