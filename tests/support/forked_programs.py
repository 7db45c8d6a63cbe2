"""Programs that run as `python -W error FILE` does, in forks of a process that imported Monque.

Importing Monque and PyMongo takes longer than most programs of the documentation run.
`python -m tests.support.forked_programs` is that process. It reads one request per line, and writes
the exit code of each program.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Done:
    """A program that has ended."""

    returncode: int
    stdout: str
    stderr: str


class ForkedPrograms:
    """The process that forks; use it in a `with` block."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", __name__],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.communicate()

    def run(self, program: Path, environment: Mapping[str, str]) -> Done:
        """Run a program in its directory, and wait for its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory() as directory:
            out, err = Path(directory, "out"), Path(directory, "err")
            request = {
                "program": str(program),
                "environment": dict(environment),
                "out": str(out),
                "err": str(err),
            }
            self._process.stdin.write(f"{json.dumps(request)}\n")
            self._process.stdin.flush()
            code = int(self._process.stdout.readline())
            return Done(code, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8"))


def _main() -> None:
    import monque_core.reactive  # noqa: PLC0415  # only in the process that forks
    import monque_core.sync  # noqa: PLC0415
    import monque_di  # noqa: PLC0415

    del monque_core, monque_di
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if not pid:
            # The end of the program is that of this process, with all that Python does then.
            _run(request)
            return
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _run(request: dict[str, Any]) -> None:
    for descriptor, name in ((0, os.devnull), (1, request["out"]), (2, request["err"])):
        opened = os.open(name, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.environ.clear()
    os.environ.update(request["environment"])
    program = Path(request["program"])
    os.chdir(program.parent)
    sys.argv = [str(program)]
    sys.path[0] = str(program.parent)
    runpy.run_path(str(program), run_name="__main__")


if __name__ == "__main__":
    _main()
