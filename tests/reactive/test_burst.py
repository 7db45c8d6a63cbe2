"""Many documents changed at once."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

from monque_core import Monque, ReactiveOptions
from monque_core.reactive.change_buffer import ChangeBatch
from tests.support.reactions import note_runs, settle
from tests.support.tally import Tally

if TYPE_CHECKING:
    from pymongo.asynchronous.collection import AsyncCollection
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import ReactiveTask

COUNT = 1_200
FLUSH_SIZE = 100
AT_ONCE = 200


async def test_a_burst_of_changes_runs_with_bounded_memory_on_the_leader(
    db: AsyncDatabase[dict[str, Any]], orders: AsyncCollection[dict[str, Any]]
) -> None:
    pace = ReactiveOptions(flush_size=FLUSH_SIZE, flush_interval=0.05)
    leader = Monque(db, reactive_options=pace, worker_concurrency=100)
    most_ids = most_documents = 0
    ran = Tally[int]()

    @leader.reactive("orders", name="invoice", watch=["total"], debounce=0)
    async def invoice(task: ReactiveTask) -> None:
        nonlocal most_ids, most_documents
        ran.add(task.source_id)
        if len(ran) % 100 == 1:
            alive = gc.get_objects()
            ids = sum(len(one) for one in alive if type(one) is ChangeBatch)
            documents = sum(type(one) is dict and "filling" in one for one in alive)
            most_ids, most_documents = max(most_ids, ids), max(most_documents, documents)

    async with leader:
        await settle(leader)
        for i in range(0, COUNT, AT_ONCE):
            await orders.insert_many(
                [{"_id": id, "total": 1, "filling": "x" * 500} for id in range(i, i + AT_ONCE)]
            )
        await ran.reach(COUNT)
        await settle(leader)
        assert await leader.count_reactive_tasks(status="completed") == COUNT
    assert sorted(ran) == list(range(COUNT))
    # One batch is planned and one is buffered, not the whole burst, and no more documents than
    # the test itself is writing.
    assert most_ids <= 2 * FLUSH_SIZE
    assert most_documents <= AT_ONCE


async def test_a_burst_on_a_few_documents_is_planned_once_for_each(
    db: AsyncDatabase[dict[str, Any]], orders: AsyncCollection[dict[str, Any]]
) -> None:
    monque = Monque(db, reactive_options=ReactiveOptions(flush_interval=0.5))
    ran = note_runs(monque, watch=["total"], debounce=1)
    await orders.insert_many([{"_id": i, "total": 0} for i in range(3)])
    async with monque:
        for total in range(1, 50):
            await orders.update_many({}, {"$set": {"total": total}})
        await ran.wait_until(lambda: all((i, {"total": 49}) in ran for i in range(3)))
        await settle(monque)
    assert len(ran) <= 9
