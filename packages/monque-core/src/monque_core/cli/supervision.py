"""What a supervisor and a worker process tell each other, through a socket between them.

The supervisor shuts down its side to ask the process to finish; its death does the same. The
process reports which instance it is before it claims anything, so that the supervisor knows whose
claims are left when it dies. The next process in its place gets this by its environment.
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


class Supervision:
    """The side of the process."""

    def __init__(self, descriptor: int, dead: Sequence[Instance]) -> None:
        self._descriptor = descriptor
        self.dead = dead
        """The instances that have ended in this place, and whose claims nobody has recovered."""

    @classmethod
    def inherited(cls) -> Supervision | None:
        """Return that of this process, None if it has no supervisor; children inherit none."""
        descriptor = os.environ.pop(_SOCKET, None)
        dead = json.loads(os.environ.pop(_DEAD, "[]"))
        if descriptor is None:
            return None
        return cls(int(descriptor), [Instance(*each) for each in dead])

    def when_asked(self, finish: Callable[[], None]) -> None:
        """Call a function when the supervisor asks this process to finish, or is gone."""
        loop = asyncio.get_running_loop()

        def asked() -> None:
            loop.remove_reader(self._descriptor)
            finish()

        loop.add_reader(self._descriptor, asked)

    def report(self, instance: Instance) -> None:
        """Report which instance this process is, and that those before it are taken over."""
        # Without a supervisor any more, nobody needs it.
        with suppress(OSError):
            os.write(self._descriptor, json.dumps([instance.id, instance.holder]).encode())


class Line:
    """The side of the supervisor."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)

    @property
    def descriptor(self) -> int:
        """Return what the process must inherit."""
        return self._theirs.fileno()

    def environment(self, dead: Sequence[Instance]) -> Mapping[str, str]:
        """Return the variables by which the process finds it."""
        instances = json.dumps([[each.id, each.holder] for each in dead])
        return {_SOCKET: str(self.descriptor), _DEAD: instances}

    def handed_over(self) -> None:
        """Close the side of the process, which has it by now."""
        self._theirs.close()

    def ask_to_finish(self) -> None:
        """Ask the process to finish."""
        with suppress(OSError):
            self._ours.shutdown(socket.SHUT_WR)

    def reported(self) -> Instance | None:
        """Return what the process has reported, None if it did not come that far."""
        try:
            return Instance(*json.loads(self._ours.recv(_LONGEST_REPORT)))
        except (OSError, ValueError):
            return None

    def close(self) -> None:
        """Let go of it; a process that still runs is asked to finish by that."""
        self._ours.close()
        self._theirs.close()
