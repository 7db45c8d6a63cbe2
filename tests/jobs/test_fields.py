"""The table of a job's fields agrees with `Job` and with the options of `enqueue`."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monque_core.errors import InvalidJobError
from monque_core.jobs.draft import EnqueueOptions
from monque_core.jobs.fields import (
    FIELDS,
    check_max_retries,
    check_priority,
    check_timeout,
    check_unique_key,
)
from monque_core.jobs.job import Job
from tests.support.texts import is_control, is_storable, utf16_units

quick = settings(max_examples=100)
NOT_STORED = {"run_at", "delay", "session"}


class TestTable:
    def test_has_every_attribute_of_a_job_but_those_that_are_not_stored(self) -> None:
        attributes = {field.name for field in dataclasses.fields(Job)} - {"deduplicated"}
        assert sorted(field.name for field in FIELDS) == sorted(attributes)

    def test_names_each_field_once(self) -> None:
        assert len({field.key for field in FIELDS}) == len(FIELDS)

    def test_checks_every_option_of_enqueue_that_is_stored(self) -> None:
        checked = {field.name for field in FIELDS if field.check is not None}
        assert checked == set(EnqueueOptions.__annotations__) - NOT_STORED

    def test_accepts_the_default_of_every_option(self) -> None:
        for field in FIELDS:
            if field.check is not None:
                assert field.check(field.default) == field.default

    def test_copies_no_field_that_makes_a_job_a_schedule_or_unique(self) -> None:
        copied = {field.name for field in FIELDS if field.copied}
        assert copied.isdisjoint({"id", "unique_key", "repeat_interval", "timezone"})


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
            (42, "is of type int"),
        ],
    )
    def test_is_refused_with_what_is_wrong_and_what_is_allowed(self, key, problem: str) -> None:
        with pytest.raises(InvalidJobError) as caught:
            check_unique_key(key)
        assert str(caught.value).startswith("unique_key=")
        assert str(caught.value).endswith(
            " is not allowed: it must be a text of 1 to 1024 characters without control "
            f"characters; this {problem}"
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
            match=r"^priority=.* is not allowed: it must be a whole number from 0 to 2147483647$",
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
            r"it must be a whole number from 1 to 2147483647, the number of runs in all$",
        ):
            check_max_retries(max_retries)


class TestTimeout:
    def test_is_seconds_or_a_timedelta_or_nothing(self) -> None:
        assert check_timeout(None) is None
        assert check_timeout(1.5) == timedelta(seconds=1.5)
        assert check_timeout(timedelta(minutes=2)) == timedelta(minutes=2)
        assert check_timeout(0.001) == timedelta(milliseconds=1)

    @pytest.mark.parametrize("timeout", [0, -1, 0.0001, timedelta(0), timedelta(microseconds=999)])
    def test_is_at_least_a_millisecond(self, timeout) -> None:
        with pytest.raises(
            InvalidJobError, match=r"^timeout=.* is not allowed: it must be a duration of .* 1 ms,"
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
        with pytest.raises(InvalidJobError, match=rf"^timeout=.*; this {problem}$"):
            check_timeout(timeout)
