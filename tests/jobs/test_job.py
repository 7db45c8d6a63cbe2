"""The class `Job`."""

from __future__ import annotations

import enum
from typing import get_args

import pytest

from monque_core import Job, JobStatus
from monque_core.jobs.job import StatusName
from tests.support.samples import NOW, a_job


class TestStatus:
    def test_constants_are_the_stored_texts(self) -> None:
        assert JobStatus.PENDING == "pending"
        assert JobStatus.PROCESSING == "processing"
        assert JobStatus.COMPLETED == "completed"
        assert JobStatus.FAILED == "failed"
        assert JobStatus.CANCELLED == "cancelled"
        assert all(type(status) is str for status in JobStatus.ALL)

    def test_constants_and_the_type_name_the_same_five(self) -> None:
        assert get_args(StatusName) == JobStatus.ALL

    def test_is_a_plain_class(self) -> None:
        assert not issubclass(JobStatus, enum.Enum)


class TestJob:
    def test_is_generic_in_its_data(self) -> None:
        assert Job[dict[str, int]].__args__ == (dict[str, int],)  # type: ignore[attr-defined]  # at run time, an alias has them

    def test_has_nothing_set_that_was_not_given(self) -> None:
        job = a_job()
        optional = [
            job.fail_reason,
            job.locked_at,
            job.claimed_by,
            job.last_heartbeat,
            job.heartbeat_interval,
            job.repeat_interval,
            job.timezone,
            job.unique_key,
            job.claim_token,
            job.max_retries,
            job.timeout,
        ]
        assert optional == [None] * len(optional)
        assert (job.fail_count, job.claims, job.priority) == (0, 0, 0)
        assert job.deduplicated is False

    def test_recurs_if_it_has_a_cron_expression(self) -> None:
        assert a_job(repeat_interval="@daily").is_recurring
        assert not a_job().is_recurring

    def test_is_the_same_job_whether_it_was_there_already_or_not(self) -> None:
        job = a_job()
        again = a_job(id=job.id, deduplicated=True)
        assert job == again

    def test_takes_its_fields_by_name_only(self) -> None:
        with pytest.raises(TypeError):
            Job(a_job().id, "name", None, "pending", NOW, NOW, NOW)  # type: ignore[call-arg]  # the point
