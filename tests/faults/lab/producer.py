"""A producer process: `python -m tests.faults.lab.producer <settings as JSON>`.

It enqueues jobs of every kind and manages some of them, and records each call before it is made
and its result afterwards.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import random
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pymongo.errors import PyMongoError

from monque_core import JobStateError, MonqueError
from tests.faults.lab.broken_variants import BROKEN_VARIANTS
from tests.faults.lab.producer_clients import open_client
from tests.faults.lab.recorder import Recorder, true_time
from tests.faults.lab.self_monitoring import record_resource_usage, record_starvation
from tests.faults.lab.times import SECOND
from tests.faults.lab.worker import ErrorLogRecorder, exit_when_stdin_closes, record_events
from tests.faults.lab.workload import HANDLER_ERRORS
from tests.support.wall_clock import turn_forward

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.faults.lab.producer_clients import ProducerClient

_KEYS = 6
_REMEMBERED = 50


class Producer:
    """Makes one random call after the other."""

    def __init__(
        self,
        client: ProducerClient,
        recorder: Recorder,
        name: str,
        seed: int,
        long_seconds: float,
    ) -> None:
        self._client = client
        self._monque = client.monque
        self._recorder = recorder
        self._name = name
        self._random = random.Random(seed)
        self._long_seconds = long_seconds
        self._numbers = itertools.count(1)
        self._recent: list[str] = []
        self._actions: dict[Callable[[], Awaitable[None]], int] = {
            self._enqueue: 30,
            self._enqueue_many: 3,
            self._enqueue_keyed: 12,
            self._enqueue_many_keyed: 3,
            self._enqueue_in_transaction: 4,
            self._cancel: 3,
            self._delete: 2,
            self._retry: 3,
            self._move: 2,
            self._recur: 2,
        }

    async def call(self) -> None:
        """Make one random call."""
        actions, weights = zip(*self._actions.items(), strict=True)
        (action,) = self._random.choices(actions, weights)
        await action()

    async def _enqueue(self) -> None:
        op = self._op()
        name, data, options = self._random_job(op)
        await self._call(
            op,
            "enqueue",
            lambda: self._monque.enqueue(name, data, **options),
            name=name,
            delay=options.get("delay", 0),
            run_at=options["run_at"].timestamp() if "run_at" in options else None,
        )

    async def _enqueue_many(self) -> None:
        op = self._op()
        batch = [{"op": op, "i": i, "seconds": 0.005} for i in range(self._random.randint(2, 40))]
        await self._call(
            op, "enqueue_many", lambda: self._monque.enqueue_many("quick", batch), name="quick"
        )

    async def _enqueue_keyed(self) -> None:
        op = self._op()
        data = {"op": op, "seconds": self._random.uniform(0, 0.3)}
        key = f"key-{self._random.randrange(_KEYS)}"
        await self._call(
            op,
            "enqueue",
            lambda: self._monque.enqueue("keyed", data, unique_key=key),
            name="keyed",
        )

    async def _enqueue_many_keyed(self) -> None:
        op = self._op()
        batch = [
            {"op": op, "i": i, "seconds": 0.05, "key": f"key-{self._random.randrange(_KEYS)}"}
            for i in range(8)
        ]

        await self._call(
            op,
            "enqueue_many",
            lambda: self._monque.enqueue_many(
                "keyed-many", batch, unique_key=lambda data: str(data["key"])
            ),
            name="keyed-many",
        )

    async def _enqueue_in_transaction(self) -> None:
        op = self._op()
        data = {"op": op, "seconds": 0.01}
        await self._call(
            op,
            "enqueue_in_transaction",
            lambda: self._client.enqueue_in_transaction("quick", data),
            name="quick",
        )

    async def _cancel(self) -> None:
        await self._manage("cancel", self._monque.cancel_job)

    async def _delete(self) -> None:
        await self._manage("delete", self._monque.delete_job)

    async def _retry(self) -> None:
        await self._manage("retry", self._monque.retry_job)

    async def _move(self) -> None:
        later = self._random.uniform(0, 1)

        async def move(job: str) -> Any:
            # The clock of this process may be wrong on purpose: the job's own time is right.
            found = await self._monque.get_job(job)
            at = datetime.now(UTC) if found is None else found.next_run_at
            return await self._monque.reschedule_job(job, at + timedelta(seconds=later))

        await self._manage("move", move)

    async def _recur(self) -> None:
        """Declare the schedule again, as every application start does, and make it due."""
        op = self._op()
        data = {"seconds": 0.05}
        schedule = await self._call(
            op,
            "schedule",
            lambda: self._monque.schedule("0 0 1 1 *", "cron", data, unique_key="yearly"),
            name="cron",
        )
        if schedule:
            job = str(schedule.id)
            created = schedule.created_at
            await self._manage("move", lambda _: self._monque.reschedule_job(job, created), job)

    async def _manage(
        self, action: str, manage: Callable[[str], Awaitable[Any]], job: str | None = None
    ) -> None:
        if job is None:
            if not self._recent:
                return
            job = self._random.choice(self._recent)
        chosen = job
        await self._call(self._op(), action, lambda: manage(chosen), job=chosen)

    async def _call(
        self, op: str, action: str, call: Callable[[], Awaitable[Any]], **details: object
    ) -> Any:
        self._recorder.note("invoked", op=op, action=action, **details)
        try:
            answer = await call()
        except JobStateError as error:
            self._recorder.note("rejected", op=op, text=str(error))
            return None
        except (MonqueError, PyMongoError, OSError) as error:
            kind = type(error).__name__
            if action == "enqueue_in_transaction" and isinstance(error, PyMongoError):
                # In a transaction, the driver's own error is raised, because it says what to retry.
                kind = "MonqueConnectionError"
            self._recorder.note("indeterminate", op=op, kind=kind, text=str(error)[:300])
            return None
        jobs = answer if isinstance(answer, list) else [answer]
        ids = [str(job.id) for job in jobs if hasattr(job, "id")]
        shared = any(getattr(job, "deduplicated", False) for job in jobs)
        self._recorder.note("succeeded", op=op, jobs=ids, deduplicated=shared)
        if action == "enqueue":
            self._recent = [*self._recent[-_REMEMBERED:], *ids]
        return answer

    def _op(self) -> str:
        return f"{self._name}/{next(self._numbers)}"

    def _random_job(self, op: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
        pick = self._random
        error = pick.choice(list(HANDLER_ERRORS))
        data: dict[str, Any] = {"op": op, "seconds": pick.uniform(0, 0.03), "error": error}
        options: dict[str, Any] = {}
        if pick.random() < 0.2:
            options["delay"] = pick.uniform(0, 2)
        elif pick.random() < 0.1:
            # Use the true time: the clock of this process is wrong on purpose.
            at = true_time() / SECOND + pick.uniform(-1, 2)
            options["run_at"] = datetime.fromtimestamp(at, UTC)
        if pick.random() < 0.2:
            options["priority"] = pick.randint(1, 3)
        name = pick.choices(
            ["quick", "thread", "long", "flaky", "doomed", "timed"], [12, 6, 4, 5, 1, 1]
        )[0]
        if name == "long":
            data["seconds"] = self._long_seconds * pick.uniform(0.1, 1)
        elif name == "flaky" or (name == "thread" and pick.random() < 0.2):
            data["failures"] = pick.randint(1, 2)
            options["max_retries"] = 8
        elif name == "doomed":
            data["failures"] = 99
            options["max_retries"] = 2
        elif name == "timed":
            data["seconds"] = 60
            options |= {"timeout": 0.2, "max_retries": 2}
        return name, data, options


async def produce(settings: dict[str, Any], recorder: Recorder) -> None:
    """Make calls until SIGTERM."""
    stop_requested = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop_requested.set)
    watching = asyncio.create_task(record_resource_usage(recorder))
    async with open_client(settings["handle"], settings["uri"], settings["database"]) as client:
        record_events(client.emitter, recorder)
        producers = [
            Producer(
                client,
                recorder,
                f"{settings['name']}.{number}",
                settings["seed"] + number,
                settings["long_seconds"],
            )
            for number in range(settings["tasks"])
        ]
        gap = settings["tasks"] / settings["rate"]

        async def keep_calling(producer: Producer) -> None:
            while not stop_requested.is_set():
                await producer.call()
                await asyncio.sleep(gap)

        async with asyncio.TaskGroup() as group:
            for producer in producers:
                group.create_task(keep_calling(producer))
    watching.cancel()


def main(settings: dict[str, Any]) -> None:
    """Produce according to the settings."""
    recorder = Recorder(Path(settings["record"]))
    recorder.note("producing", pid=os.getpid())
    for name in ("asyncio", "monque"):
        logging.getLogger(name).addHandler(ErrorLogRecorder(recorder))
    turn_forward(settings["clock_ahead"])
    exit_when_stdin_closes()
    record_starvation(recorder, settings["heartbeat"] / 10)
    if settings["variant"]:
        BROKEN_VARIANTS[settings["variant"]]()
    asyncio.run(produce(settings, recorder))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
