"""A worker process to be mistreated: `python -m tests.faults.lab.worker <settings as JSON>`.

It writes down what happens, and ends with its standard input, so that it outlives nobody.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import threading
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pymongo import AsyncMongoClient, MongoClient

from monque_core import JobRetention, Monque, SyncMonque
from tests.faults.lab.doors import PATIENCE
from tests.faults.lab.recorder import Recorder
from tests.faults.lab.sabotage import SABOTAGE
from tests.faults.lab.watches import watch_for_starvation, watch_the_loop, watch_vitals
from tests.faults.lab.workload import INSTANCE_LIMIT, LIMITS, Workload
from tests.support.leftovers import Leftovers
from tests.support.wall_clock import turn_forward

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Complaints(logging.Handler):
    """What asyncio complains of, which is a fault of ours."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(logging.ERROR)
        self._recorder = recorder

    def emit(self, record: logging.LogRecord) -> None:
        """Write a complaint down."""
        error = record.exc_info[1] if record.exc_info else None
        self._recorder.note("complaint", text=f"{record.getMessage()} {error!r}")


def listen(monque: Monque | SyncMonque, recorder: Recorder) -> None:
    """Write down what an instance announces."""

    def outcome(what: str) -> Any:
        def note(event: Any) -> None:
            job = event.job
            recorder.note(
                what, job=str(job.id), token=str(job.claim_token), name=job.name, status=job.status
            )

        return note

    def error(event: Any) -> None:
        job = event.job
        recorder.note(
            "error",
            kind=type(event.error).__name__,
            text=str(event.error)[:500],
            job=None if job is None else str(job.id),
            token=None if job is None else str(job.claim_token),
        )

    monque.on("job:complete", outcome("completed"))
    monque.on("job:fail", outcome("failed"))
    monque.on("job:error", error)
    monque.on("stale:recovered", lambda event: recorder.note("recovered", count=event.count))


def end_with_standard_input() -> None:
    """End at once when whoever started this process has ended."""

    def wait() -> None:
        sys.stdin.read()
        os._exit(9)

    threading.Thread(target=wait, daemon=True).start()


@asynccontextmanager
async def connected(settings: dict[str, Any]) -> AsyncIterator[Any]:
    """Give the database by the kind of handle that the settings name."""
    if settings["handle"] == "blocking":
        blocking = MongoClient[dict[str, Any]](settings["uri"], **PATIENCE)
        try:
            yield blocking[settings["database"]]
        finally:
            await asyncio.to_thread(blocking.close)
    else:
        async with AsyncMongoClient[dict[str, Any]](settings["uri"], **PATIENCE) as client:
            yield client[settings["database"]]


async def work(settings: dict[str, Any], recorder: Recorder) -> None:
    """Run an instance until this process is told to stop."""
    heartbeat = settings["options"]["heartbeat_interval"]
    watching = [
        asyncio.create_task(watch_the_loop(recorder, heartbeat / 10)),
        asyncio.create_task(watch_vitals(recorder)),
    ]
    async with connected(settings) as db:
        leftovers = Leftovers()
        monque = Monque(db, **_options(settings["options"]))
        Workload(recorder, heartbeat).register(monque)
        listen(monque, recorder)
        recorder.note(
            "up",
            instance=monque.scheduler_instance_id,
            limits=LIMITS,
            instance_limit=INSTANCE_LIMIT,
            pid=os.getpid(),
        )
        try:
            await monque.run()
        finally:
            threads = [thread.name for thread in leftovers.threads]
            recorder.note("down", tasks=[repr(task) for task in leftovers.tasks], threads=threads)
    for task in watching:
        task.cancel()


def _options(options: dict[str, Any]) -> Any:
    """Read options that came as JSON."""
    retention = options.get("job_retention")
    return options | {"job_retention": retention and JobRetention(**retention)}


def main(settings: dict[str, Any]) -> None:
    """Work as the settings say."""
    recorder = Recorder(Path(settings["record"]))
    # Until the instance takes over: told to stop before, this process has nothing to finish.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    for name in ("asyncio", "monque"):
        logging.getLogger(name).addHandler(Complaints(recorder))
    turn_forward(settings["clock_ahead"])
    end_with_standard_input()
    watch_for_starvation(recorder, settings["options"]["heartbeat_interval"] / 10)
    if settings["sabotage"]:
        SABOTAGE[settings["sabotage"]]()
    asyncio.run(work(settings, recorder))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
