"""A worker in Node on the test's collection."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
from contextlib import suppress
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from bson import json_util

from tests.support.patience import PATIENCE
from tests.support.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from types import TracebackType

    from monque_core.jobs.job import AnyJob

_PROGRAM = Path(__file__).with_name("node") / "program.cjs"
_LONGEST_LINE = 1 << 20
_EXACT = json_util.CANONICAL_JSON_OPTIONS.with_options(tz_aware=True, tzinfo=UTC)
_OPTIONS = {
    "schedulerInstanceId": "node",
    "heartbeatInterval": 30_000,
    "lockTimeout": 1_800_000,
    "maxRetries": 10,
    "baseRetryInterval": 1_000,
    "shutdownTimeout": 30_000,
    # Seconds by default, since change streams wake Node up; here, workers are registered late.
    "safetyPollInterval": 100,
    "exact": False,
}


class NodeError(Exception):
    """An exception that was thrown by a call in Node."""


def assert_one_document(of_python: Iterable[AnyJob], of_node: Iterable[object]) -> None:
    """Assert that concurrent calls on both sides returned one document.

    Node does not retry concurrent calls, so some of them may fail with a duplicate key.
    """
    results = list(of_node)
    refused = [result for result in results if isinstance(result, BaseException)]
    assert all("E11000" in str(error) for error in refused), refused
    stored_by_node = {result["_id"] for result in results if isinstance(result, dict)}
    ids = {job.id for job in of_python} | stored_by_node
    assert len(ids) == 1, ids


class NodeWorker:
    """A Node process; its options are those of `@monque/core`, nearly all at their defaults.

    It runs a stand-in for the package, unless `MONQUE_CORE` is set to the path of the real one.
    """

    def __init__(self, modules: Path, uri: str, database: str, **options: object) -> None:
        assert options.keys() <= _OPTIONS.keys()
        self.said: Tally[dict[str, Any]] = Tally()
        self._modules = modules
        self._settings = {"uri": uri, "database": database, **_OPTIONS, **options}
        self._numbers = itertools.count()
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self.recovered = 0
        """How many jobs it recovered as stale when it started."""

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            "node",
            _PROGRAM,
            json.dumps(self._settings),
            # Schedules without a time zone are UTC; JavaScript would read them as local time.
            env={
                "NODE_PATH": str(self._modules),
                "TZ": "UTC",
                "PATH": os.environ["PATH"],
                "MONQUE_CORE": os.environ.get("MONQUE_CORE", ""),
            },
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LONGEST_LINE,
        )
        self._reader = asyncio.create_task(self._read(self._process))
        await self.said.wait_until(lambda: bool(self.of("ready") or self.of("refused")))
        for refusal in self.of("refused"):
            raise NodeError(refusal["error"])
        self.recovered = self.of("ready")[0]["recovered"]
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.kill()

    async def enqueue(self, name: str, data: object, **options: object) -> dict[str, Any]:
        """Store a job from Node; return the document."""
        return await self._ask("enqueue", name=name, data=data, options=options)

    async def schedule(
        self, cron: str, name: str, data: object, **options: object
    ) -> dict[str, Any]:
        """Store a schedule from Node; return the document."""
        return await self._ask("schedule", cron=cron, name=name, data=data, options=options)

    async def work(self, name: str, handler: str = "quick", concurrency: int = 1) -> None:
        """Register a worker in Node; its handlers are `quick`, `fails` and `waits`."""
        await self._ask("work", name=name, handler=handler, concurrency=concurrency)

    async def retry(self, job: AnyJob) -> dict[str, Any]:
        """Retry a failed or cancelled job from Node; return the document."""
        return await self._ask("retry", id=job.id)

    async def stop(self) -> None:
        """Begin to stop the Node worker; the stop completes when its runs end."""
        await self._ask("stop")

    async def ticks(self, cron: str, after: datetime, count: int) -> list[datetime]:
        """Return when an expression fires in UTC, according to the parser that Node uses."""
        return cast("list[datetime]", await self._ask("ticks", cron=cron, after=after, count=count))

    async def let_runs_end(self) -> None:
        """End the runs that wait."""
        await self._ask("end")

    def of(self, what: str) -> list[dict[str, Any]]:
        """Return its messages of one kind."""
        return [line for line in self.said if line["what"] == what]

    async def hear(
        self, what: str, count: int = 1, seconds: float = PATIENCE
    ) -> list[dict[str, Any]]:
        """Wait until it has sent this many messages of a kind."""
        await self.said.wait_until(lambda: len(self.of(what)) >= count, seconds)
        return self.of(what)

    async def see_end(self, job: AnyJob) -> None:
        """Wait until it has stored the outcome of a job."""
        await self.said.wait_until(lambda: any(line["id"] == job.id for line in self.of("ended")))

    def freeze(self) -> None:
        """Suspend the process, like a machine that swaps or migrates."""
        self._running().send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume the process."""
        self._running().send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        """Kill the process, like a crash."""
        process = self._running()
        assert self._reader is not None
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await self._reader
        assert process.stdin is not None
        process.stdin.close()

    def _running(self) -> asyncio.subprocess.Process:
        assert self._process is not None, "it is started by its `async with` block"
        return self._process

    async def _ask(self, command: str, **details: object) -> dict[str, Any]:
        process = self._running()
        assert process.stdin is not None
        number = next(self._numbers)
        order = {"do": command, "number": number, **details}
        line = json_util.dumps(order, json_options=_EXACT)
        process.stdin.write(line.encode() + b"\n")
        replies: list[dict[str, Any]] = []

        def is_answered() -> bool:
            replies[:] = [reply for reply in self.of("reply") if reply["number"] == number]
            return bool(replies)

        await self.said.wait_until(is_answered)
        (reply,) = replies
        if "error" in reply:
            raise NodeError(reply["error"])
        return cast("dict[str, Any]", reply["value"])

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            self.said.add(json_util.loads(line, json_options=_EXACT))
