"""A module of this repository, run as a program in its own process."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from typing import TYPE_CHECKING, Self

from tests.support.pages import ROOT
from tests.support.patience import PATIENCE
from tests.support.tally import Tally

if TYPE_CHECKING:
    from types import TracebackType


class Program:
    """`python -m module` with these variables in its environment; it ends with its block."""

    def __init__(self, module: str, **variables: str) -> None:
        self.lines: Tally[str] = Tally()
        """The output, from stdout and stderr."""
        self._module = module
        self._variables = variables
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-W", "error", "-u", "-m", self._module),
            cwd=ROOT,
            env=os.environ | {"PYTHONUNBUFFERED": "1"} | self._variables,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        self._reader = asyncio.create_task(self._read(self._process))
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        process = self._running()
        if process.returncode is None:
            # Together with the processes that it started, which are all in its session.
            os.killpg(process.pid, signal.SIGKILL)
        await self.end()

    async def hear(self, pattern: str, seconds: float = PATIENCE) -> str:
        """Wait until the output matches; return the group of the pattern, or the whole match."""

        def heard() -> re.Match[str] | None:
            return re.search(pattern, self.output)

        await self.lines.wait_until(lambda: heard() is not None, seconds)
        found = heard()
        assert found is not None
        return found[found.re.groups]

    @property
    def output(self) -> str:
        """Return the output so far."""
        return "".join(self.lines)

    def terminate(self) -> None:
        """Ask it to end."""
        self._running().send_signal(signal.SIGTERM)

    async def end(self) -> int:
        """Wait until it and its children have ended; return its exit code."""
        assert self._reader is not None
        exit_code = await self._running().wait()
        await self._reader
        return exit_code

    def _running(self) -> asyncio.subprocess.Process:
        assert self._process is not None, "it is started by its `async with` block"
        return self._process

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            self.lines.add(line.decode())
