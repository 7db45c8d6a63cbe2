"""One `mongod` process: the port that it listens on, and its log."""

from __future__ import annotations

import json
import random
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

from monque_core.errors import MonqueConnectionError, MonqueError

if TYPE_CHECKING:
    from pathlib import Path

    from monque_core.local.guard import Guard

_TAIL_LINES = 15
_LISTENING = "Waiting for connections"
_SEVERE = ("E", "F")
# Below the ports that systems use for outgoing connections, so that the port of a node stays free
# until the node is started again.
_PORTS = range(20000, 32000)
_PORT_ATTEMPTS = 200
_random = random.SystemRandom()
_START_SECONDS = 60.0
_STOP_SECONDS = 30.0
_LOOK_SECONDS = 0.01
_PORT_TAKEN = 48
# Windows has no SIGKILL; SIGTERM kills there.
_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)
_OPTIONS = (
    "--bind_ip=127.0.0.1",
    "--nounixsocket",
    # With less, the server refuses documents of the largest size.
    "--wiredTigerCacheSizeGB=1",
    "--setParameter=diagnosticDataCollectionEnabled=false",
    # How long a server that is stopped waits for its clients to disconnect, by default 15 s.
    "--setParameter=shutdownTimeoutMillisForSignaledShutdown=100",
)


class Log:
    """The log file of one server, read from the beginning of its latest run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._start = 0

    def begin(self) -> None:
        """Begin a new run at the end of the file."""
        self._start = self.path.stat().st_size if self.path.exists() else 0

    def says_listening(self) -> bool:
        """Whether the server accepts connections."""
        return _LISTENING in self._latest()

    def explanation(self) -> str:
        """Return why the run ended: its errors, or the last lines if there are none."""
        lines = self._latest().splitlines()
        entries = [_parse(line) for line in lines]
        severe = [
            line
            for line, entry in zip(lines, entries, strict=True)
            if entry is None or entry.get("s") in _SEVERE
        ]
        return "\n".join((severe or lines)[-_TAIL_LINES:])

    def _latest(self) -> str:
        with self.path.open("rb") as log:
            log.seek(self._start)
            return log.read().decode(errors="replace")


def _parse(line: str) -> dict[str, Any] | None:
    """Return a log entry; None for plain text, which the dynamic loader and the shell write."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None


def free_port() -> int:
    """Return a port that no program listens on now."""
    for _ in range(_PORT_ATTEMPTS):
        port = _random.choice(_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise MonqueConnectionError(
        f"no free port found between {_PORTS.start} and {_PORTS.stop} "
        f"in {_PORT_ATTEMPTS} attempts; choose one with LocalMongo(port=...)"
    )


class PortTakenError(MonqueConnectionError):
    """Another program listens on the port."""


class Node:
    """One `mongod` of a `LocalMongo`; fault tests stop, kill, suspend and start it.

    Every method blocks until it has finished; in a coroutine, call it with `asyncio.to_thread`.
    """

    def __init__(
        self, guard: Guard, binary: Path, name: str, port: int, replica_set: str | None
    ) -> None:
        self.port = port
        self.path = guard.path / name
        self.log_path = guard.path / f"{name}.log"
        self._log = Log(self.log_path)
        self._guard = guard
        self._binary = binary
        self._name = name
        self._replica_set = replica_set
        self._pid: int | None = None

    def __repr__(self) -> str:
        return f"<Node {self.address} at {self.path}>"

    @property
    def address(self) -> str:
        """The `host:port` that it listens on."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The id of the process."""
        if self._pid is None:
            raise MonqueError(f"{self!r} has not been started")
        return self._pid

    @property
    def running(self) -> bool:
        """Whether the process exists, suspended or not."""
        return self._pid is not None and self._guard.exit_code(self._name) is None

    def start(self) -> None:
        """Start it on its path and port, and return when it accepts connections."""
        self.launch()
        self.wait_until_listening()

    def launch(self) -> None:
        """Start the process without waiting for it."""
        if self.running:
            raise MonqueError(f"{self!r} is running already")
        self.path.mkdir(parents=True, exist_ok=True)
        self._log.begin()
        self._pid = self._guard.launch(self._name, self._command(), self.log_path)

    def wait_until_listening(self) -> None:
        """Wait for a launched process to accept connections."""
        # Another program may listen on the port, so only the log shows that this server does.
        deadline = time.monotonic() + _START_SECONDS
        while not self._log.says_listening():
            exit_code = self._guard.exit_code(self._name)
            if exit_code == _PORT_TAKEN:
                raise PortTakenError(
                    f"mongod cannot listen on {self.address}: the port is taken; "
                    f"choose another one, or port=0 for any free one\n{self._log.explanation()}"
                )
            if exit_code is not None:
                raise MonqueConnectionError(
                    f"mongod ended with code {exit_code} while starting on {self.address}, "
                    f"data in {self.path}; from its log:\n{self._log.explanation()}"
                )
            if time.monotonic() > deadline:
                raise MonqueConnectionError(
                    f"mongod does not listen on {self.address} after {_START_SECONDS:.0f} s; "
                    f"from its log:\n{self._log.explanation()}"
                )
            time.sleep(_LOOK_SECONDS)

    def stop(self) -> None:
        """Shut it down cleanly; a primary steps down first."""
        if not self.running:
            return
        if sys.platform != "win32":
            self.resume()
        self._guard.signal(self._name, signal.SIGTERM)
        if not self._ended_within(_STOP_SECONDS):
            self.kill()

    def kill(self) -> None:
        """End it at once, as a crash would (SIGKILL)."""
        if not self.running:
            return
        self._guard.signal(self._name, _KILL)
        if not self._ended_within(_STOP_SECONDS):
            raise MonqueConnectionError(f"{self!r} is still running after SIGKILL")

    def suspend(self) -> None:
        """Freeze it (SIGSTOP): its connections stay open, and it answers nothing."""
        self._check_can_be_suspended()
        self._guard.suspend(self._name)

    def resume(self) -> None:
        """Resume a suspended process (SIGCONT)."""
        self._check_can_be_suspended()
        self._guard.signal(self._name, signal.SIGCONT)

    def _check_can_be_suspended(self) -> None:
        if not hasattr(signal, "SIGSTOP"):
            raise MonqueError(f"a process cannot be suspended on this platform ({sys.platform})")
        if not self.running:
            raise MonqueError(f"{self!r} is not running")

    def _ended_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.running:
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    def _command(self) -> list[str]:
        command = [str(self._binary), f"--dbpath={self.path}", f"--port={self.port}", *_OPTIONS]
        if self._replica_set:
            command.append(f"--replSet={self._replica_set}")
        return command
