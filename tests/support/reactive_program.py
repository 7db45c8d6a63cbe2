"""A reactive task to be killed: `python -m tests.support.reactive_program <settings as JSON>`.

It prints its events as lines of JSON. A line on its standard input ends the waiting runs; the end
of its standard input ends the process, so that it never outlives the test that started it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

from pymongo import AsyncMongoClient

from monque_core import Fixed, Monque, ReactiveOptions
from tests.support.worker_program import say

if TYPE_CHECKING:
    from monque_core import ReactiveTask

_may_end = threading.Event()


async def run_at_once(task: ReactiveTask) -> None:
    say("ran", id=task.source_id)


async def wait(task: ReactiveTask) -> None:
    say("ran", id=task.source_id)
    while not _may_end.is_set():
        await asyncio.sleep(0.01)
    say("ended", id=task.source_id)


async def kill_the_process(task: ReactiveTask) -> None:
    say("ran", id=task.source_id)
    os.kill(os.getpid(), signal.SIGKILL)


HANDLERS = {"quick": run_at_once, "waits": wait, "kills": kill_the_process}


def _obey() -> None:
    for _ in sys.stdin:
        _may_end.set()
    os._exit(0)


async def _work(settings: dict[str, Any]) -> None:
    options = settings["options"]
    if "max_attempts" in options:
        options["retry"] = Fixed(1, max_attempts=options.pop("max_attempts"))
    async with AsyncMongoClient[dict[str, Any]](settings["uri"]) as client:
        pace = ReactiveOptions(**settings["pace"])
        monque = Monque(client[settings["database"]], reactive_options=pace)
        monque.reactive(settings["collection"], HANDLERS[settings["handler"]], **options)
        monque.on("leader:acquired", lambda event: say("leads", term=event.term))
        monque.on("leader:lost", lambda event: say("leads no more", term=event.term))
        monque.on("task:error", lambda event: say("error", kind=type(event.error).__name__))
        monque.on("task:complete", lambda event: say("completed", id=event.task.source_id))
        async with monque:
            say("ready")
            await asyncio.Event().wait()


def main(settings: dict[str, Any]) -> None:
    threading.Thread(target=_obey, daemon=True).start()
    asyncio.run(_work(settings))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
