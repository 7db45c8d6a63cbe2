"""The jobs in the collection that a selector matches."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from monque_core import JobSelector, JobStatus
from monque_core.store.listing import selected
from tests.support.samples import NOW, a_job
from tests.support.stored import jobs_in
from tests.support.stores import put

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    Db = AsyncDatabase[dict[str, Any]]

AGES = [0, 59, 60, 61, 3600]


async def found(db: Db, selector: JobSelector, field: str = "data") -> list[Any]:
    documents = jobs_in(db).find(selected(selector, NOW)).sort("_id", 1)
    return [document[field] async for document in documents]


@pytest.fixture
async def aged(db: Db) -> None:
    """Store jobs that were created this many seconds ago, with this age as their data."""
    await put(
        db,
        *(a_job(data=age, created_at=NOW - timedelta(seconds=age), updated_at=NOW) for age in AGES),
    )


def test_an_empty_selector_has_an_empty_filter() -> None:
    assert selected(JobSelector(), NOW) == {}


async def test_a_name_is_matched_as_a_whole(db: Db) -> None:
    names = ["a", "ab", "A", "$a", "a.b", "a*"]
    await put(db, *(a_job(name=name) for name in names))
    for name in names:
        assert await found(db, JobSelector(name), "name") == [name]
    assert await found(db, JobSelector("absent")) == []


async def test_one_status_or_several_are_matched(db: Db) -> None:
    await put(db, *(a_job(status=status) for status in JobStatus.ALL))
    for status in JobStatus.ALL:
        assert await found(db, JobSelector(status=status), "status") == [status]
    assert await found(db, JobSelector(status=["cancelled", "pending"]), "status") == [
        "pending",
        "cancelled",
    ]
    assert len(await found(db, JobSelector(status=JobStatus.ALL))) == len(JobStatus.ALL)


@pytest.mark.usefixtures("aged")
@pytest.mark.parametrize("minute", [60, 60.0, timedelta(minutes=1), NOW - timedelta(minutes=1)])
async def test_an_age_excludes_its_own_moment(db: Db, minute: Any) -> None:
    assert await found(db, JobSelector(older_than=minute)) == [61, 3600]
    assert await found(db, JobSelector(newer_than=minute)) == [0, 59]


@pytest.mark.usefixtures("aged")
async def test_a_span_has_two_ends(db: Db) -> None:
    assert await found(db, JobSelector(newer_than=61, older_than=0)) == [59, 60]
    assert await found(db, JobSelector(newer_than=0, older_than=61)) == []


async def test_all_conditions_hold_together(db: Db) -> None:
    old = NOW - timedelta(days=1)
    wanted = a_job(name="a", status="failed", created_at=old, data="wanted")
    await put(
        db,
        wanted,
        a_job(name="b", status="failed", created_at=old),
        a_job(name="a", status="pending", created_at=old),
        a_job(name="a", status="failed"),
    )
    assert await found(db, JobSelector("a", "failed", older_than=3600)) == ["wanted"]


async def test_a_document_without_a_creation_time_has_no_age(db: Db) -> None:
    await jobs_in(db).insert_many([{"data": 1}, {"data": 2, "createdAt": "yesterday"}])
    assert await found(db, JobSelector(older_than=0)) == []
    assert await found(db, JobSelector(newer_than=0)) == []
