"""A pseudo-terminal in which a program runs."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

# Only a session leader can have a controlling terminal, on which Ctrl-C sends a signal.
_WITH_ITS_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)


class Terminal:
    """A program that believes that it runs in a user's terminal; close it afterwards."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        directory: Path,
        columns: int = 120,
    ) -> None:
        import pty  # noqa: PLC0415  # not on Windows

        self.output = ""
        self._screen, inside = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", _WITH_ITS_TERMINAL, *command],
            stdin=inside,
            stdout=inside,
            stderr=inside,
            cwd=directory,
            env={**environment, "TERM": "xterm", "COLUMNS": str(columns), "LINES": "40"},
            start_new_session=True,
        )
        os.close(inside)

    def type(self, keys: str) -> None:
        """Send keys to the program."""
        os.write(self._screen, keys.encode())

    def read_until(self, text: str) -> None:
        """Read the output until it contains this text."""
        while text not in self.output:
            piece = self._read()
            assert piece, f"the program ended without {text!r}:\n{self.output}"
            self.output += piece

    def read_to_end(self) -> int:
        """Read the rest of the output and return the exit code."""
        while piece := self._read():
            self.output += piece
        return self.process.wait()

    def close(self) -> None:
        """Kill the program if it still runs."""
        with self.process:
            self.process.kill()
        os.close(self._screen)

    def _read(self) -> str:
        # Linux reports the end of the other side as an error.
        with suppress(OSError):
            return os.read(self._screen, 65536).decode(errors="replace")
        return ""
