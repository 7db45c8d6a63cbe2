"""The errors of monque: their messages and attributes."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest
from bson import ObjectId

import monque_core
from monque_core import (
    InvalidCronError,
    InvalidCursorError,
    InvalidJobError,
    JobStateError,
    MonqueConnectionError,
    MonqueError,
    PayloadTooLargeError,
    ShutdownTimeoutError,
    WorkerRegistrationError,
    errors,
)
from tests.support.samples import a_job

ALL = [
    error
    for _, error in inspect.getmembers(errors, inspect.isclass)
    if issubclass(error, BaseException)
]


@pytest.mark.parametrize("error", ALL)
def test_every_error_is_a_monque_error(error: type[BaseException]) -> None:
    assert issubclass(error, MonqueError)


@pytest.mark.parametrize("error", ALL)
def test_every_error_can_be_imported_from_the_package(error: type[BaseException]) -> None:
    assert getattr(monque_core, error.__name__) is error
    assert error.__name__ in monque_core.__all__


def test_they_are_those_of_the_specification() -> None:
    assert {error.__name__ for error in ALL} == {
        "MonqueError",
        "MonqueConnectionError",
        "InvalidCronError",
        "InvalidJobError",
        "PayloadTooLargeError",
        "WorkerRegistrationError",
        "JobStateError",
        "InvalidCursorError",
        "ShutdownTimeoutError",
        "OwnershipLostError",
        "AggregationTimeoutError",
        "LeadershipLostError",
        "UnplannableError",
    }


@pytest.mark.parametrize(
    "error", [InvalidJobError, InvalidCronError, PayloadTooLargeError, InvalidCursorError]
)
def test_errors_about_arguments_are_value_errors(error: type[BaseException]) -> None:
    assert issubclass(error, ValueError)


@pytest.mark.parametrize("error", [MonqueConnectionError, JobStateError, ShutdownTimeoutError])
def test_other_errors_are_not_value_errors(error: type[BaseException]) -> None:
    assert not issubclass(error, ValueError)


def test_an_invalid_job_names_the_field_and_the_value() -> None:
    error = InvalidJobError("name", 7, "a name is text")
    assert (str(error), error.field, error.value) == ("a name is text", "name", 7)


def test_an_invalid_cron_expression_says_why_and_shows_what_is_expected() -> None:
    error = InvalidCronError("61 * * * *", "61 is no minute")
    assert str(error) == (
        "invalid cron expression '61 * * * *': 61 is no minute; "
        "five fields are expected (minute hour day month weekday), "
        "for example '0 9 * * 1-5', six with seconds in front, or a shorthand such as @daily"
    )
    assert error.expression == "61 * * * *"


def test_a_worker_that_cannot_be_registered_names_the_job() -> None:
    assert WorkerRegistrationError("send-email", "taken").job_name == "send-email"


def test_a_job_in_the_wrong_state_says_which_it_is_in() -> None:
    job_id = ObjectId()
    error = JobStateError(job_id, "processing", "cancel")
    assert str(error) == f"cannot cancel job {job_id}: it is processing"
    assert (error.job_id, error.current_status, error.action) == (job_id, "processing", "cancel")


def test_a_stop_that_ran_out_of_time_gives_the_jobs() -> None:
    jobs = [a_job(name="b"), a_job(name="a"), a_job(name="b")]
    error = ShutdownTimeoutError(jobs)
    assert str(error) == "stopped with 3 unfinished job(s): a, b"
    assert error.incomplete_jobs == tuple(jobs)


@pytest.mark.parametrize("again", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
@pytest.mark.parametrize(
    "error",
    [
        MonqueConnectionError("away"),
        InvalidJobError("name", 7, "bad name"),
        InvalidCronError("x", "it is one letter"),
        PayloadTooLargeError(20, 10),
        WorkerRegistrationError("work", "twice"),
        JobStateError(ObjectId(), "processing", "cancel"),
        ShutdownTimeoutError([a_job()]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_can_be_copied_and_sent_to_another_process(error: MonqueError, again: Any) -> None:
    twin = again(error)
    assert type(twin) is type(error)
    assert str(twin) == str(error)
    assert vars(twin) == vars(error)
