"""A place for experiments: a database, processes to mistreat, an adversary, and the reckoning."""

from __future__ import annotations

import asyncio
import itertools
import random
import shutil
import tempfile
import uuid
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pymongo import AsyncMongoClient

from monque_core import Monque
from tests.faults.lab.adversary import Adversary
from tests.faults.lab.checker import check, summary
from tests.faults.lab.fleet import Fleet
from tests.faults.lab.history import History, Terms, read_notes
from tests.faults.lab.lives import read_lives
from tests.faults.lab.recorder import Recorder
from tests.faults.lab.times import SECOND
from tests.faults.lab.workload import INSTANCE_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from bson.timestamp import Timestamp

    from monque_core import LocalMongo
    from tests.faults.lab.checker import Rule, Violation

HEARTBEAT = 1.0
OPTIONS: dict[str, Any] = {
    "heartbeat_interval": HEARTBEAT,
    "poll_interval": 0.2,
    "safety_poll_interval": 2,
    "max_retries": 10,
    "base_retry_interval": 0.1,
    "max_backoff_delay": 1,
    "shutdown_timeout": 3,
    "instance_concurrency": INSTANCE_LIMIT,
}
_LOOK_GAP = 0.2
_LONGEST_WAIT = 240.0
"""Seconds for what needs a few of them, on a machine with too much to do."""


@dataclass(frozen=True, slots=True)
class Report:
    """What came of an experiment."""

    seed: int
    violations: list[Violation]
    summary: dict[str, Any]
    history: History
    folder: Path
    """Where everything is that was written down, if a promise was broken."""

    def forget(self) -> None:
        """Remove what was written down."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {self.summary}"]
        lines += [f"  {violation}" for violation in self.violations[:30]]
        if self.violations:
            lines.append(f"  {len(self.violations)} violation(s); see {self.folder}")
        return "\n".join(lines)


class Lab:
    """One experiment, in a database of its own."""

    fleet: Fleet
    adversary: Adversary
    monque: Monque
    """What the lab itself stores jobs with."""

    def __init__(
        self,
        mongo: LocalMongo,
        seed: int,
        *,
        is_disturbed: bool = True,
        outage: float = 3,
        sabotage: str | None = None,
        **options: Any,
    ) -> None:
        self.mongo = mongo
        self.seed = seed
        self.random = random.Random(seed)
        self.options = {**OPTIONS, **options}
        self._is_disturbed = is_disturbed
        self._outage = outage
        self._sabotage = sabotage
        self._numbers = itertools.count(1)
        self._stack = AsyncExitStack()
        self._folder = Path(tempfile.mkdtemp(prefix="monque-faults-"))
        self._recorder = Recorder(self._folder / "lab.jsonl")
        self._client = AsyncMongoClient[dict[str, Any]](
            mongo.uri, tz_aware=True, serverSelectionTimeoutMS=2000
        )
        self.db = self._client[f"faults_{uuid.uuid4().hex[:12]}"]

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._client)
        self._began = await self._now()
        self.fleet = Fleet(
            self._folder,
            self._recorder,
            self.random,
            addresses=[node.address for node in self.mongo.nodes],
            uri=self.mongo.uri,
            database=self.db.name,
            options=self.options,
            is_disturbed=self._is_disturbed,
            sabotage=self._sabotage,
        )
        # Whether there are indexes is up to the processes.
        self.monque = Monque(self.db, skip_index_creation=True, recover_stale_jobs=False)
        self.adversary = Adversary(
            self.fleet,
            self.mongo,
            self.monque,
            self.db,
            self.random,
            self._recorder,
            heartbeat=HEARTBEAT,
            outage=self._outage,
        )
        await self._stack.enter_async_context(self.fleet)
        await self._stack.enter_async_context(self.adversary)
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(error_type, error, traceback)
        self._recorder.close()

    async def enqueue_many(
        self, name: str, data: Iterable[dict[str, Any]], priority: int = 0
    ) -> list[str]:
        """Store jobs, and write down that they were asked for and acknowledged; give their ids."""
        op = f"lab/{next(self._numbers)}"
        self._recorder.note("asks", op=op, action="enqueue_many", name=name)
        jobs = await self.monque.enqueue_many(
            name, [{**one, "op": op, "i": i} for i, one in enumerate(data)], priority=priority
        )
        ids = [str(job.id) for job in jobs]
        self._recorder.note("told", op=op, jobs=ids)
        return ids

    async def conclude(self, *demands: Rule, seconds: float = _LONGEST_WAIT) -> Report:
        """Let everything come to its end, stop all processes, and hold the history to the rules.

        An experiment may demand more than what holds for all of them.
        """
        await self.fleet.stop_producers()
        if not await self.until_quiet(seconds):
            self._recorder.note("restless", seconds=seconds)
        await self.fleet.stop_workers()
        self._recorder.note("end")
        lives = await read_lives(self.db, self._began)
        history = History(read_notes(self._folder), lives, self._terms())
        violations = check(history, *demands)
        await self._client.drop_database(self.db.name)
        report = Report(self.seed, violations, summary(history), history, self._folder)
        if not violations:
            report.forget()
        return report

    async def until_deleted(self, count: int) -> None:
        """Wait until so many jobs that were completed are there no more."""
        async with asyncio.timeout(_LONGEST_WAIT):
            while (
                self.fleet.noted("completed")
                - await self.db.monque_jobs.count_documents({"status": "completed"})
                < count
            ):
                await asyncio.sleep(_LOOK_GAP)

    async def until_quiet(self, seconds: float) -> bool:
        """Wait until every job has come to its end, the next occurrences of schedules excepted.

        What is no job has come to its end when it is set aside.
        """
        unfinished = {
            "$or": [
                {"garbage": None, "status": "processing"},
                {"garbage": None, "status": "pending", "repeatInterval": None},
                {"unreadable": True, "status": {"$ne": "failed"}},
            ]
        }
        deadline = asyncio.get_running_loop().time() + seconds
        while await self.db.monque_jobs.count_documents(unfinished, limit=1):
            if asyncio.get_running_loop().time() > deadline:
                return False
            await asyncio.sleep(_LOOK_GAP)
        return True

    def _terms(self) -> Terms:
        """Give the options of the workers as the checker needs them."""
        options = self.options
        return Terms(
            heartbeat=int(options["heartbeat_interval"] * SECOND),
            max_retries=options["max_retries"],
            base_retry_interval=int(options["base_retry_interval"] * SECOND),
            max_backoff_delay=int(options["max_backoff_delay"] * SECOND),
            retention=options.get("job_retention") or {},
        )

    async def _now(self) -> Timestamp:
        """Give the time of the replica set from which its history is to be read."""
        reply = await self._client.admin.command("ping")
        time: Timestamp = reply["operationTime"]
        return time
