"""A key is one, whichever side enqueues under it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from monque_core import JobStatus, Monque
from tests.support.stored import jobs_in, stored

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from tests.interop.neighbour import Neighbour

_CALLS = 20


async def test_a_job_of_one_side_is_found_by_the_other_and_left_as_it_is(
    neighbour: Neighbour, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(db)
    of_python = await monque.enqueue("sync", "python", unique_key="a", delay=60)
    of_node = await neighbour.enqueue("sync", "node", uniqueKey="b")

    found_by_node = await neighbour.enqueue("sync", "node", uniqueKey="a")
    found_by_python = await monque.enqueue("sync", "python", unique_key="b")

    assert (found_by_node["_id"], found_by_node["data"]) == (of_python.id, "python")
    assert (found_by_python.id, found_by_python.data) == (of_node["_id"], "node")
    assert found_by_python.deduplicated
    assert await stored(db, of_python) == of_python


async def test_both_sides_at_once_make_one_job_per_key(
    neighbour: Neighbour, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(db)
    for key in ("a", "b", "c"):
        of_python, of_node = await asyncio.gather(
            asyncio.gather(
                *(monque.enqueue("sync", number, unique_key=key) for number in range(_CALLS))
            ),
            asyncio.gather(
                *(neighbour.enqueue("sync", number, uniqueKey=key) for number in range(_CALLS))
            ),
        )
        assert len({job.id for job in of_python} | {job["_id"] for job in of_node}) == 1

    assert await jobs_in(db).count_documents({}) == 3


async def test_a_key_is_free_again_when_the_other_side_has_run_its_job(
    neighbour: Neighbour, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(db)
    first = await monque.enqueue("sync", 1, unique_key="a")
    await neighbour.work("sync")
    await neighbour.see_end(first)

    second = await monque.enqueue("sync", 2, unique_key="a")
    await neighbour.see_end(second)
    third = await neighbour.enqueue("sync", 3, uniqueKey="a")

    assert not second.deduplicated
    assert len({first.id, second.id, third["_id"]}) == 3
    assert (await stored(db, first)).status == JobStatus.COMPLETED
