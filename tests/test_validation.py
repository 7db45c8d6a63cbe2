"""Validation of what users pass in, and the error messages."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from bson import Code, ObjectId
from hypothesis import given, settings
from hypothesis import strategies as st

from monque_core import InvalidCronError, InvalidJobError, JobSelector, Monque
from monque_core.errors import MonqueError
from monque_core.jobs.fields import check_unique_key
from monque_core.options import Options
from monque_core.tasks.definition import define
from monque_core.tasks.selector import TaskSelector
from monque_core.validation import (
    LARGEST_INT,
    MILLISECOND,
    check_aware,
    check_choice,
    check_duration,
    check_exact_duration,
    check_factor,
    check_flag,
    check_id,
    check_keywords,
    check_name,
    check_time_limit,
    check_whole_number,
    is_collection_name,
    is_text,
    refusal,
)
from tests.support.stored import jobs_in
from tests.support.texts import is_control, is_storable, utf16_units

if TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo.asynchronous.database import AsyncDatabase


quick = settings(max_examples=200)


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
            (None, "is of type NoneType"),
            (7, "is of type int"),
            (b"send-email", "is of type bytes"),
        ],
    )
    def test_is_refused_with_what_is_wrong_and_what_is_allowed(self, name, problem: str) -> None:
        with pytest.raises(InvalidJobError) as caught:
            check_name(name)
        assert str(caught.value).startswith("name=")
        assert str(caught.value).endswith(
            " is not allowed: it must be a text of 1 to 255 characters without whitespace or "
            f"control characters; this {problem}"
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
            f"run_at={naive!r} is not allowed: it must be a timezone-aware datetime, such as "
            "datetime.now(timezone.utc) or value.replace(tzinfo=ZoneInfo('Europe/Berlin')); "
            "this has no time zone"
        )
        assert (caught.value.field, caught.value.value) == ("run_at", naive)

    @pytest.mark.parametrize("other", ["2026-05-05T12:00:00Z", 1_777_777_777, date(2026, 5, 5)])
    def test_that_are_no_datetimes_are_refused(self, other) -> None:
        with pytest.raises(InvalidJobError, match=r"timezone-aware datetime, .*; this is of type"):
            check_aware(other, field="run_at")

    @pytest.mark.parametrize(
        "edge",
        [
            datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))),
            datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
        ],
    )
    def test_that_utc_cannot_express_are_refused(self, edge: datetime) -> None:
        with pytest.raises(InvalidJobError, match=r"^run_at=.*; this is out of range$"):
            check_aware(edge, field="run_at")


def test_what_is_refused_is_both_a_value_error_and_a_monque_error() -> None:
    assert issubclass(InvalidJobError, ValueError)
    assert issubclass(InvalidJobError, MonqueError)


class TestId:
    def test_is_an_object_id_or_its_text(self) -> None:
        job_id = ObjectId()
        assert check_id(job_id) is job_id
        assert check_id(str(job_id)) == job_id

    @pytest.mark.parametrize("value", ["", "x" * 24, 7, None, b"0" * 12])
    def test_is_nothing_else(self, value: Any) -> None:
        expected = r"^id=.* must be the id of a job, an ObjectId or its 24 hex digits$"
        with pytest.raises(InvalidJobError, match=expected):
            check_id(value)


class TestKeywords:
    def test_that_exist_are_accepted(self) -> None:
        check_keywords("enqueue", {"delay": 1}, ("delay", "priority"))

    def test_with_a_typo_come_with_the_one_that_is_meant(self) -> None:
        with pytest.raises(TypeError) as caught:
            check_keywords("enqueue", {"prioritty": 1}, ("delay", "priority"))
        assert str(caught.value) == (
            "enqueue() got an unexpected keyword argument 'prioritty': did you mean 'priority'?"
        )

    def test_that_resemble_none_come_with_all_there_are(self) -> None:
        with pytest.raises(TypeError, match=r": known are priority, delay$"):
            check_keywords("enqueue", {"zzz": 1}, ("priority", "delay"))


class TestTimeLimit:
    def test_is_seconds_or_a_timedelta(self) -> None:
        assert check_time_limit(0) == timedelta(0)
        assert check_time_limit(1.5) == check_time_limit(timedelta(seconds=1.5))

    @pytest.mark.parametrize("value", [-1, "1", None, True])
    def test_is_nothing_else(self, value: Any) -> None:
        with pytest.raises(ValueError, match=r"^timeout=.* must be a duration that is not negat"):
            check_time_limit(value)


def test_the_error_is_the_one_that_the_caller_wants() -> None:
    with pytest.raises(InvalidJobError) as caught:
        check_whole_number("limit", -1, least=0, error=InvalidJobError)
    assert (caught.value.field, caught.value.value) == ("limit", -1)
    assert str(caught.value) == (
        f"limit=-1 is not allowed: it must be a whole number from 0 to {LARGEST_INT}"
    )


def test_a_whole_number_without_an_upper_bound_may_be_of_any_size() -> None:
    assert check_whole_number("size", 2**40, least=1, most=None) == 2**40
    with pytest.raises(ValueError, match=r"a whole number of at least 1$"):
        check_whole_number("size", 0, least=1, most=None)


def test_an_exact_duration_is_not_rounded() -> None:
    assert check_exact_duration("delay", 0.0015) == timedelta(microseconds=1500)


def test_a_refusal_says_what_came_and_what_is_expected() -> None:
    assert str(refusal("debounce", -1, "positive")) == (
        "option debounce=-1 is not allowed: it must be positive"
    )


@pytest.mark.parametrize(
    ("value", "duration"),
    [
        (0, timedelta(0)),
        (1, timedelta(seconds=1)),
        (0.25, timedelta(milliseconds=250)),
        (timedelta(minutes=2), timedelta(minutes=2)),
        (0.0001, MILLISECOND),
        (timedelta(milliseconds=1, microseconds=1), 2 * MILLISECOND),
    ],
)
def test_a_duration_is_rounded_up_to_milliseconds(value: Any, duration: timedelta) -> None:
    assert check_duration("debounce", value) == duration


@quick
@given(st.timedeltas(timedelta(0), timedelta(days=36_500)))
def test_a_duration_is_never_shortened_nor_made_longer_by_a_millisecond(value: timedelta) -> None:
    checked = check_duration("debounce", value)
    assert timedelta(0) <= checked - value < MILLISECOND
    assert checked % MILLISECOND == timedelta(0)


@pytest.mark.parametrize(
    "value", [-1, -0.001, timedelta(days=-1), "1", None, True, math.nan, math.inf, [1], 10**30]
)
def test_what_is_no_duration_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"option debounce=.* must be a duration that is not neg"):
        check_duration("debounce", value)


def test_a_duration_below_the_least_is_refused() -> None:
    assert check_duration("interval", 0.001, least=MILLISECOND) == MILLISECOND
    with pytest.raises(ValueError, match=r"option interval=0 .* a duration of at least 1 ms"):
        check_duration("interval", 0, least=MILLISECOND)
    with pytest.raises(ValueError, match="at least 0:00:02"):
        check_duration("interval", 1, least=timedelta(seconds=2))


@pytest.mark.parametrize("value", [1, 2, 2**31 - 1])
def test_whole_numbers_are_returned(value: int) -> None:
    assert check_whole_number("version", value, least=1) == value


@pytest.mark.parametrize("value", [0, -1, 1.0, "1", None, True, 2**31])
def test_what_is_no_whole_number_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"option version=.* a whole number from 1 to 2147483647"):
        check_whole_number("version", value, least=1)


@pytest.mark.parametrize("value", [1, 1.5, 10**400])
def test_factors_are_returned(value: float) -> None:
    assert check_factor("factor", value) == value


@pytest.mark.parametrize("value", [0, 0.99, -2, math.nan, math.inf, "2", None, True])
def test_what_is_no_factor_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"option factor=.* a finite number of at least 1"):
        check_factor("factor", value)


@pytest.mark.parametrize("value", [True, False])
def test_flags_are_returned(value: bool) -> None:
    assert check_flag("reset_on_change", value) is value


@pytest.mark.parametrize("value", [0, 1, None, "yes", []])
def test_what_is_no_flag_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"option reset_on_change=.* must be True or False"):
        check_flag("reset_on_change", value)


def test_a_typo_is_told_which_choice_may_be_meant() -> None:
    assert check_choice("when", "never", ("deleted", "never")) == "never"
    with pytest.raises(
        ValueError,
        match=r"^option when='nevr' is not allowed: "
        r"it must be one of 'deleted', 'never'; did you mean 'never'\?$",
    ):
        check_choice("when", "nevr", ("deleted", "never"))


@pytest.mark.parametrize("value", ["whenever you like", 5, None, ["never"], ""])
def test_what_is_near_to_no_choice_gets_no_hint(value: Any) -> None:
    with pytest.raises(ValueError, match=r"one of 'a', 'b'$"):
        check_choice("when", value, ("a", "b"))


class Name(StrEnum):
    MAIL = "mail"


def test_bson_code_is_not_a_text() -> None:
    assert is_text("mail")
    assert is_text(Name.MAIL)
    assert not is_text(Code("mail"))
    assert not is_text(b"mail")


@pytest.mark.parametrize(
    "check",
    [
        check_name,
        check_unique_key,
        lambda _: check_id(Code("a" * 24)),
        JobSelector,
        lambda code: TaskSelector(name=code),
        lambda code: TaskSelector(collection=code),
        lambda code: TaskSelector(error=code),
        lambda code: TaskSelector(source_id=code),
        lambda code: Options.parse({"collection_name": code}),
        lambda code: Options.parse({"scheduler_instance_id": code}),
        lambda code: define("shop", "orders", name=code),
        lambda code: define("shop", code, name="invoice"),
        lambda code: define(code, "orders", name="invoice"),
        lambda code: define("shop", "orders", name="invoice", watch=[code]),
    ],
)
def test_bson_code_is_refused_wherever_a_text_is_expected(check: Callable[[str], object]) -> None:
    with pytest.raises(ValueError, match=r"Code\("):
        check(Code("mail"))


async def test_bson_code_is_refused_as_a_name_or_key(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque = Monque(db)
    with pytest.raises(InvalidJobError, match="is of type Code"):
        await monque.enqueue(Code("mail"), None)
    with pytest.raises(InvalidJobError, match="is of type Code"):
        await monque.enqueue("mail", None, unique_key=Code("k"))
    with pytest.raises(InvalidJobError, match="is of type Code"):
        await monque.enqueue_many("mail", [Code("a"), Code("b")], unique_key=lambda key: key)
    with pytest.raises(InvalidCronError):
        await monque.schedule(Code("@daily"), "mail", None)
    with pytest.raises(InvalidJobError, match="timezone"):
        await monque.schedule("@daily", "mail", None, timezone=Code("Europe/Berlin"))

    await monque.enqueue(Name.MAIL, None, unique_key=Name.MAIL)
    document = await jobs_in(db).find_one({"name": {"$type": "string"}, "uniqueKey": "mail"})
    assert document is not None
    assert await jobs_in(db).count_documents({}) == 1


@pytest.mark.parametrize("name", ["jobs", "jobs.of.today", "système", "x" * 300])
def test_a_collection_name_may_hold_any_visible_character(name: str) -> None:
    assert is_collection_name(name)


@pytest.mark.parametrize("name", ["", "a$", "a\n", ".a", "a.", "a..b", "system.a", "\ud800", None])
def test_bad_collection_names_are_refused(name: object) -> None:
    assert not is_collection_name(name)
