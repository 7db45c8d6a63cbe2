"""A process with several idle or busy instances: `python -m tests.benchmarks.cluster.client …`.

The only argument is an `Assignment` as JSON. Standard input brings `start` and `stop`, one per
line, and its end ends the process. Standard output has one JSON object per line.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pymongo import AsyncMongoClient
from pymongo.monitoring import CommandListener

from monque_core import Monque, process
from tests.benchmarks import raw

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pymongo.monitoring import (
        CommandFailedEvent,
        CommandStartedEvent,
        CommandSucceededEvent,
    )

    from monque_core import Job, ReactiveTask
    from monque_core.options import MonqueOptions

ORDERS = "orders"
_TASK = "plan"
_REPORT_GAP = 0.005


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """What one process does."""

    uri: str
    database: str
    instances: int
    concurrency: int = 5
    names: int = 1
    job_seconds: float = 0.0
    is_reactive: bool = False
    """Whether to run a reactive task instead of jobs."""
    has_times: bool = True
    """Whether each job says when it was sent."""
    has_listener: bool = False
    """Whether to count commands by purpose, which costs the client a little CPU."""
    is_gated: bool = False
    """Whether to initialize only, and to wait for `start`."""

    def to_json(self) -> str:
        """Return the argument for the process."""
        return json.dumps(asdict(self))


def name_of(number: int) -> str:
    """Return the name of the jobs with this number."""
    return raw.NAME if number == 0 else f"{raw.NAME}-{number}"


async def _main(assignment: Assignment) -> None:
    reports, purposes = _Reports(), _Purposes()
    listeners = [purposes] if assignment.has_listener else []
    requests = asyncio.Queue[bytes]()
    async with asyncio.TaskGroup() as group, AsyncExitStack() as stack:
        reading = group.create_task(_read_requests(requests))
        instances = []
        for _ in range(assignment.instances):
            # A client each, since on a real cluster each instance has its own process.
            client = await stack.enter_async_context(
                AsyncMongoClient[dict[str, Any]](assignment.uri, event_listeners=listeners)
            )
            monque = _instance(client, assignment, reports)
            await monque.initialize()
            instances.append(monque)
        purposes.sent.clear()
        if not assignment.is_gated:
            await _start(instances)
        _write({"ready": True})
        while await requests.get() == b"start\n":
            await _start(instances)
        _write({"purposes": dict(purposes.sent)})
        await asyncio.gather(*(monque.stop(timeout=5) for monque in instances))
        reading.cancel()


async def _start(instances: list[Monque]) -> None:
    await asyncio.gather(*(monque.start() for monque in instances))


async def _read_requests(requests: asyncio.Queue[bytes]) -> None:
    """Pass on the lines of standard input; end the process when it ends."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async for line in reader:
        requests.put_nowait(line)
    # The benchmark was killed, and its server with it: instances would wait for it for minutes.
    os._exit(1)


def _instance(
    client: AsyncMongoClient[dict[str, Any]], assignment: Assignment, reports: _Reports
) -> Monque:
    options: MonqueOptions = {"worker_concurrency": assignment.concurrency}
    if assignment.names > 1:
        # As many slots as with one name.
        options["instance_concurrency"] = assignment.concurrency
    monque = Monque(client[assignment.database], **options)
    seconds, has_times = assignment.job_seconds, assignment.has_times

    async def run(job: Job[dict[str, int]]) -> None:
        reports.add(job.data["sent"] if has_times else None)
        if seconds:
            await asyncio.sleep(seconds)

    async def run_task(task: ReactiveTask) -> None:
        reports.add(task.values["sent"])

    if assignment.is_reactive:
        monque.reactive(ORDERS, run_task, name=_TASK, watch=["sent"], debounce=0)
    else:
        for number in range(assignment.names):
            monque.worker(name_of(number), run)
    return monque


class _Reports:
    """Reports runs as they start, several in a line."""

    def __init__(self) -> None:
        self._count = 0
        self._last = 0
        self._arrivals: list[tuple[int, int]] = []

    def add(self, sent_ns: int | None) -> None:
        """Count a run that starts now."""
        if not self._count:
            asyncio.get_running_loop().call_later(_REPORT_GAP, self._flush)
        self._count += 1
        self._last = time.monotonic_ns()
        if sent_ns is not None:
            self._arrivals.append((sent_ns, self._last))

    def _flush(self) -> None:
        _write({"runs": self._count, "last": self._last, "arrivals": self._arrivals})
        self._count, self._arrivals = 0, []


class _Purposes(CommandListener):
    """Counts commands by what they are for."""

    def __init__(self) -> None:
        self.sent = Counter[str]()

    def started(self, event: CommandStartedEvent) -> None:
        self.sent[_purpose(event.command_name, event.command)] += 1

    def succeeded(self, event: CommandSucceededEvent) -> None: ...

    def failed(self, event: CommandFailedEvent) -> None: ...


def _purpose(name: str, command: Mapping[str, Any]) -> str:
    """Return what a command is for, by what it writes or asks for."""
    match name:
        case "findAndModify" if _is_on_jobs(command[name]):
            return "claim"
        case "update" if _is_on_jobs(command[name]):
            change = str(command["updates"][0]["u"])
            if "'processing'" in change:
                return "claim"
            return "settle" if "'status'" in change else "heartbeat"
        case "find" if _is_on_jobs(command[name]):
            return "read-back" if "claimToken" in command["filter"] else "look"
        case "aggregate" if _is_on_jobs(command[name]):
            return "stream" if "$changeStream" in command["pipeline"][0] else "look"
    return name


def _is_on_jobs(collection: object) -> bool:
    return collection == "monque_jobs"


def _write(report: dict[str, Any]) -> None:
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    process.run(_main(Assignment(**json.loads(sys.argv[1]))))
