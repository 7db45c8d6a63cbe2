"""Tasks and threads that monque leaves running."""

from __future__ import annotations

import asyncio
import threading
from typing import Any


class Leftovers:
    """Tasks and threads of monque that were started after this object was created."""

    def __init__(self) -> None:
        self._tasks = set(_tasks())
        self._threads = set(_threads())

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        """Return the tasks of this loop that run code of monque."""
        return [task for task in _tasks() if task not in self._tasks]

    @property
    def threads(self) -> list[threading.Thread]:
        """Return the threads that monque has started."""
        return [thread for thread in _threads() if thread not in self._threads]


def _tasks() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if "monque_core" in _source(task)]


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("monque")]


def _source(task: asyncio.Task[Any]) -> str:
    code = getattr(task.get_coro(), "cr_code", None)
    return "" if code is None else str(code.co_filename)
