"""The client processes of a cluster and its producer."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tests.benchmarks.cluster.client import ORDERS, Assignment
from tests.support.pages import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_LONGEST_START = 120.0
_LONGEST_STOP = 120.0
_LINE_BYTES = 1 << 24


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job or change whose handler has started."""

    sent_ns: int
    at_ns: int
    process: int

    @property
    def milliseconds(self) -> float:
        """Return the time from the insert to the handler."""
        # The monotonic clock belongs to the machine, so two processes can be compared.
        return (self.at_ns - self.sent_ns) / 1e6


class Cluster:
    """Client processes with instances, and what they report."""

    def __init__(self, assignments: list[Assignment]) -> None:
        self._assignments = assignments
        self._processes: list[_Process] = []
        self.arrivals: asyncio.Queue[Arrival] = asyncio.Queue()
        self.runs = 0
        self.last_ns = 0
        """When the last run started."""
        self.purposes = Counter[str]()
        """The commands by purpose, known after the stop."""

    def __len__(self) -> int:
        return len(self._processes)

    async def start(self) -> None:
        """Start all processes, and wait until all are ready."""
        self._processes = [
            _Process(self, number, assignment)
            for number, assignment in enumerate(self._assignments)
        ]
        await asyncio.gather(*(process.start() for process in self._processes))

    def release(self) -> int:
        """Let gated instances start; return the time in nanoseconds."""
        began = time.monotonic_ns()
        for process in self._processes:
            process.send(b"start\n")
        return began

    async def next_arrival(self, longest: float) -> Arrival:
        """Wait for the next handler to start."""
        deadline = time.monotonic() + longest
        while time.monotonic() < deadline:
            self._check()
            try:
                async with asyncio.timeout(1):
                    return await self.arrivals.get()
            except TimeoutError:
                continue
        raise TimeoutError(f"no instance started a job within {longest} s")

    async def wait_for_runs(self, count: int, longest: float) -> None:
        """Wait until so many runs have started."""
        deadline = time.monotonic() + longest
        while self.runs < count:
            self._check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.runs} of {count} jobs ran within {longest} s")
            await asyncio.sleep(0.01)

    def drain_arrivals(self) -> list[Arrival]:
        """Return the arrivals reported so far."""
        return [self.arrivals.get_nowait() for _ in range(self.arrivals.qsize())]

    def freeze(self, number: int) -> None:
        """Suspend a process."""
        self._processes[number].signal(signal.SIGSTOP)

    def thaw(self, number: int) -> None:
        """Resume a process."""
        self._processes[number].signal(signal.SIGCONT)

    async def kill(self, number: int) -> None:
        """Kill a process without any chance to clean up."""
        await self._processes[number].kill()

    async def restart(self, number: int) -> None:
        """Start a killed process again."""
        await self._processes[number].start()

    async def stop(self) -> None:
        """Stop all instances and wait for their processes."""
        await asyncio.gather(*(process.stop() for process in self._processes))

    async def kill_all(self) -> None:
        """Leave no process behind."""
        await asyncio.gather(*(process.kill() for process in self._processes))

    def report(self, number: int, line: dict[str, Any]) -> None:
        """Take a line that a process wrote."""
        self.runs += line.get("runs", 0)
        self.last_ns = max(self.last_ns, line.get("last", 0))
        for sent_ns, at_ns in line.get("arrivals", ()):
            self.arrivals.put_nowait(Arrival(sent_ns, at_ns, number))
        self.purposes.update(line.get("purposes", {}))

    def _check(self) -> None:
        for process in self._processes:
            process.check()


class _Process:
    """One client process."""

    def __init__(self, cluster: Cluster, number: int, assignment: Assignment) -> None:
        self._cluster = cluster
        self._number = number
        self._assignment = assignment
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    async def start(self) -> None:
        self._ready.clear()
        self._process = await _spawn("tests.benchmarks.cluster.client", self._assignment.to_json())
        self._reader = asyncio.create_task(self._read(self._process))
        ready = asyncio.create_task(self._ready.wait())
        await asyncio.wait(
            [ready, self._reader], timeout=_LONGEST_START, return_when=asyncio.FIRST_COMPLETED
        )
        if not ready.done():
            ready.cancel()
            raise RuntimeError(f"client process {self._number} did not become ready")

    def send(self, line: bytes) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(line)

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def check(self) -> None:
        if self._process is not None and self._process.returncode is not None:
            raise RuntimeError(
                f"client process {self._number} ended with status {self._process.returncode}"
            )

    async def stop(self) -> None:
        assert self._process is not None
        assert self._reader is not None
        self.send(b"stop\n")
        async with asyncio.timeout(_LONGEST_STOP):
            await self._reader
            assert await self._process.wait() == 0

    async def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()
        if self._reader is not None:
            await self._reader

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            report = json.loads(line)
            if "ready" in report:
                self._ready.set()
            self._cluster.report(self._number, report)


class Producer:
    """The process that inserts."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def insert(self, count: int, rate: float = 0.0) -> float:
        """Insert documents one by one; return how many seconds late the last one was."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{count} {rate}\n".encode())
        return float(await self._process.stdout.readline())


@asynccontextmanager
async def running(assignment: Assignment, processes: int) -> AsyncIterator[Cluster]:
    """Run instances, spread over processes, until the end of the block; leave none behind."""
    count = min(processes, assignment.instances)
    share, rest = divmod(assignment.instances, count)
    cluster = Cluster(
        [replace(assignment, instances=share + (number < rest)) for number in range(count)]
    )
    try:
        await cluster.start()
        yield cluster
        await cluster.stop()
    finally:
        await cluster.kill_all()


@asynccontextmanager
async def producing(assignment: Assignment) -> AsyncIterator[Producer]:
    """Run the producer until the end of the block."""
    process = await _spawn(
        "tests.benchmarks.cluster.producer",
        assignment.uri,
        assignment.database,
        ORDERS if assignment.is_reactive else "jobs",
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(_LONGEST_START):
            assert await process.stdout.readline() == b"ready\n"
        yield Producer(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _spawn(module: str, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *arguments),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_LINE_BYTES,
        # Ctrl-C is for the benchmark, which then ends its processes.
        start_new_session=True,
    )
