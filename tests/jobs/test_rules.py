"""Validation of the fields of a job, and the error messages."""

from __future__ import annotations

import unicodedata
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monque_core.errors import InvalidJobError, MonqueError
from monque_core.jobs.rules import (
    check_aware,
    check_concurrency,
    check_max_retries,
    check_name,
    check_priority,
    check_timeout,
    check_unique_key,
    resolve_run_at,
)
from tests.support.samples import NOW

quick = settings(max_examples=100)


def is_control(character: str) -> bool:
    return unicodedata.category(character) == "Cc"


def is_storable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def utf16_units(text: str) -> int:
    return sum(2 if ord(character) > 0xFFFF else 1 for character in text)


class TestName:
    @pytest.mark.parametrize(
        "name",
        [
            "a",
            "send-email",
            "billing.invoice:v2/EU",
            "Überweisung",
            "送信",
            "🐟",
            "x" * 255,
            "🐟" * 127,
        ],
    )
    def test_is_any_text_without_whitespace_and_control_characters(self, name: str) -> None:
        assert check_name(name) == name

    @pytest.mark.parametrize(
        ("name", "problem"),
        [
            ("", "is blank"),
            (" ", "is blank"),
            ("\t\n\u2003", "is blank"),
            ("send email", "holds whitespace"),
            ("send\u00a0email", "holds whitespace"),
            ("send-email\n", "holds whitespace"),
            ("send\x00email", "holds a control character"),
            ("send\x7femail", "holds a control character"),
            ("send\x9femail", "holds a control character"),
            ("\ud83d", "holds half of a surrogate pair, which UTF-8 cannot store"),
            ("x" * 256, "has 256 characters"),
            ("🐟" * 128, "takes 256 units of UTF-16, by which Node counts"),
            ("\ufeffsend-email", "holds whitespace"),
            ("\ufeff", "is blank"),
            (None, "is a NoneType"),
            (7, "is a int"),
            (b"send-email", "is a bytes"),
        ],
    )
    def test_is_refused_with_what_is_wrong_and_what_is_allowed(self, name, problem: str) -> None:
        with pytest.raises(InvalidJobError) as caught:
            check_name(name)
        assert str(caught.value).startswith("name=")
        assert str(caught.value).endswith(
            f" {problem}: a text of 1 to 255 characters "
            "without whitespace or control characters is expected"
        )
        assert (caught.value.field, caught.value.value) == ("name", name)

    def test_of_great_length_is_not_repeated_in_full(self) -> None:
        with pytest.raises(InvalidJobError) as caught:
            check_name("x" * 100_000)
        assert len(str(caught.value)) < 300

    @quick
    @given(st.text(st.characters(categories=None), max_size=300))
    def test_is_accepted_exactly_if_it_follows_the_rule(self, name: str) -> None:
        is_allowed = (
            1 <= utf16_units(name) <= 255
            and is_storable(name)
            and not any(one.isspace() or is_control(one) or one == "\ufeff" for one in name)
        )
        if is_allowed:
            assert check_name(name) == name
        else:
            with pytest.raises(InvalidJobError):
                check_name(name)


class TestUniqueKey:
    @pytest.mark.parametrize("key", ["1", "user 42", " padded ", "ключ", "x" * 1024])
    def test_is_any_text_without_control_characters(self, key: str) -> None:
        assert check_unique_key(key) == key

    @pytest.mark.parametrize(
        ("key", "problem"),
        [
            ("", "is blank"),
            ("   ", "is blank"),
            ("a\tb", "holds a control character"),
            ("a\x00b", "holds a control character"),
            ("\udfff", "holds half of a surrogate pair, which UTF-8 cannot store"),
            ("x" * 1025, "has 1025 characters"),
            ("🐟" * 513, "takes 1026 units of UTF-16, by which Node counts"),
            (" \ufeff ", "is blank"),
            (42, "is a int"),
        ],
    )
    def test_is_refused_with_what_is_wrong_and_what_is_allowed(self, key, problem: str) -> None:
        with pytest.raises(InvalidJobError) as caught:
            check_unique_key(key)
        assert str(caught.value).startswith("unique_key=")
        assert str(caught.value).endswith(
            f" {problem}: a text of 1 to 1024 characters without control characters is expected"
        )
        assert (caught.value.field, caught.value.value) == ("unique_key", key)

    @quick
    @given(st.text(st.characters(categories=None), max_size=1100))
    def test_is_accepted_exactly_if_it_follows_the_rule(self, key: str) -> None:
        is_allowed = (
            utf16_units(key) <= 1024
            and bool(key.replace("\ufeff", " ").strip())
            and is_storable(key)
            and not any(is_control(one) for one in key)
        )
        if is_allowed:
            assert check_unique_key(key) == key
        else:
            with pytest.raises(InvalidJobError):
                check_unique_key(key)


