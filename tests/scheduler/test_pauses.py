"""Names of which nothing may start before a time."""

from __future__ import annotations

import asyncio

from monque_core.scheduler.pauses import Pauses


async def test_a_name_is_paused_until_the_end_of_its_pause() -> None:
    pauses = Pauses()
    pauses.pause("throttled", 0.02)

    assert pauses.is_paused("throttled")
    assert not pauses.is_paused("other")
    await asyncio.sleep(0.03)
    assert not pauses.is_paused("throttled")
    assert not pauses


async def test_the_last_pause_of_a_name_counts() -> None:
    pauses = Pauses()
    pauses.pause("throttled", 60)
    pauses.pause("throttled", 0)

    assert not pauses.is_paused("throttled")


async def test_the_next_end_is_that_of_the_shortest_pause() -> None:
    pauses = Pauses()
    assert pauses.next_end() == float("inf")

    pauses.pause("long", 60)
    pauses.pause("short", 30)
    left = pauses.next_end() - asyncio.get_running_loop().time()
    assert 25 < left <= 30
