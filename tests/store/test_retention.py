"""Deleting finished jobs."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from monque_core.jobs.job import JobStatus
from tests.support.samples import NOW, a_job
from tests.support.stored import stored_jobs
from tests.support.stores import put

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.store.store import Store

    Db = AsyncDatabase[dict[str, Any]]

FINISHED = ["completed", "failed", "cancelled"]


@pytest.mark.parametrize("status", FINISHED)
async def test_old_jobs_of_the_status_are_deleted(db: Db, store: Store, status: str) -> None:
    old = a_job(status=status, updated_at=NOW - timedelta(milliseconds=1))
    fresh = a_job(status=status, updated_at=NOW)
    others = [
        a_job(status=other, updated_at=NOW - timedelta(days=9))
        for other in JobStatus.ALL
        if other != status
    ]
    await put(db, old, fresh, *others)
    assert await store.finished.delete(status, NOW, 100) == 1
    assert {job.id for job in await stored_jobs(db)} == {job.id for job in [fresh, *others]}


@pytest.mark.parametrize("status", ["pending", "processing"])
async def test_unfinished_jobs_are_never_deleted(db: Db, store: Store, status: str) -> None:
    job = a_job(status=status, updated_at=NOW - timedelta(days=999))
    await put(db, job)
    assert await store.finished.delete(status, NOW, 100) == 0
    assert await stored_jobs(db) == [job]


async def test_age_counts_from_the_last_change_not_from_the_first(db: Db, store: Store) -> None:
    job = a_job(status="completed", created_at=NOW - timedelta(days=9), updated_at=NOW)
    await put(db, job)
    assert await store.finished.delete("completed", NOW, 100) == 0
    assert await stored_jobs(db) == [job]


async def test_the_oldest_go_first_and_no_more_than_asked_for(db: Db, store: Store) -> None:
    jobs = [
        a_job(status="completed", updated_at=NOW - timedelta(hours=n + 1), data=n)
        for n in range(10)
    ]
    await put(db, *jobs)
    assert await store.finished.delete("completed", NOW, 4) == 4
    assert sorted(job.data for job in await stored_jobs(db)) == [0, 1, 2, 3, 4, 5]
    assert await store.finished.delete("completed", NOW, 100) == 6
    assert await store.finished.delete("completed", NOW, 100) == 0
