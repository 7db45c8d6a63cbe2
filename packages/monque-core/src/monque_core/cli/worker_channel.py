"""The socket between a supervisor and a worker process.

The supervisor closes its end to request a stop; its death has the same effect. The worker reports
its instance before it claims anything, so that the supervisor knows whose claims remain when the
process dies. The replacement process receives the dead instances in its environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from monque_core.scheduler.succession import Instance

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_SOCKET: Final = "MONQUE_SUPERVISOR_SOCKET"
_DEAD: Final = "MONQUE_DEAD_INSTANCES"
_LONGEST_REPORT: Final = 1 << 16


class WorkerEnd:
    """The end of the channel in the worker process."""

    def __init__(self, descriptor: int, dead: Sequence[Instance]) -> None:
        self._descriptor = descriptor
        self.dead = dead
        """Dead predecessors of this process whose claims are not recovered yet."""

    @classmethod
    def inherited(cls) -> WorkerEnd | None:
        """Return the channel of this process; None without a supervisor. Removes the variables."""
        descriptor = os.environ.pop(_SOCKET, None)
        dead = json.loads(os.environ.pop(_DEAD, "[]"))
        if descriptor is None:
            return None
        return cls(int(descriptor), [Instance(*each) for each in dead])

    def on_stop_request(self, stop: Callable[[], None]) -> None:
        """Call a function when the supervisor requests a stop or is gone."""
        loop = asyncio.get_running_loop()

        def asked() -> None:
            loop.remove_reader(self._descriptor)
            stop()

        loop.add_reader(self._descriptor, asked)

    def report(self, instance: Instance) -> None:
        """Report the instance of this process, after it took over from its predecessors."""
        # The supervisor may be gone.
        with suppress(OSError):
            os.write(self._descriptor, json.dumps([instance.id, instance.holder]).encode())


class SupervisorEnd:
    """The end of the channel in the supervisor."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)

    @property
    def descriptor(self) -> int:
        """Return the file descriptor that the process inherits."""
        return self._theirs.fileno()

    def environment(self, dead: Sequence[Instance]) -> Mapping[str, str]:
        """Return the environment variables for the process."""
        instances = json.dumps([[each.id, each.holder] for each in dead])
        return {_SOCKET: str(self.descriptor), _DEAD: instances}

    def close_worker_end(self) -> None:
        """Close our copy of the worker end, once the process has inherited it."""
        self._theirs.close()

    def request_stop(self) -> None:
        """Request the process to stop."""
        with suppress(OSError):
            self._ours.shutdown(socket.SHUT_WR)

    def read_report(self) -> Instance | None:
        """Return the instance that the process reported; None if it did not."""
        try:
            return Instance(*json.loads(self._ours.recv(_LONGEST_REPORT)))
        except (OSError, ValueError):
            return None

    def close(self) -> None:
        """Close both ends; a process that still runs is requested to stop."""
        self._ours.close()
        self._theirs.close()
