"""A producer process: `python -m tests.faults.lab.producer <settings as JSON>`.

It asks for jobs of every kind and manages some of them, and writes down what it asked for before it
does, and what it was told after.
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
from tests.faults.lab.doors import opened
from tests.faults.lab.recorder import Recorder, true_time
from tests.faults.lab.sabotage import SABOTAGE
from tests.faults.lab.times import SECOND
from tests.faults.lab.watches import watch_for_starvation, watch_vitals
from tests.faults.lab.worker import Complaints, end_with_standard_input, listen
from tests.faults.lab.workload import NASTY
from tests.support.wall_clock import turn_forward

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.faults.lab.doors import Door

_KEYS = 6
_REMEMBERED = 50


class Producer:
    """Asks for one thing after the other, at random."""

    def __init__(
        self,
        door: Door,
        recorder: Recorder,
        name: str,
        seed: int,
        long_seconds: float,
    ) -> None:
        self._door = door
        self._monque = door.monque
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

    async def act(self) -> None:
        """Do one thing."""
        actions, weights = zip(*self._actions.items(), strict=True)
        (action,) = self._random.choices(actions, weights)
        await action()

    async def _enqueue(self) -> None:
        op = self._op()
        name, data, options = self._something(op)
        await self._ask(
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
        await self._ask(
            op, "enqueue_many", lambda: self._monque.enqueue_many("quick", batch), name="quick"
        )

    async def _enqueue_keyed(self) -> None:
        op = self._op()
        data = {"op": op, "seconds": self._random.uniform(0, 0.3)}
        key = f"key-{self._random.randrange(_KEYS)}"
        await self._ask(
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

        await self._ask(
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
        await self._ask(
            op,
            "enqueue_in_transaction",
            lambda: self._door.enqueue_in_transaction("quick", data),
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
        """Declare the schedule again, as every start does, and make it due."""
        op = self._op()
        data = {"seconds": 0.05}
        told = await self._ask(
            op,
            "schedule",
            lambda: self._monque.schedule("0 0 1 1 *", "cron", data, unique_key="yearly"),
            name="cron",
        )
        if told:
            job = str(told.id)
            created = told.created_at
            await self._manage("move", lambda _: self._monque.reschedule_job(job, created), job)

    async def _manage(
        self, action: str, manage: Callable[[str], Awaitable[Any]], job: str | None = None
    ) -> None:
        if job is None:
            if not self._recent:
                return
            job = self._random.choice(self._recent)
        chosen = job
        await self._ask(self._op(), action, lambda: manage(chosen), job=chosen)

    async def _ask(
        self, op: str, action: str, ask: Callable[[], Awaitable[Any]], **details: object
    ) -> Any:
        self._recorder.note("asks", op=op, action=action, **details)
        try:
            answer = await ask()
        except JobStateError as error:
            self._recorder.note("refused", op=op, text=str(error))
            return None
        except (MonqueError, PyMongoError, OSError) as error:
            kind = type(error).__name__
            if action == "enqueue_in_transaction" and isinstance(error, PyMongoError):
                # A transaction gets the driver's own error, which says what to repeat.
                kind = "MonqueConnectionError"
            self._recorder.note("unsure", op=op, kind=kind, text=str(error)[:300])
            return None
        jobs = answer if isinstance(answer, list) else [answer]
        ids = [str(job.id) for job in jobs if hasattr(job, "id")]
        shared = any(getattr(job, "deduplicated", False) for job in jobs)
        self._recorder.note("told", op=op, jobs=ids, deduplicated=shared)
        if action == "enqueue":
            self._recent = [*self._recent[-_REMEMBERED:], *ids]
        return answer

    def _op(self) -> str:
        return f"{self._name}/{next(self._numbers)}"

    def _something(self, op: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
        pick = self._random
        nasty = pick.choice(list(NASTY))
        data: dict[str, Any] = {"op": op, "seconds": pick.uniform(0, 0.03), "nasty": nasty}
        options: dict[str, Any] = {}
        if pick.random() < 0.2:
            options["delay"] = pick.uniform(0, 2)
        elif pick.random() < 0.1:
            # By the true time: the clock of this process is wrong on purpose.
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
    """Ask until this process is told to stop."""
    told_to_stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, told_to_stop.set)
    watching = asyncio.create_task(watch_vitals(recorder))
    async with opened(settings["handle"], settings["uri"], settings["database"]) as door:
        listen(door.listening, recorder)
        producers = [
            Producer(
                door,
                recorder,
                f"{settings['name']}.{number}",
                settings["seed"] + number,
                settings["long_seconds"],
            )
            for number in range(settings["tasks"])
        ]
        gap = settings["tasks"] / settings["rate"]

        async def keep_asking(producer: Producer) -> None:
            while not told_to_stop.is_set():
                await producer.act()
                await asyncio.sleep(gap)

        async with asyncio.TaskGroup() as group:
            for producer in producers:
                group.create_task(keep_asking(producer))
    watching.cancel()


def main(settings: dict[str, Any]) -> None:
    """Produce as the settings say."""
    recorder = Recorder(Path(settings["record"]))
    recorder.note("produces", pid=os.getpid())
    for name in ("asyncio", "monque"):
        logging.getLogger(name).addHandler(Complaints(recorder))
    turn_forward(settings["clock_ahead"])
    end_with_standard_input()
    watch_for_starvation(recorder, settings["heartbeat"] / 10)
    if settings["sabotage"]:
        SABOTAGE[settings["sabotage"]]()
    asyncio.run(produce(settings, recorder))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
