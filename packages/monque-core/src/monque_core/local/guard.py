"""The guard process, as its owner controls it."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from monque_core.errors import MonqueConnectionError
from monque_core.local import guard_process

if TYPE_CHECKING:
    from collections.abc import Sequence

_guards: weakref.WeakSet[Guard] = weakref.WeakSet()


class Guard:
    """Processes and a directory that end with their owner, however it ends."""

    def __init__(self, path: Path | None) -> None:
        program = [sys.executable, "-I", "-S", guard_process.__file__]
        self._process = subprocess.Popen(
            program if path is None else [*program, str(path)],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C in a terminal goes to the whole process group; the owner ends the servers.
            start_new_session=True,
        )
        assert isinstance(self._process.stdin, io.FileIO)
        assert isinstance(self._process.stdout, io.FileIO)
        self._requests = self._process.stdin
        self._replies = io.BufferedReader(self._process.stdout)
        self._temporary = path is None
        self._lock = threading.Lock()
        self._last_id = 0
        _guards.add(self)
        try:
            self.path = Path(self._reply())
        except BaseException:
            self._end()
            raise

    def launch(self, key: str, command: Sequence[str], log: Path) -> int:
        """Start a process whose output is appended to `log`, and return its id."""
        pid: int = self._ask({"do": "launch", "key": key, "command": command, "log": str(log)})
        return pid

    def exit_code(self, key: str) -> int | None:
        """Return how the process ended, or None while it runs."""
        code: int | None = self._ask({"do": "poll", "key": key})
        return code

    def signal(self, key: str, number: int) -> None:
        """Send a signal to the process, unless it has ended."""
        self._ask({"do": "signal", "key": key, "signal": number})

    def suspend(self, key: str) -> None:
        """Freeze the process, and return when it is frozen."""
        self._ask({"do": "suspend", "key": key})

    def close(self) -> None:
        """End the processes, remove the directory if it was temporary, and wait for both."""
        if self._requests.closed:
            return
        self._end()
        if self._temporary:
            # The guard process has removed it, unless it was killed.
            shutil.rmtree(self.path, ignore_errors=True)

    def abandon(self) -> None:
        """Close the pipe in the child of a fork; the processes belong to the parent."""
        self._requests.close()

    def _end(self) -> None:
        self._requests.close()
        self._process.wait()
        self._replies.close()

    def _ask(self, request: dict[str, Any]) -> Any:
        with self._lock:
            if self._requests.closed:
                raise MonqueConnectionError(
                    "this local MongoDB was stopped, or belongs to the parent of this process"
                )
            self._last_id += 1
            request["id"] = self._last_id
            try:
                self._requests.write(json.dumps(request).encode() + b"\n")
            except BrokenPipeError:
                raise self._gone() from None
            return self._reply()

    def _reply(self) -> Any:
        # A request interrupted by Ctrl-C or a signal leaves its reply behind: skip those.
        while line := self._replies.readline():
            reply = json.loads(line)
            if reply["id"] == self._last_id:
                if "error" in reply:
                    raise MonqueConnectionError(reply["error"])
                return reply["value"]
        raise self._gone()

    def _gone(self) -> MonqueConnectionError:
        code = self._process.wait()
        return MonqueConnectionError(
            f"the process that guards this local MongoDB ended unexpectedly, with code {code}, "
            "and its servers with it"
        )


def _abandon_all() -> None:
    for guard in list(_guards):
        guard.abandon()


if hasattr(os, "register_at_fork"):
    # A forked child inherits the pipe. Kept open there, the pipe would outlive the owner.
    os.register_at_fork(after_in_child=_abandon_all)
