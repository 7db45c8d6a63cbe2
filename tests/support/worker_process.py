"""A Monque in a process of its own, which tests kill and freeze."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

from tests.support.patience import PATIENCE
from tests.support.tally import Tally

if TYPE_CHECKING:
    from types import TracebackType

    from monque_core import MonqueOptions

_ROOT = Path(__file__).parents[2]


class WorkerProcess:
    """`worker_program` with handlers of these names; it ends at the latest with its block."""

    program = "tests.support.worker_program"

    def __init__(
        self,
        uri: str,
        database: str,
        *names: str,
        wall_clock_ahead: float = 0,
        **options: Unpack[MonqueOptions],
    ) -> None:
        self.said: Tally[dict[str, Any]] = Tally()
        self._settings: dict[str, Any] = {
            "uri": uri,
            "database": database,
            "names": names,
            "options": options,
            "wall_clock_ahead": wall_clock_ahead,
        }
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            self.program,
            json.dumps(self._settings),
            cwd=_ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        self._reader = asyncio.create_task(self._read(self._process))
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()
        await self.end()

    def of(self, what: str) -> list[dict[str, Any]]:
        """Return its messages of one kind."""
        return [line for line in self.said if line["what"] == what]

    async def hear(
        self, what: str, count: int = 1, seconds: float = PATIENCE
    ) -> list[dict[str, Any]]:
        """Wait until it has sent this many messages of a kind."""
        await self.said.wait_until(lambda: len(self.of(what)) >= count, seconds)
        return self.of(what)

    def let_runs_end(self) -> None:
        """End the waiting runs."""
        process = self._running()
        assert process.stdin is not None
        process.stdin.write(b"end\n")

    def kill(self) -> None:
        """Kill the process, like a crash."""
        self._signal(signal.SIGKILL)

    def freeze(self) -> None:
        """Suspend the process, like a machine that swaps or migrates."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume the process."""
        self._signal(signal.SIGCONT)

    async def end(self) -> int:
        """Wait until it has ended and all its messages were read; return its exit code."""
        process = self._running()
        assert self._reader is not None
        exit_code = await process.wait()
        await self._reader
        if process.stdin is not None:
            process.stdin.close()
        return exit_code

    def _running(self) -> asyncio.subprocess.Process:
        assert self._process is not None, "it is started by its `async with` block"
        return self._process

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            self._running().send_signal(number)

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            self.said.add(json.loads(line))
