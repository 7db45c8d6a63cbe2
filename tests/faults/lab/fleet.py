"""The processes of a campaign: started, mistreated, started again, and ended."""

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


class Member:
    """One process, with a network of its own if it is to be disturbed there."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, network: Network | None):
        self.name = name
        self.network = network
        self.process = process
        self.is_busy = False
        """Whether a fault is at work on it, and it is left alone by others."""
        self.is_told_to_stop = False

    @property
    def is_alive(self) -> bool:
        """Tell whether the process has not ended yet."""
        return self.process.returncode is None

    @property
    def is_fit(self) -> bool:
        """Tell whether it can be told to stop, and was not yet."""
        return self.is_alive and not self.is_told_to_stop

    def signal(self, number: int) -> None:
        """Send a signal, to no effect if it has ended."""
        with suppress(ProcessLookupError):
            self.process.send_signal(number)


class Fleet:
    """Keeps so many workers running, whatever happens to them, and starts producers."""

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
        is_disturbed: bool,
        sabotage: str | None,
    ) -> None:
        self.folder = folder
        self._recorder = recorder
        self._random = random
        self._addresses = addresses
        self._uri = uri
        self._database = database
        self._options = options
        self._is_disturbed = is_disturbed
        self._sabotage = sabotage
        self._numbers = itertools.count(1)
        self._keepers: list[asyncio.Task[None]] = []
        self._is_closing = False
        self._is_asking = True
        self.workers: list[Member] = []
        self.producers: list[Member] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End what is left, however the campaign ended."""
        self._is_closing = True
        self._is_asking = False
        for member in [*self.workers, *self.producers]:
            member.signal(signal.SIGKILL)
        if self._keepers:
            await asyncio.wait(self._keepers)

    def keep(self, workers: int) -> None:
        """Start so many workers, and others in place of those that end."""
        for _ in range(workers):
            self._keepers.append(asyncio.create_task(self._keep_worker()))

    def produce(
        self, producers: int, rate: float, *, tasks: int = 4, long_seconds: float = 4
    ) -> None:
        """Start producers that ask for so many things per second each, from several tasks."""
        for number in range(producers):
            settings = {
                "handle": "async" if number % 2 == 0 else "SyncMonque",
                "rate": rate,
                "tasks": tasks,
                "long_seconds": long_seconds,
                "heartbeat": self._options["heartbeat_interval"],
            }
            self._keepers.append(asyncio.create_task(self._keep_producer(settings)))

    async def until_up(self, workers: int) -> None:
        """Wait until so many workers have begun to work."""
        async with asyncio.timeout(_START_SECONDS):
            while sum(self.has_noted(member.name, "up") for member in self.workers) < workers:
                await asyncio.sleep(_LOOK_GAP)

    async def until_noted(self, what: str, count: int) -> None:
        """Wait until all processes together have written something down so often."""
        async with asyncio.timeout(_START_SECONDS):
            while self.noted(what) < count:
                await asyncio.sleep(_LOOK_GAP)

    async def until_run(self, jobs: Sequence[str], count: int) -> None:
        """Wait until so many of these jobs have begun to run."""
        async with asyncio.timeout(_START_SECONDS):
            while sum(self.noted("run", job) > 0 for job in jobs) < count:
                await asyncio.sleep(_LOOK_GAP)

    async def stop_producers(self) -> None:
        """Let producers finish what they are at, and wait for them."""
        self._is_asking = False
        await self._stop(self.producers)

    async def stop_workers(self) -> None:
        """Stop all workers for good."""
        self._is_closing = True
        await self._stop(self.workers)
        await asyncio.wait(self._keepers)

    async def stop(self, member: Member, during: str = "") -> None:
        """Tell a process to stop, once, for a second signal is not as kind; see that it does."""
        if member.is_told_to_stop:
            await member.process.wait()
            return
        member.is_told_to_stop = True
        self._recorder.note("fault", kind="stop", target=member.name, during=during)
        member.signal(signal.SIGTERM)
        await self._ended(member)

    async def _stop(self, members: list[Member]) -> None:
        await asyncio.gather(*(self.stop(member) for member in list(members)))

    async def _ended(self, member: Member) -> None:
        try:
            await asyncio.wait_for(member.process.wait(), _STOP_SECONDS)
        except TimeoutError:
            self._recorder.note(
                "gone", process=member.name, late=_STOP_SECONDS, code=None, allowed=[None]
            )
            member.signal(signal.SIGKILL)
            await member.process.wait()

    def _allowed(self, name: str) -> list[int]:
        """Give the exit codes that are no fault: one killed says nothing of how it would end."""
        said = (self.folder / f"{name}.err").read_text(encoding="utf-8", errors="replace")
        # It cannot start while MongoDB is away, says so, and is started again.
        is_away = "\nmonque_core.errors.MonqueConnectionError" in said
        # Told to stop before it has begun or when it is over, it ends as any program does.
        is_idle = not self.has_noted(name, "up") or self.has_noted(name, "down")
        return [
            0,
            -signal.SIGKILL,
            *([1] if is_away else []),
            *([-signal.SIGTERM] if is_idle else []),
        ]

    def has_noted(self, name: str, what: str, job: str | None = None) -> bool:
        """Tell whether a process has written something down, of a certain job if one is given."""
        return self.noted(what, job, name) > 0

    def noted(self, what: str, job: str | None = None, name: str = "*-*") -> int:
        """Tell how often the processes of a name, or all of them, have written something down."""
        # As the recorder writes it.
        text = f'"what": "{what}"' + ("" if job is None else f', "job": "{job}"')
        return sum(
            path.read_text(encoding="utf-8").count(text)
            for path in self.folder.glob(f"{name}.jsonl")
        )

    async def _keep_worker(self) -> None:
        while not self._is_closing:
            handle = self._random.choice(["async", "async", "blocking"])
            settings = {"handle": handle, "options": self._options}
            await self._run("worker", settings)
            if not self._is_closing:
                await asyncio.sleep(_RESTART_SECONDS)

    async def _keep_producer(self, settings: dict[str, Any]) -> None:
        while self._is_asking:
            await self._run("producer", {**settings, "seed": self._random.randrange(1 << 30)})
            if self._is_asking:
                await asyncio.sleep(_RESTART_SECONDS)

    async def _run(self, role: str, settings: dict[str, Any]) -> None:
        """Run one process from its start to its end."""
        name = f"{role}-{next(self._numbers)}"
        members = self.workers if role == "worker" else self.producers
        async with AsyncExitStack() as stack:
            network = None
            if self._is_disturbed:
                network = await stack.enter_async_context(Network(self._addresses))
            skew = self._random.uniform(-_LARGEST_SKEW, _LARGEST_SKEW)
            settings |= {
                "name": name,
                "uri": self._uri if network is None else network.uri,
                "database": self._database,
                "record": str(self.folder / f"{name}.jsonl"),
                "clock_ahead": skew,
                "sabotage": self._sabotage,
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
            member = Member(name, process, network)
            members.append(member)
            if self._is_closing or (role == "producer" and not self._is_asking):
                # It was on its way when all the others were told.
                await self.stop(member)
            code = await process.wait()
            members.remove(member)
            self._recorder.note("gone", process=name, code=code, allowed=self._allowed(name))
            if process.stdin is not None:
                process.stdin.close()
