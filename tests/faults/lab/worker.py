"""A worker process under faults: `python -m tests.faults.lab.worker <settings as JSON>`.

It records what happens, and exits when its standard input closes, so that it never outlives the
lab.
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
from tests.faults.lab.broken_variants import BROKEN_VARIANTS, LISTENER_VARIANTS
from tests.faults.lab.producer_clients import TIMEOUTS
from tests.faults.lab.recorder import Recorder
from tests.faults.lab.self_monitoring import (
    record_loop_stalls,
    record_resource_usage,
    record_starvation,
)
from tests.faults.lab.workload import INSTANCE_LIMIT, LIMITS, Workload
from tests.support.leftovers import Leftovers
from tests.support.wall_clock import turn_forward

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class ErrorLogRecorder(logging.Handler):
    """Records errors that asyncio and monque log, which are violations."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(logging.ERROR)
        self._recorder = recorder

    def emit(self, record: logging.LogRecord) -> None:
        """Record a logged error."""
        error = record.exc_info[1] if record.exc_info else None
        self._recorder.note("logged error", text=f"{record.getMessage()} {error!r}")


def record_events(monque: Monque | SyncMonque, recorder: Recorder) -> None:
    """Record the events that an instance emits."""

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


def exit_when_stdin_closes() -> None:
    """Exit when the process that started this one has ended."""

    def wait() -> None:
        sys.stdin.read()
        os._exit(9)

    threading.Thread(target=wait, daemon=True).start()


@asynccontextmanager
async def connected(settings: dict[str, Any]) -> AsyncIterator[Any]:
    """Yield the database through the kind of handle that the settings name."""
    if settings["handle"] == "blocking":
        blocking = MongoClient[dict[str, Any]](settings["uri"], **TIMEOUTS)
        try:
            yield blocking[settings["database"]]
        finally:
            await asyncio.to_thread(blocking.close)
    else:
        async with AsyncMongoClient[dict[str, Any]](settings["uri"], **TIMEOUTS) as client:
            yield client[settings["database"]]


async def work(settings: dict[str, Any], recorder: Recorder) -> None:
    """Run an instance until SIGTERM."""
    heartbeat = settings["options"]["heartbeat_interval"]
    watching = [
        asyncio.create_task(record_loop_stalls(recorder, heartbeat / 10)),
        asyncio.create_task(record_resource_usage(recorder)),
    ]
    async with connected(settings) as db:
        leftovers = Leftovers()
        monque = Monque(db, **_options(settings["options"]))
        Workload(recorder, heartbeat).register(monque)
        record_events(monque, recorder)
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
    """Convert options that were passed as JSON."""
    retention = options.get("job_retention")
    return options | {"job_retention": retention and JobRetention(**retention)}


def main(settings: dict[str, Any]) -> None:
    """Work according to the settings."""
    recorder = Recorder(Path(settings["record"]))
    # Until the instance takes over the signal, this process has nothing to finish.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    for name in ("asyncio", "monque"):
        logging.getLogger(name).addHandler(ErrorLogRecorder(recorder))
    turn_forward(settings["clock_ahead"])
    exit_when_stdin_closes()
    record_starvation(recorder, settings["options"]["heartbeat_interval"] / 10)
    if settings["variant"]:
        (BROKEN_VARIANTS | LISTENER_VARIANTS)[settings["variant"]]()
    asyncio.run(work(settings, recorder))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