class TestNumbers:
    @pytest.mark.parametrize("priority", [0, 1, 100, 2**31 - 1])
    def test_a_priority_is_a_whole_number_from_0(self, priority: int) -> None:
        assert check_priority(priority) == priority

    @pytest.mark.parametrize("priority", [-1, 1.0, True, "1", None, 2**31])
    def test_any_other_priority_is_refused(self, priority) -> None:
        with pytest.raises(
            InvalidJobError,
            match=r"^priority=.* is not allowed: a whole number of at least 0 is expected$",
        ) as caught:
            check_priority(priority)
        assert (caught.value.field, caught.value.value) == ("priority", priority)

    def test_max_retries_is_left_to_the_instance_unless_given(self) -> None:
        assert check_max_retries(None) is None
        assert check_max_retries(1) == 1
        assert check_max_retries(2**31 - 1) == 2**31 - 1

    @pytest.mark.parametrize("max_retries", [0, -1, 2.0, True, "3", 2**31])
    def test_any_other_max_retries_is_refused(self, max_retries) -> None:
        with pytest.raises(
            InvalidJobError,
            match=r"^max_retries=.* is not allowed: "
            r"a whole number of at least 1, the number of runs in all, is expected$",
        ):
            check_max_retries(max_retries)

    @pytest.mark.parametrize("concurrency", [0, -5, 1.5, False, "2", None])
    def test_concurrency_is_a_whole_number_from_1(self, concurrency) -> None:
        assert check_concurrency(1) == 1
        with pytest.raises(
            InvalidJobError,
            match=r"^concurrency=.* is not allowed: a whole number of at least 1 is expected$",
        ):
            check_concurrency(concurrency)


class TestTimeout:
    def test_is_seconds_or_a_timedelta_or_nothing(self) -> None:
        assert check_timeout(None) is None
        assert check_timeout(1.5) == timedelta(seconds=1.5)
        assert check_timeout(timedelta(minutes=2)) == timedelta(minutes=2)
        assert check_timeout(0.001) == timedelta(milliseconds=1)

    @pytest.mark.parametrize("timeout", [0, -1, 0.0001, timedelta(0), timedelta(microseconds=999)])
    def test_is_at_least_a_millisecond(self, timeout) -> None:
        with pytest.raises(
            InvalidJobError, match=r"^timeout=.* is not allowed: it must be at least 1 ms$"
        ):
            check_timeout(timeout)

    @pytest.mark.parametrize(
        ("timeout", "problem"),
        [
            ("1", "is neither a number of seconds nor a timedelta"),
            (True, "is neither a number of seconds nor a timedelta"),
            (float("nan"), "is neither a number of seconds nor a timedelta"),
            (float("inf"), "is neither a number of seconds nor a timedelta"),
            (1e300, "is too long"),
        ],
    )
    def test_that_is_no_duration_is_refused(self, timeout, problem: str) -> None:
        with pytest.raises(
            InvalidJobError, match=rf"^timeout=.* {problem}: give seconds or a timedelta$"
        ):
            check_timeout(timeout)


class Nowhere(tzinfo):
    def utcoffset(self, moment: datetime | None, /) -> timedelta | None:
        return None

    dst = utcoffset

    def tzname(self, moment: datetime | None, /) -> str | None:
        return None


