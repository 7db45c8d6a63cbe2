"""Indexes, collections and databases that are dropped while instances run."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from monque_core import Job, Monque, MonqueError
from monque_core.scheduler import maintenance
from monque_core.store import index_maintenance
from monque_core.store.indexes import job_indexes
from tests.support.happenings import Happenings
from tests.support.samples import a_job
from tests.support.stored import jobs_in
from tests.support.stores import put
from tests.support.tally import Tally
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pymongo.asynchronous.database import AsyncDatabase

    from tests.conftest import AnyDatabase

    Db = AsyncDatabase[dict[str, Any]]

OURS = {index.document["name"] for index in job_indexes(retention=False)}
HEARTBEAT = 0.2


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the maintenance interval so that a test can wait for it."""
    monkeypatch.setattr(maintenance, "INTERVAL", timedelta(seconds=0.05))
    monkeypatch.setattr(index_maintenance, "_FIRST_PAUSE", 0.05)


async def names_of(db: Db) -> set[str]:
    found = [index["name"] async for index in await jobs_in(db).list_indexes()]
    return set(found) - {"_id_"}


async def drop_indexes(db: Db) -> None:
    await jobs_in(db).drop_indexes()


async def drop_collection(db: Db) -> None:
    await jobs_in(db).drop()


async def rename_collection(db: Db) -> None:
    await jobs_in(db).rename("elsewhere")


async def drop_database(db: Db) -> None:
    await db.client.drop_database(db.name)


@pytest.mark.parametrize("drop", [drop_indexes, drop_collection, rename_collection, drop_database])
async def test_jobs_keep_flowing_and_the_indexes_come_back(
    any_db: AnyDatabase, db: Db, drop: Callable[[Db], Awaitable[None]]
) -> None:
    monque = Monque(any_db, poll_interval=0.05, heartbeat_interval=HEARTBEAT)
    happenings = Happenings(monque)
    ran = Tally[int]()

    @monque.worker("work", concurrency=5)
    async def note(job: Job[int]) -> None:
        ran.add(job.data)

    async with monque:
        await monque.enqueue_many("work", range(10))
        await happenings.reach("job:complete", 10)
        await drop(db)
        await monque.enqueue_many("work", range(10, 20))
        await happenings.reach("job:complete", 20)

        async def are_back() -> bool:
            return await names_of(db) == OURS

        await eventually(are_back)
        await monque.enqueue("work", 20, unique_key="one")
        await happenings.reach("job:complete", 21)

    assert sorted(ran) == list(range(21))
    # A query may be running at that moment, and a change stream ends.
    assert len(happenings.of("job:error")) <= 3
    assert len(happenings.of("changestream:error")) <= 2


async def test_they_do_not_come_back_without_index_creation(db: Db) -> None:
    monque = Monque(db, skip_index_creation=True, heartbeat_interval=HEARTBEAT)
    happenings = Happenings(monque)

    @monque.worker("work")
    async def run(job: Job[int]) -> None: ...

    async with monque:
        # For several rounds of maintenance, each of which quarantines what it finds.
        for count in (1, 2, 3):
            await jobs_in(db).insert_one({"name": "work", "status": "pending"})
            await happenings.reach("job:error", count)
    assert await names_of(db) == set()


async def test_duplicate_keys_stored_meanwhile_are_reported_once_and_block_nothing(
    db: Db,
) -> None:
    monque = Monque(db, heartbeat_interval=HEARTBEAT)
    happenings = Happenings(monque)

    @monque.worker("work")
    async def run(job: Job[int]) -> None: ...

    async with monque:
        await jobs_in(db).drop_indexes()
        await put(db, *(a_job(name="nobody's", unique_key="twice") for _ in range(2)))
        (event,) = await happenings.reach("job:error")

        async def others_are_back() -> bool:
            return await names_of(db) == OURS - {"monque_py_unique"}

        await eventually(others_are_back)
        for count in (1, 2, 3):
            await monque.enqueue("work", count)
            await happenings.reach("job:complete", count)
        assert happenings.of("job:error") == [event]
        await jobs_in(db).delete_one({"uniqueKey": "twice"})

        async def all_are_back() -> bool:
            return await names_of(db) == OURS

        await eventually(all_are_back)

    assert type(event.error) is MonqueError
    assert "monque_py_unique" in str(event.error)
    assert "cancel or delete one" in str(event.error)
    assert happenings.of("job:error") == [event]


async def test_jobs_that_no_query_finds_are_eventually_quarantined(db: Db) -> None:
    first, second = (Monque(db, heartbeat_interval=HEARTBEAT) for _ in range(2))
    both = [Happenings(monque) for monque in (first, second)]
    undated: list[object] = [None, "2020-01-01", 5, {}, [], True]
    for monque in (first, second):
        monque.worker("work", _nothing)
    foreign = {"_id": "of another program", "title": "no job of ours"}
    await jobs_in(db).insert_one(dict(foreign))
    await jobs_in(db).insert_many(
        [{"name": "work", "status": "pending", "nextRunAt": value} for value in undated]
        + [{"name": "work", "status": "pending"}, {"name": "other", "status": "pending"}]
    )

    async def told() -> bool:
        return sum(len(one.of("job:error")) for one in both) >= len(undated) + 1

    async with first, second:
        await eventually(told)
        await first.enqueue("work", 1)
        await first.run_until_idle()

    # Each is reported by exactly one of the instances, and never again.
    assert sum(len(one.of("job:error")) for one in both) == len(undated) + 1
    assert await jobs_in(db).count_documents({"status": "failed"}) == len(undated) + 1
    assert await jobs_in(db).find_one({"_id": foreign["_id"]}) == foreign


async def _nothing(job: Job[Any]) -> None: ...
