"""The threads of monque."""

from __future__ import annotations

import threading

from tests.support.patience import wait_until

_LOOP = "monque-loop"


def monque_threads() -> set[threading.Thread]:
    """Give those that run."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("monque")}


def no_threads_are_left() -> bool:
    """Tell whether the event loop of a SyncMonque has ended, and soon everything else, too."""
    if any(thread.name == _LOOP for thread in monque_threads()):
        return False
    # A thread that waits for MongoDB was told to go, and may need a moment.
    wait_until(lambda: not monque_threads())
    return True