class TestInstants:
    def test_are_cut_to_utc_milliseconds(self) -> None:
        berlin = datetime(2026, 7, 1, 14, 0, 0, 123_999, tzinfo=ZoneInfo("Europe/Berlin"))
        checked = check_aware(berlin, field="run_at")
        assert checked == datetime(2026, 7, 1, 12, 0, 0, 123_000, tzinfo=UTC)
        assert checked.tzinfo is UTC

    @pytest.mark.parametrize(
        "naive", [datetime(2026, 5, 5, 12), datetime(2026, 5, 5, 12, tzinfo=Nowhere())]
    )
    def test_that_are_naive_are_refused_with_how_to_make_them_aware(self, naive: datetime) -> None:
        with pytest.raises(InvalidJobError) as caught:
            check_aware(naive, field="run_at")
        assert str(caught.value) == (
            f"run_at={naive!r} has no time zone: make it aware, for example "
            "datetime.now(timezone.utc) or value.replace(tzinfo=ZoneInfo('Europe/Berlin'))"
        )
        assert (caught.value.field, caught.value.value) == ("run_at", naive)

    @pytest.mark.parametrize("other", ["2026-05-05T12:00:00Z", 1_777_777_777, date(2026, 5, 5)])
    def test_that_are_no_datetimes_are_refused(self, other) -> None:
        with pytest.raises(InvalidJobError, match="is not a datetime: give a timezone-aware one"):
            check_aware(other, field="run_at")

    @pytest.mark.parametrize(
        "edge",
        [
            datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))),
            datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
        ],
    )
    def test_that_utc_cannot_express_are_refused(self, edge: datetime) -> None:
        with pytest.raises(InvalidJobError, match=r"^run_at=.* is out of range$"):
            check_aware(edge, field="run_at")


class TestRunAt:
    def test_is_now_unless_something_else_is_wanted(self) -> None:
        assert resolve_run_at(NOW, None, None) == NOW

    def test_may_be_any_aware_instant(self) -> None:
        assert resolve_run_at(NOW, NOW - timedelta(days=1), None) == NOW - timedelta(days=1)
        assert resolve_run_at(NOW, NOW + timedelta(days=1), None) == NOW + timedelta(days=1)

    def test_may_be_given_as_a_delay(self) -> None:
        assert resolve_run_at(NOW, None, 0) == NOW
        assert resolve_run_at(NOW, None, 1.5) == NOW + timedelta(seconds=1.5)
        assert resolve_run_at(NOW, None, timedelta(hours=1)) == NOW + timedelta(hours=1)

    def test_is_in_whole_milliseconds(self) -> None:
        assert resolve_run_at(NOW, None, 0.0015) == NOW + timedelta(milliseconds=1)

    @pytest.mark.parametrize("delay", [0, 5])
    def test_together_with_a_delay_is_refused(self, delay: int) -> None:
        with pytest.raises(InvalidJobError) as caught:
            resolve_run_at(NOW, NOW, delay)
        assert str(caught.value) == (
            "give run_at (a point in time) or delay (a duration), not both"
        )
        assert caught.value.field == "run_at"

    @pytest.mark.parametrize("delay", [-1, -0.001, timedelta(seconds=-1)])
    def test_a_negative_delay_is_refused(self, delay) -> None:
        with pytest.raises(InvalidJobError) as caught:
            resolve_run_at(NOW, None, delay)
        assert str(caught.value) == f"delay={delay!r} is negative: leave it out to run at once"
        assert (caught.value.field, caught.value.value) == ("delay", delay)

    @pytest.mark.parametrize(
        ("delay", "problem"),
        [
            ("soon", "is neither a number of seconds nor a timedelta: give seconds or a timedelta"),
            (True, "is neither a number of seconds nor a timedelta: give seconds or a timedelta"),
            (float("nan"), "is neither a number of seconds nor a timedelta"),
            (1e12, "is too long"),
            (timedelta.max, "is too long"),
        ],
    )
    def test_a_delay_that_is_no_duration_is_refused(self, delay, problem: str) -> None:
        with pytest.raises(InvalidJobError, match=rf"^delay=.* {problem}"):
            resolve_run_at(NOW, None, delay)

    def test_a_delay_past_the_end_of_time_is_refused(self) -> None:
        late = datetime(9999, 12, 31, tzinfo=UTC)
        with pytest.raises(InvalidJobError, match=r"^delay=172800 is too long$"):
            resolve_run_at(late, None, 172_800)

    def test_a_naive_one_is_refused(self) -> None:
        with pytest.raises(InvalidJobError, match=r"^run_at=.* has no time zone: make it aware"):
            resolve_run_at(NOW, datetime(2026, 5, 5), None)


def test_what_is_refused_is_both_a_value_error_and_a_monque_error() -> None:
    assert issubclass(InvalidJobError, ValueError)
    assert issubclass(InvalidJobError, MonqueError)
