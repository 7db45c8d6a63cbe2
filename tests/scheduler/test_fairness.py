"""No worker name starves another one."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import TYPE_CHECKING, Any

import pytest

from monque_core import Monque
from tests.support.polling import NO_POLLS
from tests.support.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job
    from tests.conftest import AnyDatabase

LONG_AGO = datetime.now(UTC) - timedelta(days=1)


def note_starts(starts: Tally[str], seconds: float | None) -> Callable[[Job[int]], Any]:
    """Return a handler that takes this long, or no time at all."""

    async def handler(job: Job[int]) -> None:
        starts.add(job.name)
        if seconds is not None:
            await asyncio.sleep(seconds)

    return handler


@pytest.mark.parametrize("order", list(permutations(["huge", "small", "tiny"])), ids="-".join)
async def test_three_names_share_two_slots_whatever_the_order_of_registration(
    db: AsyncDatabase[dict[str, Any]], order: tuple[str, ...]
) -> None:
    monque = Monque(db, instance_concurrency=2, **NO_POLLS)
    starts = Tally[str]()
    for name in order:
        monque.worker(name, note_starts(starts, 0.002))
    await monque.enqueue_many("huge", range(500), run_at=LONG_AGO)
    await monque.enqueue_many("small", range(60))
    await monque.enqueue_many("tiny", range(30))

    async with monque:
        await starts.reach(60)

    shares = Counter(starts[:60])
    assert all(shares[name] >= 12 for name in order), shares


async def test_names_share_on_every_kind_of_handle(any_db: AnyDatabase) -> None:
    monque = Monque(any_db, instance_concurrency=2, **NO_POLLS)
    starts = Tally[str]()
    for name in ("a", "b", "c"):
        monque.worker(name, note_starts(starts, None))
    await monque.enqueue_many("b", range(1500), run_at=LONG_AGO)
    await monque.enqueue_many("a", range(30))
    await monque.enqueue_many("c", range(30))

    async with monque:
        await starts.reach(1560)

    # Jobs without duration are claimed by the hundred, so the names do not alternate job by job.
    # The first 150 usually contain all names. A starved name waits until the other one is done.
    assert Counter(starts[:1200])["a"] == 30
    assert Counter(starts[:1200])["c"] == 30
    assert Counter(starts) == {"a": 30, "b": 1500, "c": 30}


@pytest.mark.parametrize("order", [("short", "long"), ("long", "short")], ids="-".join)
async def test_short_jobs_claimed_ahead_do_not_keep_slots_from_long_ones(
    db: AsyncDatabase[dict[str, Any]], order: tuple[str, str]
) -> None:
    monque = Monque(db, instance_concurrency=2, **NO_POLLS)
    starts = Tally[str]()
    seconds = {"short": None, "long": 0.02}
    for name in order:
        monque.worker(name, note_starts(starts, seconds[name]))
    await monque.enqueue_many("short", range(10_000), run_at=LONG_AGO)

    async with monque:
        await starts.reach(300)
        await monque.enqueue_many("long", range(300))
        await starts.wait_until(lambda: starts.count("long") >= 10)

    # A starved name waits until nothing of the other one is left.
    assert starts.count("short") < 5_000


async def test_a_new_name_is_served_while_another_has_a_backlog(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque = Monque(db, instance_concurrency=3, **NO_POLLS)
    starts = Tally[str]()
    monque.worker("backlog", note_starts(starts, 0.005))
    newcomers = Tally[int]()

    @monque.worker("newcomer")
    async def note_newcomer(job: Job[int]) -> None:
        starts.add(job.name)
        newcomers.add(job.data)

    await monque.enqueue_many("backlog", range(1000))

    async with monque:
        await starts.reach(100)
        for served in range(1, 6):
            before = len(starts)
            await monque.enqueue("newcomer", served)
            await newcomers.reach(served)
            assert len(starts) - before < 100


async def test_thirty_names_all_get_their_turn(db: AsyncDatabase[dict[str, Any]]) -> None:
    monque = Monque(db, instance_concurrency=4, **NO_POLLS)
    starts = Tally[str]()
    names = [f"name-{number}" for number in range(30)]
    for name in names:
        monque.worker(name, note_starts(starts, 0.001))
    await monque.enqueue_many(names[17], range(1000), run_at=LONG_AGO)
    for name in names:
        await monque.enqueue_many(name, range(10))

    async with monque:
        await starts.reach(150)

    shares = Counter(starts[:150])
    # One round has thirty turns; five rounds are more than enough to serve each name.
    assert set(shares) == set(names)
    assert max(shares.values()) < 60, shares
