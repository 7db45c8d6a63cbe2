"""Unique keys hold across both sides."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from monque_core import InvalidJobError, JobStatus, Monque
from tests.interop.node_worker import NodeError, assert_one_document
from tests.support.stored import jobs_in, stored

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from tests.interop.node_worker import NodeWorker

_CALLS = 20


async def test_each_side_finds_an_active_job_of_the_other_and_leaves_it_unchanged(
    node_worker: NodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(db)
    of_python = await monque.enqueue("sync", "python", unique_key="a", delay=60)
    of_node = await node_worker.enqueue("sync", "node", uniqueKey="b")

    found_by_node = await node_worker.enqueue("sync", "node", uniqueKey="a")
    found_by_python = await monque.enqueue("sync", "python", unique_key="b")

    assert (found_by_node["_id"], found_by_node["data"]) == (of_python.id, "python")
    assert (found_by_python.id, found_by_python.data) == (of_node["_id"], "node")
    assert found_by_python.deduplicated
    assert await stored(db, of_python) == of_python


async def test_both_sides_at_once_make_one_job_per_key(
    node_worker: NodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(db)
    for key in ("a", "b", "c"):
        of_python, of_node = await asyncio.gather(
            asyncio.gather(
                *(monque.enqueue("sync", number, unique_key=key) for number in range(_CALLS))
            ),
            asyncio.gather(
                *(node_worker.enqueue("sync", number, uniqueKey=key) for number in range(_CALLS)),
                return_exceptions=True,
            ),
        )
        assert_one_document(of_python, of_node)

    assert await jobs_in(db).count_documents({}) == 3


async def test_a_key_is_free_again_when_the_other_side_has_run_its_job(
    node_worker: NodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(db)
    first = await monque.enqueue("sync", 1, unique_key="a")
    await node_worker.work("sync")
    await node_worker.see_end(first)

    second = await monque.enqueue("sync", 2, unique_key="a")
    await node_worker.see_end(second)
    third = await node_worker.enqueue("sync", 3, uniqueKey="a")

    assert not second.deduplicated
    assert len({first.id, second.id, third["_id"]}) == 3
    assert (await stored(db, first)).status == JobStatus.COMPLETED


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("\ufeffsync", "key"),
        ("🐟" * 128, "key"),
        ("sync", "🐟" * 513),
        ("sync", "\ufeff"),
        ("x" * 256, "key"),
    ],
)
async def test_names_and_keys_that_node_refuses_are_refused_here(
    node_worker: NodeWorker, db: AsyncDatabase[dict[str, Any]], name: str, key: str
) -> None:
    with pytest.raises(NodeError):
        await node_worker.enqueue(name, None, uniqueKey=key)
    with pytest.raises(InvalidJobError):
        await Monque(db).enqueue(name, None, unique_key=key)


async def test_the_longest_names_and_keys_are_accepted_by_both(
    node_worker: NodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    name, key = "🐟" * 127, "🐟" * 512
    of_node = await node_worker.enqueue(name, None, uniqueKey=key)
    assert (await Monque(db).enqueue(name, None, unique_key=key)).id == of_node["_id"]
