"""The cost of an idle instance: `python -m tests.benchmarks.idle …`."""

from __future__ import annotations

import asyncio
import json
import sys
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

    from pymongo.asynchronous.database import AsyncDatabase
    from pymongo.monitoring import (
        CommandFailedEvent,
        CommandStartedEvent,
        CommandSucceededEvent,
    )

    from monque_core import Job

    Db = AsyncDatabase[dict[str, Any]]

_AWAIT_MS = 30_000
_WARM_UP_SHARE = 1 / 60


async def measure(db: Db, uri: str, seconds: float) -> dict[str, Reading]:
    """Stay idle for this long: commands per second, and milliseconds of CPU per second.

    An instance and a bare stream wait at the same time, each in a process of its own.
    """
    await raw.prepare(db["monque_jobs"])
    own, bare = await asyncio.gather(
        *(_idle_in_a_process(uri, db.name, variant, seconds) for variant in ("monque", "stream"))
    )
    return {
        "idle, commands": Reading(own["commands"], bare["commands"]),
        "idle, CPU of the client": Reading(own["cpu_ms"], bare["cpu_ms"]),
    }


async def _idle_in_a_process(
    uri: str, database: str, variant: str, seconds: float
) -> dict[str, float]:
    arguments = ("-m", "tests.benchmarks.idle", uri, database, variant, str(seconds))
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    assert process.returncode == 0
    spent: dict[str, float] = json.loads(said)
    return spent


async def _main(uri: str, database: str, variant: str, seconds: float) -> None:
    commands = _Commands()
    idle = _idle_instance if variant == "monque" else _bare_stream
    async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[commands]) as client:
        print(json.dumps(await idle(client[database], commands, seconds)))


class _Commands(CommandListener):
    """Counts commands."""

    def __init__(self) -> None:
        self.sent = Counter[str]()

    def started(self, event: CommandStartedEvent) -> None:
        self.sent[event.command_name] += 1

    def succeeded(self, event: CommandSucceededEvent) -> None: ...

    def failed(self, event: CommandFailedEvent) -> None: ...


async def _idle_instance(db: Db, commands: _Commands, seconds: float) -> dict[str, float]:
    monque = Monque(db)
    connected = asyncio.Event()
    monque.on("changestream:connected", lambda _: connected.set())

    @monque.worker(raw.NAME)
    async def never(_: Job[object]) -> None: ...

    async with monque:
        await connected.wait()
        return await _spent(seconds, commands.sent.total)


async def _bare_stream(db: Db, commands: _Commands, seconds: float) -> dict[str, float]:
    """Wait for inserts: the minimum for an instance that is notified of jobs."""
    inserts = [{"$match": {"operationType": "insert"}}]
    async with await db["monque_jobs"].watch(inserts, max_await_time_ms=_AWAIT_MS) as stream:
        reading = asyncio.create_task(stream.next())
        spent = await _spent(seconds, commands.sent.total)
        reading.cancel()
        await asyncio.wait([reading])
        return spent


async def _spent(seconds: float, sent: Callable[[], int]) -> dict[str, float]:
    await asyncio.sleep(seconds * _WARM_UP_SHARE)
    sent_before, cpu_before, began = sent(), time.process_time(), time.monotonic()
    await asyncio.sleep(seconds)
    passed = time.monotonic() - began
    cpu = time.process_time() - cpu_before
    return {"commands": (sent() - sent_before) / passed, "cpu_ms": cpu * 1000 / passed}


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])))
