"""The `monque` command, in a process of its own or, which is quicker, in that of the tests."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import BytesIO, StringIO, TextIOWrapper
from threading import Lock
from typing import TYPE_CHECKING, Any, Self
from unittest import mock

from monque_core.cli.main import main
from tests.support.patience import PATIENCE
from tests.support.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

COMMAND = (
    *(sys.executable, "-W", "error", "-W", "ignore::ResourceWarning"),
    *("-m", "monque_core.cli"),
)
_ONE_AT_A_TIME = Lock()
"""A command in this process uses its arguments, environment and standard streams."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Return its standard output, parsed as JSON."""
        assert self.code == 0, self
        return json.loads(self.out)


class CommandLine:
    """A shell with these environment variables, in a directory."""

    def __init__(self, directory: Path, **variables: str) -> None:
        self.directory = directory
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("MONQUE_")
        } | {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", **variables}

    async def __call__(self, *arguments: str, typed: str = "", **variables: str) -> Ended:
        """Run a command to its end in a thread; assert that it prints no colors.

        Starting a process takes half a second. Only commands that wait for signals, import from the
        current directory, or depend on the start of Python need one.
        """
        environment = self.environment | variables
        ended = await asyncio.to_thread(run_here, arguments, environment, typed)
        assert "\x1b" not in ended.out + ended.err
        return ended

    async def process(self, *arguments: str, **variables: str) -> Ended:
        """Run a command to its end in a process; assert that it prints no traceback or colors."""
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            *arguments,
            cwd=self.directory,
            env=self.environment | variables,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        assert process.returncode is not None
        ended = Ended(process.returncode, out.decode(), err.decode())
        assert "Traceback" not in ended.err, ended.err
        assert "\x1b" not in ended.out + ended.err
        return ended

    def start(self, *arguments: str, **variables: str) -> Running:
        """Return a command that runs until it is asked to end, for an `async with` block."""
        return Running(self, arguments, self.environment | variables)


class Running:
    """A running command; it ends at the latest with its block."""

    def __init__(
        self, shell: CommandLine, arguments: tuple[str, ...], environment: dict[str, str]
    ) -> None:
        self.lines: Tally[str] = Tally()
        """The output of the command and its children, from stdout and stderr."""
        self._shell = shell
        self._arguments = arguments
        self._environment = environment
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *COMMAND,
            *self._arguments,
            cwd=self._shell.directory,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
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
        if self.process.returncode is None:
            # Its children end by themselves after it.
            self.process.kill()
        await self.end()

    @property
    def process(self) -> asyncio.subprocess.Process:
        """Return the process."""
        assert self._process is not None, "it is started by its `async with` block"
        return self._process

    @property
    def output(self) -> str:
        """Return the output so far."""
        return "".join(self.lines)

    def told(self, pattern: str) -> list[str]:
        """Return all matches in the output: the group of the pattern."""
        return re.findall(pattern, self.output)

    async def hear(self, pattern: str, count: int = 1, seconds: float = PATIENCE) -> list[str]:
        """Wait until the output has this many matches, and return all of them."""
        await self.lines.wait_until(lambda: len(self.told(pattern)) >= count, seconds)
        return self.told(pattern)

    def signal(self, number: int = signal.SIGTERM) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    async def end(self) -> int:
        """Wait until the command and all its children have ended; return its exit code."""
        assert self._reader is not None
        exit_code = await self.process.wait()
        await self._reader
        return exit_code

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            self.lines.add(line.decode())


def run_here(arguments: Sequence[str], environment: Mapping[str, str], typed: str = "") -> Ended:
    """Run a command to its end in this thread; an unexpected exception is raised."""
    out = TextIOWrapper(BytesIO(), encoding="utf-8", write_through=True)
    err = TextIOWrapper(BytesIO(), encoding="utf-8", errors="backslashreplace", write_through=True)
    with (
        _ONE_AT_A_TIME,
        mock.patch.object(sys, "argv", ["monque", *arguments]),
        mock.patch.object(sys, "stdin", StringIO(typed)),
        mock.patch.dict(os.environ, environment, clear=True),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code
    assert isinstance(code, int)
    return Ended(code, _written(out), _written(err))


def _written(stream: TextIOWrapper) -> str:
    raw = stream.buffer
    assert isinstance(raw, BytesIO)
    return raw.getvalue().decode()
