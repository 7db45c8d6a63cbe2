"""Pauses and events with a time limit."""

from __future__ import annotations

import asyncio

from monque_core.waiting import ExponentialPause, wait_for_event


def test_a_pause_doubles_up_to_its_limit_until_it_is_reset() -> None:
    pause = ExponentialPause(0.5, 3.0)

    assert [pause.lengthen() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    pause.reset()
    assert pause.lengthen() == 0.5


async def test_an_event_that_is_set_is_not_waited_for() -> None:
    event = asyncio.Event()
    event.set()

    assert await wait_for_event(event, 0.0)


async def test_an_event_is_waited_for() -> None:
    event = asyncio.Event()
    asyncio.get_running_loop().call_later(0.01, event.set)

    assert await wait_for_event(event, None)


async def test_an_event_that_does_not_come_is_given_up() -> None:
    assert not await wait_for_event(asyncio.Event(), 0.01)
