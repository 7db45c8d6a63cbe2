"""Driver calls that are cancelled more than once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from pymongo import AsyncMongoClient

from monque_core import MonqueConnectionError
from monque_core.store.cancellation import cancelled_in_turn
from monque_core.store.driver import Driver
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

R = TypeVar("R")
_NOBODY = "mongodb://127.0.0.1:1/?directConnection=true"


@pytest.fixture
async def lonely() -> AsyncIterator[Driver]:
    """Yield a database whose server cannot be found."""
    client = AsyncMongoClient[dict[str, Any]](_NOBODY, serverSelectionTimeoutMS=2000)
    async with client:
        yield Driver(client["shop"])


async def test_a_client_survives_repeatedly_cancelled_calls(lonely: Driver) -> None:
    jobs = lonely.collection("jobs")
    calls = [asyncio.create_task(jobs.find({})) for _ in range(60)]
    topology: Any = lonely.native.client._topology
    await eventually(lambda: len(topology._condition._waiters) == len(calls))
    for _ in range(3):
        for call in calls:
            call.cancel()
        await asyncio.sleep(0)
    await asyncio.wait(calls)
    assert all(call.cancelled() for call in calls)
    async with asyncio.timeout(20):
        with pytest.raises(MonqueConnectionError, match="cannot be reached"):
            await jobs.find({})


async def waiting_for(call: Coroutine[Any, Any, R]) -> R:
    return await cancelled_in_turn(call)


class TestInTurn:
    async def test_gives_what_the_call_gives(self) -> None:
        async def call() -> str:
            await asyncio.sleep(0)
            await asyncio.sleep(0.001)
            return "result"

        assert await cancelled_in_turn(call()) == "result"

    async def test_raises_what_the_call_raises(self) -> None:
        async def call() -> None:
            await asyncio.sleep(0)
            raise KeyError("missing")

        with pytest.raises(KeyError, match="missing"):
            await cancelled_in_turn(call())

    async def test_lets_the_call_clean_up_before_the_next_cancellation_reaches_it(self) -> None:
        cleaned_up = asyncio.Event()
        cancellations: list[bool] = []

        async def call() -> None:
            for event in (asyncio.Event(), cleaned_up):
                try:
                    await event.wait()
                except asyncio.CancelledError:
                    cancellations.append(cleaned_up.is_set())

        task = asyncio.create_task(waiting_for(call()))
        await asyncio.sleep(0)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        assert cancellations == [False]
        cleaned_up.set()
        await asyncio.wait([task])
        assert cancellations == [False, True]

    async def test_cancels_again_what_has_swallowed_the_first_cancellation(self) -> None:
        async def call() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.Event().wait()

        task = asyncio.create_task(waiting_for(call()))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        async with asyncio.timeout(20):
            await asyncio.wait([task])
        assert task.cancelled()

    async def test_is_ended_by_a_timeout(self) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await cancelled_in_turn(asyncio.Event().wait())
