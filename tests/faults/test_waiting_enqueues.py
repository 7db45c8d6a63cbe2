"""Concurrent `enqueue` calls that wait for a write which fails or hangs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from monque_core import Monque, MonqueConnectionError
from tests.support.stored import stored_jobs
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pymongo.asynchronous.database import AsyncDatabase

    from tests.support.proxy import Proxy

    Db = AsyncDatabase[dict[str, Any]]


def inserts(command: Mapping[str, Any]) -> bool:
    return "insert" in command


def inserts_several(command: Mapping[str, Any]) -> bool:
    return inserts(command) and len(command.get("documents", ())) > 1


async def test_an_outage_fails_all_waiting_callers_and_no_later_one(
    proxied_db: Any, proxy: Proxy, db: Db
) -> None:
    monque = Monque(proxied_db)
    await monque.initialize()
    fault = proxy.strike("lose reply", inserts)

    results = await asyncio.gather(
        *(monque.enqueue("work", n) for n in range(5)), return_exceptions=True
    )
    afterwards = await monque.enqueue("work", "afterwards")
    await monque.stop()

    assert fault.has_struck
    assert [type(result) for result in results] == [MonqueConnectionError] * 5
    # Raising an exception modifies it, so no two callers share one.
    assert len(set(map(id, results))) == 5
    # The first was written but not confirmed; the rest were never sent.
    assert [job.data for job in await stored_jobs(db)] == [0, afterwards.data]


@pytest.mark.parametrize("proxied_db", ["async"], indirect=True)
async def test_a_missing_reply_delays_other_callers_only_briefly(
    proxied_db: Any, proxy: Proxy, db: Db
) -> None:
    monque = Monque(proxied_db)
    await monque.initialize()
    fault = proxy.strike("hold reply", inserts)

    held_up = asyncio.create_task(monque.enqueue("work", "held up"))
    await fault.strikes()
    others = await asyncio.gather(*(monque.enqueue("work", n) for n in range(3)))
    assert not held_up.done()
    fault.release()
    await held_up

    assert [job.data for job in others] == [0, 1, 2]
    assert {job.data for job in await stored_jobs(db)} == {"held up", 0, 1, 2}


@pytest.mark.parametrize("proxied_db", ["async"], indirect=True)
async def test_a_batch_without_waiting_callers_is_cancelled(proxied_db: Any, proxy: Proxy) -> None:
    monque = Monque(proxied_db)
    await monque.initialize()
    fault = proxy.strike("hold reply", inserts_several)
    tasks = [asyncio.create_task(monque.enqueue("work", n)) for n in range(4)]
    await fault.strikes()

    for task in tasks[1:]:
        task.cancel()
    await asyncio.wait(tasks)
    await eventually(lambda: _writers() == 0)

    # The next call does not wait for the cancelled write.
    assert (await monque.enqueue("work", "afterwards")).data == "afterwards"
    await monque.stop()


def _writers() -> int:
    return sum(task.get_name() == "monque-insert-batch" for task in asyncio.all_tasks())
