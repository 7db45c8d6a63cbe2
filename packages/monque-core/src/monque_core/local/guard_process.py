"""The process that starts every `mongod`, and ends them when its owner has ended.

It runs by file name in an isolated interpreter, so it imports only the standard library. Its
standard input is a pipe from the owner. Each line on the pipe is a request in JSON; the reply is
one line on standard output. When the owner ends, however it ends, the pipe closes. The guard
process then ends its children, removes the directory if it is temporary, and exits.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

GRACE_SECONDS = 20


class Children:
    """The processes that were started, by the key of the owner."""

    def __init__(self) -> None:
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def handle(self, request: dict[str, Any]) -> int | None:
        """Execute one request, and return a process id, an exit code or None."""
        key = request["key"]
        match request["do"]:
            case "launch":
                return self._launch(key, request["command"], request["log"])
            case "poll":
                return self._processes[key].poll()
            case "signal":
                self._processes[key].send_signal(request["signal"])
                return None
            case "suspend":
                self._suspend(self._processes[key])
                return None
            case unknown:
                raise ValueError(f"unknown request {unknown!r}")

    def end(self, *, gracefully: bool) -> None:
        """End all processes, and return when they have ended."""
        alive = [process for process in self._processes.values() if process.poll() is None]
        if gracefully:
            for process in alive:
                if sys.platform != "win32":
                    process.send_signal(signal.SIGCONT)
                process.terminate()
            for process in alive:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(GRACE_SECONDS)
        for process in alive:
            process.kill()
            process.wait()

    def _launch(self, key: str, command: list[str], log: str) -> int:
        with Path(log).open("ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509 - no threads here
            )
        self._processes[key] = process
        return process.pid

    def _suspend(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGSTOP)
        # The signal takes effect asynchronously. macOS has no waitid before Python 3.13.
        if hasattr(os, "waitid") and process.poll() is None:
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def _die_with_parent() -> None:
    """Make Linux kill this child if the guard process is killed.

    This holds until the thread that forked ends, so the guard process has only one thread.
    """
    parent_death_signal = 1
    ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGKILL)


def _serve(children: Children) -> None:
    for line in sys.stdin.buffer:
        request = json.loads(line)
        reply: dict[str, Any] = {"id": request["id"]}
        try:
            reply["value"] = children.handle(request)
        except (KeyError, OSError, ValueError) as error:
            reply["error"] = f"{type(error).__name__}: {error}"
        _answer(reply)


def _answer(reply: dict[str, Any]) -> None:
    # Unbuffered: a reply that nobody reads must not raise an error at exit.
    os.write(sys.stdout.fileno(), json.dumps(reply).encode() + b"\n")


def main(kept_path: str | None) -> None:
    """Serve the owner until it ends; without a path, use a temporary directory."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    path = kept_path or tempfile.mkdtemp(prefix="monque-")
    children = Children()
    try:
        with suppress(BrokenPipeError):
            _answer({"id": 0, "value": path})
            _serve(children)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        children.end(gracefully=kept_path is not None)
        if kept_path is None:
            shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
