"""A job for the unit test of a handler."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from monque_core.testing import make_job

if TYPE_CHECKING:
    from monque_core import Job


def test_a_job_is_as_it_is_in_its_first_run() -> None:
    job: Job[dict[str, str]] = make_job({"to": "Ada"})

    assert (job.data, job.status) == ({"to": "Ada"}, "processing")
    assert (job.claims, job.fail_count) == (1, 0)
    assert job.created_at == job.next_run_at == job.locked_at
    assert job.created_at.tzinfo is not None
    assert make_job(None).id != make_job(None).id


def test_any_field_may_be_given() -> None:
    job = make_job(7, name="charge", fail_count=2, claims=3, max_retries=5)

    assert (job.name, job.fail_count, job.claims, job.max_retries) == ("charge", 2, 3, 5)


def test_a_field_that_is_none_is_refused() -> None:
    with pytest.raises(TypeError, match="fail_cuont"):
        make_job(7, fail_cuont=2)
