"""A source collection with one task on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.task_bench import TaskBench

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase


@pytest.fixture
async def bench(db: AsyncDatabase[dict[str, Any]]) -> TaskBench:
    """Give the collection `orders` with the task `invoice`, which watches all of a document."""
    bench = TaskBench(db)
    await bench.prepare()
    bench.define()
    return bench
