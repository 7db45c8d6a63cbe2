"""What an instance costs while there is nothing to do."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from pymongo import AsyncMongoClient
from pymongo.monitoring import CommandListener

from monque_core import Monque
from tests.benchmarks import raw
from tests.benchmarks.measure import Reading

if TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo.monitoring import (
        CommandFailedEvent,
        CommandStartedEvent,
        CommandSucceededEvent,
    )

    from monque_core import Job

_AWAIT_MS = 30_000


async def measure(uri: str, database: str, seconds: float) -> dict[str, Reading]:
    """Do nothing for so long: commands per second, and milliseconds of CPU per second."""
    own, own_cpu = await _idle_instance(uri, database, seconds)
    bare, bare_cpu = await _bare_stream(uri, database, seconds)
    return {
        "idle, commands": Reading(own, bare),
        "idle, CPU of the client": Reading(own_cpu, bare_cpu),
    }


class _Commands(CommandListener):
    """Counts commands."""

    def __init__(self) -> None:
        self.sent = Counter[str]()

    def started(self, event: CommandStartedEvent) -> None:
        self.sent[event.command_name] += 1

    def succeeded(self, event: CommandSucceededEvent) -> None: ...

    def failed(self, event: CommandFailedEvent) -> None: ...


async def _idle_instance(uri: str, database: str, seconds: float) -> tuple[float, float]:
    commands = _Commands()
    async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[commands]) as client:
        await raw.prepare(client[database]["monque_jobs"])
        monque = Monque(client[database])
        connected = asyncio.Event()
        monque.on("changestream:connected", lambda _: connected.set())

        @monque.worker(raw.NAME)
        async def never(_: Job[object]) -> None: ...

        async with monque:
            await connected.wait()
            await asyncio.sleep(min(2.0, seconds))
            return await _spent(seconds, commands.sent.total)


async def _bare_stream(uri: str, database: str, seconds: float) -> tuple[float, float]:
    """Wait for inserts: what any instance that is told of jobs has to do."""
    commands = _Commands()
    async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[commands]) as client:
        jobs = client[database]["monque_jobs"]
        inserts = [{"$match": {"operationType": "insert"}}]
        async with await jobs.watch(inserts, max_await_time_ms=_AWAIT_MS) as stream:
            reading = asyncio.create_task(stream.next())
            await asyncio.sleep(min(2.0, seconds))
            spent = await _spent(seconds, commands.sent.total)
            reading.cancel()
            await asyncio.wait([reading])
            return spent


async def _spent(seconds: float, sent: Callable[[], int]) -> tuple[float, float]:
    sent_before, cpu_before, began = sent(), time.process_time(), time.monotonic()
    await asyncio.sleep(seconds)
    passed = time.monotonic() - began
    cpu = time.process_time() - cpu_before
    return (sent() - sent_before) / passed, cpu * 1000 / passed
