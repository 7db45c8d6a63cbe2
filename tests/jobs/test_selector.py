"""Which jobs a selector selects, and which selectors are rejected."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monque_core import InvalidJobError, JobSelector, JobStatus
from tests.support.samples import NOW

HOUR = timedelta(hours=1)


class TestName:
    @pytest.mark.parametrize("name", ["", " ", "\t", "two words", "x" * 256, 5, b"name", ["name"]])
    def test_that_no_job_can_have_is_refused(self, name: Any) -> None:
        with pytest.raises(InvalidJobError, match="name=") as caught:
            JobSelector(name)
        assert (caught.value.field, caught.value.value) == ("name", name)

    def test_may_be_left_out(self) -> None:
        assert JobSelector().name is None

    def test_comes_first_and_the_status_second(self) -> None:
        assert JobSelector("a", "failed") == JobSelector(name="a", status="failed")


class TestStatus:
    @pytest.mark.parametrize("status", JobStatus.ALL)
    def test_may_be_one(self, status: Any) -> None:
        assert JobSelector(status=status).statuses == (status,)

    @pytest.mark.parametrize("kind", [list, tuple, set, frozenset])
    def test_may_be_several_in_any_order(self, kind: Any) -> None:
        selector = JobSelector(status=kind(["failed", "pending", "failed"]))
        assert selector.statuses == ("pending", "failed")

    def test_may_be_left_out(self) -> None:
        assert JobSelector().statuses is None

    @pytest.mark.parametrize(
        ("status", "meant"),
        [
            ("faild", "failed"),
            ("canceled", "cancelled"),
            ("PENDING", None),
            ("complete", "completed"),
        ],
    )
    def test_that_is_unknown_gets_the_closest(self, status: Any, meant: str | None) -> None:
        with pytest.raises(InvalidJobError) as caught:
            JobSelector(status=status)
        message = str(caught.value)
        assert f"status={status!r}" in message
        assert "'pending', 'processing', 'completed', 'failed', 'cancelled'" in message
        assert ("did you mean" in message) is (meant is not None)
        assert meant is None or f"did you mean {meant!r}?" in message

    def test_that_is_unknown_is_told_among_others(self) -> None:
        with pytest.raises(
            InvalidJobError, match=r"status='faild'.*did you mean 'failed'"
        ) as caught:
            JobSelector(status=["pending", "faild"])  # type: ignore[list-item]  # the mistake
        assert (caught.value.field, caught.value.value) == ("status", "faild")

    @pytest.mark.parametrize("status", [[], (), set(), frozenset()])
    def test_of_nothing_is_not_taken_for_all(self, status: Any) -> None:
        with pytest.raises(InvalidJobError, match=r"one or some of .*, or None for all"):
            JobSelector(status=status)

    @pytest.mark.parametrize(
        "status", ["", 1, True, b"failed", {"failed": 1}, [None], [["failed"]]]
    )
    def test_that_is_none_at_all_is_refused(self, status: Any) -> None:
        with pytest.raises(InvalidJobError, match="status="):
            JobSelector(status=status)


@pytest.mark.parametrize("field", ["older_than", "newer_than"])
class TestAge:
    def created(self, field: str, value: Any) -> datetime | None:
        selector = JobSelector(**{field: value})
        bounds = {
            "older_than": selector.created_before(NOW),
            "newer_than": selector.created_after(NOW),
        }
        bound = bounds.pop(field)
        assert list(bounds.values()) == [None]
        return bound

    def test_may_be_a_point_in_time(self, field: str) -> None:
        instant = datetime(2026, 1, 1, 12, tzinfo=timezone(2 * HOUR))
        bound = self.created(field, instant)
        assert bound == instant
        assert bound.tzinfo is UTC

    @pytest.mark.parametrize("age", [3600, 3600.0, HOUR])
    def test_may_be_reckoned_from_now(self, field: str, age: Any) -> None:
        assert self.created(field, age) == NOW - HOUR

    def test_may_be_nothing(self, field: str) -> None:
        assert self.created(field, 0) == NOW
        assert self.created(field, None) is None

    def test_is_not_a_naive_time(self, field: str) -> None:
        with pytest.raises(InvalidJobError, match=f"{field}=.*; this has no time zone"):
            self.created(field, datetime(2026, 1, 1))

    @pytest.mark.parametrize("age", [-1, -0.5, -HOUR])
    def test_is_not_negative(self, field: str, age: Any) -> None:
        with pytest.raises(
            InvalidJobError, match=f"{field}=.* an age that is not negative"
        ) as caught:
            JobSelector(**{field: age})
        assert (caught.value.field, caught.value.value) == (field, age)

    @pytest.mark.parametrize("age", ["1h", True, float("nan"), float("inf"), 1e30, [], b"1"])
    def test_is_nothing_else(self, field: str, age: Any) -> None:
        with pytest.raises(
            InvalidJobError, match=f"{field}=.* an aware datetime, or an age .*; this is"
        ):
            JobSelector(**{field: age})


class TestEverything:
    def test_is_chosen_by_nothing(self) -> None:
        assert JobSelector().is_empty

    @pytest.mark.parametrize(
        "selector",
        [
            JobSelector("a"),
            JobSelector(status="failed"),
            JobSelector(status=JobStatus.ALL),
            JobSelector(older_than=0),
            JobSelector(newer_than=NOW),
        ],
    )
    def test_is_not_chosen_by_anything_else(self, selector: JobSelector) -> None:
        assert not selector.is_empty


@given(st.lists(st.sampled_from(JobStatus.ALL), min_size=1))
def test_equal_choices_of_statuses_are_told_the_same_way(statuses: list[Any]) -> None:
    wanted = JobSelector(status=statuses).statuses
    assert wanted == JobSelector(status=list(reversed(statuses))).statuses
    assert wanted is not None
    assert set(wanted) == set(statuses)


def test_a_selector_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        JobSelector().name = "a"  # type: ignore[misc]  # the mistake
