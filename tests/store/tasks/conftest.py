"""A source collection with one task on it.

Creating a database with its indexes takes longer than most of these tests, so they share one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from pymongo import MongoClient

from monque_core.store.tasks.indexes import task_indexes
from tests.support.task_bench import TaskBench

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo import AsyncMongoClient
    from pymongo.asynchronous.database import AsyncDatabase


@pytest.fixture(scope="module")
def shared_database(uri: str) -> Iterator[str]:
    """Yield the name of a database with the indexes of the records of `orders`."""
    name = f"test_{uuid4().hex}"
    with MongoClient[dict[str, Any]](uri) as client:
        client[name]["orders_tasks"].create_indexes(list(task_indexes()))
        yield name
        client.drop_database(name)


@pytest.fixture
async def bench(shared_database: str, client: AsyncMongoClient[dict[str, Any]]) -> TaskBench:
    """Yield an empty collection `orders` with the task `invoice`, which watches all fields."""
    bench = TaskBench(client[shared_database])
    await bench.source.delete_many({})
    await bench.records.delete_many({})
    bench.define()
    return bench


@pytest.fixture
async def own_bench(db: AsyncDatabase[dict[str, Any]]) -> TaskBench:
    """Yield the same in a database of its own, for tests that change more than documents."""
    bench = TaskBench(db)
    await bench.prepare()
    bench.define()
    return bench
