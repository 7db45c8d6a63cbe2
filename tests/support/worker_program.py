"""A worker to be killed and frozen: `python -m tests.support.worker_program <settings as JSON>`.

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
import time
from typing import TYPE_CHECKING, Any

from pymongo import AsyncMongoClient

from monque_core import Monque
from tests.support.wall_clock import turn_forward

if TYPE_CHECKING:
    from monque_core import Job

_may_end = threading.Event()


def say(what: str, **details: object) -> None:
    """Print an event without buffering: the process may be dead a moment later."""
    sys.stdout.write(json.dumps({"what": what, **details}) + "\n")
    sys.stdout.flush()


async def wait_on_the_loop(job: Job[Any]) -> None:
    say("started", data=job.data, claims=job.claims)
    while not _may_end.is_set():
        await asyncio.sleep(0.01)
    say("ended", data=job.data)


def wait_in_a_thread(job: Job[Any]) -> None:
    say("started", data=job.data, claims=job.claims)
    _may_end.wait()
    say("ended", data=job.data)


async def run_at_once(job: Job[Any]) -> None:
    say("ended", data=job.data, claims=job.claims)


async def exit_the_process(job: Job[Any]) -> None:
    say("started", data=job.data, claims=job.claims)
    os._exit(3)


async def kill_the_process(job: Job[Any]) -> None:
    say("started", data=job.data, claims=job.claims)
    os.kill(os.getpid(), signal.SIGKILL)


HANDLERS = {
    "on-loop": wait_on_the_loop,
    "in-thread": wait_in_a_thread,
    "quick": run_at_once,
    "exits": exit_the_process,
    "kills": kill_the_process,
}


def _obey() -> None:
    for _ in sys.stdin:
        _may_end.set()
    os._exit(0)


async def _work(uri: str, database: str, names: list[str], options: dict[str, Any]) -> None:
    async with AsyncMongoClient[dict[str, Any]](uri) as client:
        monque = Monque(client[database], **options)
        for name in names:
            monque.worker(name, HANDLERS[name])
        monque.on("job:error", lambda event: say("error", kind=type(event.error).__name__))
        monque.on("job:complete", lambda event: say("completed", data=event.job.data))
        async with monque:
            say("ready", now=time.time())
            await asyncio.Event().wait()


def main(settings: dict[str, Any]) -> None:
    turn_forward(settings.pop("wall_clock_ahead"))
    threading.Thread(target=_obey, daemon=True).start()
    asyncio.run(_work(**settings))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
