"""Comparing stored jobs with the expected one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from unittest.mock import ANY

import pytest

from monque_core import InvalidJobError, JobStatus
from monque_core.testing.expectation import Expectation
from tests.support.samples import a_job


def expected(**fields: Any) -> Expectation:
    """Return an expectation of a name, and of the given fields."""
    anything = {"name": "welcome", "data": ANY, "unique_key": ANY, "status": JobStatus.ACTIVE}
    return Expectation(**(anything | fields))


def differences(expectation: Expectation, **fields: Any) -> list[str]:
    return list(expectation.differences(a_job(**{"name": "welcome"} | fields)))


@pytest.mark.parametrize("data", [None, 0, "", [], {}, {"to": "Ada"}])
@pytest.mark.parametrize("unique_key", [None, "key"])
def test_what_is_left_out_may_be_anything(data: object, unique_key: str | None) -> None:
    job = a_job(name="welcome", data=data, unique_key=unique_key)
    assert expected().matches(job)


@pytest.mark.parametrize(
    ("status", "statuses"),
    [
        (JobStatus.ACTIVE, {"pending", "processing"}),
        ("failed", {"failed"}),
        (["failed"], {"failed"}),
        (None, set(JobStatus.ALL)),
    ],
)
def test_a_job_counts_in_the_statuses_that_are_expected(status: Any, statuses: set[str]) -> None:
    expectation = expected(status=status)
    met = {one for one in JobStatus.ALL if expectation.matches(a_job(name="welcome", status=one))}
    assert met == statuses


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (None, None),
        ({"to": "Ada", "cc": ["Bob"]}, {"cc": ["Bob"], "to": "Ada"}),
        ((1, (2, 3)), [1, [2, 3]]),
        ({"to": ANY, "at": [ANY]}, {"to": "Ada", "at": [7]}),
        ({"share": pytest.approx(0.3)}, {"share": 0.1 + 0.2}),
        (
            {"at": datetime(2026, 3, 2, 14, 0, 0, 1_999, tzinfo=timezone(timedelta(hours=2)))},
            {"at": datetime(2026, 3, 2, 12, 0, 0, 1_000, tzinfo=UTC)},
        ),
        (datetime(2026, 3, 2, 12), datetime(2026, 3, 2, 12, tzinfo=UTC)),
    ],
)
def test_data_is_compared_as_it_is_stored(given: object, stored: object) -> None:
    assert differences(expected(data=given), data=stored) == []


@pytest.mark.parametrize(
    ("given", "stored", "told"),
    [
        (1, 2, ["data is 2, not 1"]),
        ([1], [1, 2], ["data is [1, 2], not [1]"]),
        (None, {}, ["data is {}, not None"]),
        ({"to": "Ada"}, {"to": "Bob"}, ["data['to'] is 'Bob', not 'Ada'"]),
        ({"to": "Ada"}, {}, ["data['to'] is missing"]),
        ({}, {"to": "Ada"}, ["data['to'] was not expected"]),
        ({"a": {"b": [1]}, "c": 1}, {"a": {"b": [2]}, "c": 1}, ["data['a']['b'] is [2], not [1]"]),
        ({"a": {"b": 1}}, {"a": 1}, ["data['a'] is 1, not {'b': 1}"]),
    ],
)
def test_a_difference_in_the_data_is_reported_where_it_is(
    given: object, stored: object, told: list[str]
) -> None:
    assert differences(expected(data=given), data=stored) == told


def test_a_key_none_means_that_there_is_none() -> None:
    assert differences(expected(unique_key=None), unique_key=None) == []
    assert differences(expected(unique_key=None), unique_key="k") == ["unique_key is 'k', not None"]
    assert differences(expected(unique_key="k"), unique_key="l") == ["unique_key is 'l', not 'k'"]


def test_everything_that_differs_is_reported() -> None:
    expectation = expected(data=1, unique_key="k")
    assert differences(expectation, name="goodbye", status="failed", data=2) == [
        "the name",
        "status is failed",
        "unique_key is None, not 'k'",
        "data is 2, not 1",
    ]


def test_the_nearest_job_is_one_of_the_name_that_differs_least() -> None:
    expectation = expected(data={"to": "Ada", "language": "en", "formal": True}, unique_key="k")
    near_to_far = [
        a_job(name="welcome", data={"to": "Ada", "language": "en", "formal": True}, unique_key="k"),
        a_job(name="welcome", data={"to": "Bob", "language": "en", "formal": True}, unique_key="k"),
        a_job(name="welcome", data={"to": "Bob", "language": "de", "formal": True}, unique_key="k"),
        a_job(name="welcome", data=None, unique_key="k"),
        a_job(name="welcome", data=None, unique_key="other", status="failed"),
        a_job(name="welcom", data={"to": "Ada", "language": "en", "formal": True}, unique_key="k"),
        a_job(name="invoice", data={"to": "Ada", "language": "en", "formal": True}, unique_key="k"),
    ]
    distances = [expectation.distance(job) for job in near_to_far]
    assert distances == sorted(distances)
    assert len(set(distances)) == len(distances)
    assert distances[0] == 0


@pytest.mark.parametrize(
    "wrong", [{"name": ""}, {"name": 7}, {"status": "waiting"}, {"status": []}, {"status": 7}]
)
def test_what_no_job_can_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidJobError):
        expected(**wrong)


def test_the_statuses_are_reported_in_words() -> None:
    assert expected().state == "pending or processing"
    assert expected(status="failed").state == "failed"
    assert expected(status=None).state == "in any status"


def test_a_status_that_is_nearly_one_is_corrected() -> None:
    with pytest.raises(InvalidJobError, match="did you mean 'completed'"):
        expected(status="complete")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "'welcome'"),
        ({"data": None}, "'welcome' with data=None"),
        (
            {"data": {"to": 1}, "unique_key": "k"},
            "'welcome' with data={'to': 1} and unique_key='k'",
        ),
    ],
)
def test_it_describes_itself_by_what_was_given(fields: dict[str, Any], words: str) -> None:
    assert str(expected(**fields)) == words
