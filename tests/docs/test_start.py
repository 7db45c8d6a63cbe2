"""The commands on the first page work as written, in order."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import pytest

from tests.support.pages import ROOT, blocks
from tests.support.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

_PAGE = "docs/start.md"
_PORT_ON_THE_PAGE = "27117"
_NO_INDEX = re.compile("No matching distribution|Could not find a version|connection broken")


@dataclass(frozen=True, slots=True)
class _Console:
    commands: Sequence[str]
    output: str


class _Terminal:
    """A shell in the clone that runs commands; it ends at the latest with its block."""

    def __init__(self, clone: Path, commands: Sequence[str]) -> None:
        self.lines: Tally[str] = Tally()
        self._clone = clone
        self._commands = commands

    async def __aenter__(self) -> Self:
        inherited = ("HOME", "LANG", "PATH", "TMPDIR")
        self._process = await asyncio.create_subprocess_exec(
            *("bash", "-euo", "pipefail", "-c", "\n".join(self._commands)),
            cwd=self._clone,
            env={
                name: value
                for name, value in os.environ.items()
                if name in inherited or name.startswith(("PIP_", "PYENV_"))
            },
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        await self.end()

    @property
    def output(self) -> str:
        return "".join(self.lines)

    async def hear(self, text: str, count: int = 1) -> None:
        await self.lines.wait_until(lambda: self.output.count(text) >= count)

    def press_ctrl_c(self) -> None:
        os.killpg(self._process.pid, signal.SIGINT)

    async def end(self) -> int:
        code = await self._process.wait()
        await self._reader
        return code

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.lines.add(line.decode())


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a clone with the programs that the page tells the reader to save."""
    ignored = shutil.ignore_patterns("__pycache__", "dist")
    shutil.copytree(ROOT / "packages", tmp_path / "packages", ignore=ignored)
    programs = [block.code for block in blocks("python") if block.page == _PAGE]
    for name, code in zip(("first.py", "shop.py", "enqueue.py"), programs, strict=True):
        assert f"`{name}`" in (ROOT / _PAGE).read_text(encoding="utf-8")
        (tmp_path / name).write_text(code, encoding="utf-8")
    return tmp_path


@pytest.fixture
def consoles() -> list[_Console]:
    """Return the terminals of the page, on a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    found = []
    for block in blocks("console"):
        if block.page == _PAGE:
            assert block.code.startswith("$ ")
            code = block.code.replace(_PORT_ON_THE_PAGE, port)
            commands = re.findall(r"^\$ (.*)$", code, re.MULTILINE)
            found.append(_Console(commands, re.sub(r"^\$ .*\n", "", code, flags=re.MULTILINE)))
    return found


@pytest.mark.skipif(sys.platform == "win32", reason="the page speaks to a POSIX shell")
@pytest.mark.long  # pip installs from an index.
@pytest.mark.timeout(900)
async def test_the_first_page_works_as_it_is_written(clone: Path, consoles: list[_Console]) -> None:
    install, local, worker, shell = consoles
    (activate,) = [command for command in install.commands if command.endswith("activate")]
    (uri,) = [command for command in shell.commands if command.startswith("export ")]
    shown = {block.line: block.output for block in blocks("python") if block.page == _PAGE}
    of_first, _, of_enqueue = (shown[line] for line in sorted(shown))

    async with _Terminal(clone, install.commands) as terminal:
        if await terminal.end():
            assert _NO_INDEX.search(terminal.output), terminal.output
            pytest.skip("pip finds no index to install from")
    async with _Terminal(clone, [activate, "python first.py 2>/dev/null"]) as terminal:
        assert await terminal.end() == 0, terminal.output
        assert terminal.output == of_first

    async with _Terminal(clone, [activate, *local.commands]) as server:
        await server.hear("MongoDB is running")
        assert server.output == local.output
        async with _Terminal(clone, worker.commands) as workers:
            await workers.hear("is up", 2)
            async with _Terminal(clone, shell.commands) as terminal:
                assert await terminal.end() == 0, terminal.output
                assert "greet" in terminal.output
            await workers.hear("hello Ada\n")
            async with _Terminal(clone, [activate, uri, "python enqueue.py"]) as terminal:
                assert await terminal.end() == 0, terminal.output
                assert terminal.output == of_enqueue
            await workers.hear("hello Eve\n")
            workers.press_ctrl_c()
            assert await workers.end() == 0, workers.output
        server.press_ctrl_c()
        assert await server.end() == 0, server.output

    assert "Traceback" not in workers.output + server.output
