"""The indexes that an instance creates, and those that it leaves alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from monque_core import JobRetention, MonqueConnectionError
from monque_core.store.indexes import job_indexes
from tests.support.samples import a_job
from tests.support.stored import jobs_in
from tests.support.stores import open_store, put

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pymongo.asynchronous.database import AsyncDatabase

    Db = AsyncDatabase[dict[str, Any]]

ALL = [index.document for index in job_indexes(retention=True)]
ACTIVE = {"$in": ["pending", "processing"]}


async def indexes_of(db: Db, collection_name: str = "monque_jobs") -> dict[str, Mapping[str, Any]]:
    found = [index async for index in await db[collection_name].list_indexes()]
    return {index["name"]: index for index in found if index["name"] != "_id_"}


async def make_those_of_node(db: Db) -> None:
    """Create the indexes of `@monque/core`, which have default names."""
    jobs = jobs_in(db)
    await jobs.create_index({"status": 1, "nextRunAt": 1})
    await jobs.create_index(
        {"name": 1, "uniqueKey": 1},
        unique=True,
        partialFilterExpression={"uniqueKey": {"$exists": True}, "status": ACTIVE},
    )
    await jobs.create_index({"name": 1, "status": 1})
    await jobs.create_index({"claimedBy": 1, "status": 1})
    await jobs.create_index({"lastHeartbeat": 1, "status": 1})
    await jobs.create_index({"status": 1, "nextRunAt": 1, "claimedBy": 1})
    await jobs.create_index({"lockedAt": 1, "lastHeartbeat": 1, "status": 1})


@pytest.mark.parametrize("index", ALL, ids=lambda index: index["name"])
def test_every_index_has_a_name_of_our_own(index: dict[str, Any]) -> None:
    assert index["name"].startswith("monque_py_")


def test_every_index_except_that_of_names_is_partial() -> None:
    """It serves queries for all jobs of a name; no change of status touches it."""
    full = [index for index in ALL if "partialFilterExpression" not in index]
    assert [index["name"] for index in full] == ["monque_py_name"]
    assert list(full[0]["key"]) == ["name", "_id"]


def test_no_two_indexes_are_alike() -> None:
    assert len({index["name"] for index in ALL}) == len(ALL)
    assert len({tuple(index["key"]) for index in ALL}) == len(ALL)


def test_the_unique_index_covers_only_active_jobs() -> None:
    (unique,) = [index for index in ALL if index.get("unique")]
    assert list(unique["key"]) == ["name", "uniqueKey"]
    assert unique["partialFilterExpression"] == {"uniqueKey": {"$gt": ""}, "status": ACTIVE}


async def test_they_are_created_when_an_instance_is_prepared(db: Db) -> None:
    await open_store(db, job_retention=JobRetention(completed=60))
    assert (await indexes_of(db)).keys() == {index["name"] for index in ALL}


async def test_the_retention_index_is_created_only_with_retention(db: Db) -> None:
    await open_store(db)
    assert (await indexes_of(db)).keys() == {
        index.document["name"] for index in job_indexes(retention=False)
    }
    assert "monque_py_retention" not in await indexes_of(db)


async def test_leases_of_dead_instances_are_removed_by_the_server_a_day_later(db: Db) -> None:
    await open_store(db)
    expiry = (await indexes_of(db, "monque_jobs_meta"))["monque_py_expiry"]
    assert (expiry["key"], expiry["expireAfterSeconds"]) == ({"expiresAt": 1}, 86_400)


async def test_they_can_be_created_again(db: Db) -> None:
    await open_store(db, "one")
    before = await indexes_of(db)
    await open_store(db, "two")
    assert await indexes_of(db) == before


async def test_they_are_not_created_if_disabled(db: Db) -> None:
    await open_store(db, skip_index_creation=True)
    assert await db.list_collection_names() == []


async def test_node_can_create_its_indexes_after_ours(db: Db) -> None:
    await open_store(db, job_retention=JobRetention(completed=60))
    await make_those_of_node(db)
    assert len(await indexes_of(db)) == len(ALL) + 7


async def test_our_indexes_can_be_created_after_those_of_node(db: Db) -> None:
    await make_those_of_node(db)
    await open_store(db, job_retention=JobRetention(completed=60))
    assert len(await indexes_of(db)) == len(ALL) + 7


async def test_a_failed_creation_names_the_collection_and_the_cause(db: Db) -> None:
    await put(db, *(a_job(unique_key="twice") for _ in range(2)))
    with pytest.raises(
        MonqueConnectionError, match=r"the collection 'monque_jobs' cannot be prepared: .*duplicate"
    ) as caught:
        await open_store(db)
    assert caught.value.__cause__ is not None
