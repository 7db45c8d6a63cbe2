"""The worker and producer processes of an experiment: started, restarted and stopped."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.faults.lab.network import Network

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random
    from types import TracebackType

    from tests.faults.lab.recorder import Recorder

_ROOT = Path(__file__).parents[3]
_STOP_SECONDS = 120.0
_START_SECONDS = 240.0
_RESTART_SECONDS = 0.3
_LOOK_GAP = 0.05
_LARGEST_SKEW = 600


class ManagedProcess:
    """One process, with a network of its own if network faults are enabled."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, network: Network | None):
        self.name = name
        self.network = network
        self.process = process
        self.has_fault = False
        """Whether a fault is active on it, so that no other fault may hit it."""
        self.is_stop_requested = False

    @property
    def is_alive(self) -> bool:
        """Return whether the process has not exited yet."""
        return self.process.returncode is None

    @property
    def can_be_stopped(self) -> bool:
        """Return whether it is alive and was not asked to stop yet."""
        return self.is_alive and not self.is_stop_requested

    def signal(self, number: int) -> None:
        """Send a signal; do nothing if the process has exited."""
        with suppress(ProcessLookupError):
            self.process.send_signal(number)


class ProcessSupervisor:
    """Keeps a number of workers running by restarting them, and starts producers."""

    def __init__(
        self,
        folder: Path,
        recorder: Recorder,
        random: Random,
        *,
        addresses: Sequence[str],
        uri: str,
        database: str,
        options: dict[str, Any],
        has_network_faults: bool,
        variant: str | None,
    ) -> None:
        self.folder = folder
        self._recorder = recorder
        self._random = random
        self._addresses = addresses
        self._uri = uri
        self._database = database
        self._options = options
        self._has_network_faults = has_network_faults
        self._variant = variant
        self._numbers = itertools.count(1)
        self._runners: list[asyncio.Task[None]] = []
        self._is_closing = False
        self._is_producing = True
        self.workers: list[ManagedProcess] = []
        self.producers: list[ManagedProcess] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Kill the remaining processes, however the experiment ended."""
        self._is_closing = True
        self._is_producing = False
        for member in [*self.workers, *self.producers]:
            member.signal(signal.SIGKILL)
        if self._runners:
            await asyncio.wait(self._runners)

    def start_workers(self, workers: int) -> None:
        """Start this many workers, and replace each one that exits."""
        for _ in range(workers):
            self._runners.append(asyncio.create_task(self._keep_worker_running()))

    def start_producers(
        self, producers: int, rate: float, *, tasks: int = 4, long_seconds: float = 4
    ) -> None:
        """Start producers that make this many calls per second each, from several tasks."""
        for number in range(producers):
            settings = {
                "handle": "async" if number % 2 == 0 else "SyncMonque",
                "rate": rate,
                "tasks": tasks,
                "long_seconds": long_seconds,
                "heartbeat": self._options["heartbeat_interval"],
            }
            self._runners.append(asyncio.create_task(self._keep_producer_running(settings)))

    async def wait_until_up(self, workers: int) -> None:
        """Wait until this many workers have started."""
        async with asyncio.timeout(_START_SECONDS):
            while sum(self.has_recorded(member.name, "up") for member in self.workers) < workers:
                await asyncio.sleep(_LOOK_GAP)

    async def wait_until_recorded(self, what: str, count: int) -> None:
        """Wait until all processes together have recorded this many notes of a kind."""
        async with asyncio.timeout(_START_SECONDS):
            while self.count_recorded(what) < count:
                await asyncio.sleep(_LOOK_GAP)

    async def wait_until_run(self, jobs: Sequence[str], count: int) -> None:
        """Wait until this many of these jobs have started to run."""
        async with asyncio.timeout(_START_SECONDS):
            while sum(self.count_recorded("run started", job) > 0 for job in jobs) < count:
                await asyncio.sleep(_LOOK_GAP)

    async def stop_producers(self) -> None:
        """Stop all producers after their current calls, and wait for them."""
        self._is_producing = False
        await self._stop(self.producers)

    async def stop_workers(self) -> None:
        """Stop all workers for good."""
        self._is_closing = True
        await self._stop(self.workers)
        await asyncio.wait(self._runners)

    async def stop(self, member: ManagedProcess, during: str = "") -> None:
        """Ask a process to stop, only once since a second signal kills it; wait for its exit."""
        if member.is_stop_requested:
            await member.process.wait()
            return
        member.is_stop_requested = True
        self._recorder.note("fault", kind="stop", target=member.name, during=during)
        member.signal(signal.SIGTERM)
        await self._wait_for_exit(member)

    async def _stop(self, members: list[ManagedProcess]) -> None:
        await asyncio.gather(*(self.stop(member) for member in list(members)))

    async def _wait_for_exit(self, member: ManagedProcess) -> None:
        try:
            await asyncio.wait_for(member.process.wait(), _STOP_SECONDS)
        except TimeoutError:
            self._recorder.note(
                "exited", process=member.name, late=_STOP_SECONDS, code=None, allowed=[None]
            )
            member.signal(signal.SIGKILL)
            await member.process.wait()

    def _allowed_exit_codes(self, name: str) -> list[int]:
        """Return the exit codes that are not violations; SIGKILL comes from the lab itself."""
        said = (self.folder / f"{name}.err").read_text(encoding="utf-8", errors="replace")
        # It cannot start while MongoDB is away, reports this, and is restarted.
        is_away = "\nmonque_core.errors.MonqueConnectionError" in said
        # SIGTERM before the start or after the stop has its default effect.
        is_idle = not self.has_recorded(name, "up") or self.has_recorded(name, "down")
        return [
            0,
            -signal.SIGKILL,
            *([1] if is_away else []),
            *([-signal.SIGTERM] if is_idle else []),
        ]

    def by_instance(self) -> dict[str, ManagedProcess]:
        """Return the running workers that are up, by their instance ids."""
        members = {}
        for member in self.workers:
            path = self.folder / f"{member.name}.jsonl"
            lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
            for note in map(json.loads, lines):
                if note["what"] == "up" and member.is_alive:
                    members[note["instance"]] = member
        return members

    def has_recorded(self, name: str, what: str, job: str | None = None) -> bool:
        """Return whether a process has recorded a note of a kind, optionally about a job."""
        return self.count_recorded(what, job, name) > 0

    def count_recorded(self, what: str, job: str | None = None, name: str = "*-*") -> int:
        """Return how many notes of a kind the processes with a name, or all, have recorded."""
        # In the format of the recorder.
        text = f'"what": "{what}"' + ("" if job is None else f', "job": "{job}"')
        return sum(
            path.read_text(encoding="utf-8").count(text)
            for path in self.folder.glob(f"{name}.jsonl")
        )

    async def _keep_worker_running(self) -> None:
        while not self._is_closing:
            handle = self._random.choice(["async", "async", "blocking"])
            settings = {"handle": handle, "options": self._options}
            await self._run("worker", settings)
            if not self._is_closing:
                await asyncio.sleep(_RESTART_SECONDS)

    async def _keep_producer_running(self, settings: dict[str, Any]) -> None:
        while self._is_producing:
            await self._run("producer", {**settings, "seed": self._random.randrange(1 << 30)})
            if self._is_producing:
                await asyncio.sleep(_RESTART_SECONDS)

    async def _run(self, role: str, settings: dict[str, Any]) -> None:
        """Run one process from its start to its exit."""
        name = f"{role}-{next(self._numbers)}"
        members = self.workers if role == "worker" else self.producers
        async with AsyncExitStack() as stack:
            network = None
            if self._has_network_faults:
                network = await stack.enter_async_context(Network(self._addresses))
            skew = self._random.uniform(-_LARGEST_SKEW, _LARGEST_SKEW)
            settings |= {
                "name": name,
                "uri": self._uri if network is None else network.uri,
                "database": self._database,
                "record": str(self.folder / f"{name}.jsonl"),
                "clock_ahead": skew,
                "variant": self._variant,
            }
            errors = stack.enter_context((self.folder / f"{name}.err").open("wb"))
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                f"tests.faults.lab.{role}",
                json.dumps(settings),
                cwd=_ROOT,
                stdin=asyncio.subprocess.PIPE,
                stdout=errors,
                stderr=errors,
            )
            member = ManagedProcess(name, process, network)
            members.append(member)
            if self._is_closing or (role == "producer" and not self._is_producing):
                # It was being started while all others were asked to stop.
                await self.stop(member)
            code = await process.wait()
            members.remove(member)
            self._recorder.note(
                "exited", process=name, code=code, allowed=self._allowed_exit_codes(name)
            )
            if process.stdin is not None:
                process.stdin.close()
