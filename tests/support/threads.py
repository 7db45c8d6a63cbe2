"""The threads of monque."""

from __future__ import annotations

import threading

from tests.support.patience import wait_until

_LOOP = "monque-loop"


def monque_threads() -> set[threading.Thread]:
    """Return the running threads of monque."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("monque")}


def no_threads_are_left() -> bool:
    """Return whether the event loop of a SyncMonque has ended; wait for its other threads."""
    if any(thread.name == _LOOP for thread in monque_threads()):
        return False
    # A thread that waits for MongoDB was asked to end, and may need a moment.
    wait_until(lambda: not monque_threads())
    return True
