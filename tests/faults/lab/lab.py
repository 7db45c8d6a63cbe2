"""The fault lab: a database, worker and producer processes, a fault injector, and a checker."""

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
from tests.faults.lab.checker import check, summary
from tests.faults.lab.document_history import read_document_histories
from tests.faults.lab.fault_injector import FaultInjector
from tests.faults.lab.history import History, WorkerOptions, read_notes
from tests.faults.lab.process_supervisor import ProcessSupervisor
from tests.faults.lab.recorder import Recorder
from tests.faults.lab.times import SECOND
from tests.faults.lab.workload import INSTANCE_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
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
"""Seconds for steps that normally take a few, on an overloaded machine."""


@dataclass(frozen=True, slots=True)
class Report:
    """The result of an experiment."""

    seed: int
    violations: list[Violation]
    summary: dict[str, Any]
    history: History
    folder: Path
    """The directory with all records; it is kept only if there are violations."""

    def delete_records(self) -> None:
        """Delete the records."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def __str__(self) -> str:
        lines = [f"  seed: {self.seed}"]
        for name, value in self.summary.items():
            counts = value.items() if isinstance(value, dict) else [("", value)]
            text = ", ".join(f"{key} {count:,}".strip() for key, count in counts)
            lines.append(f"  {name}: {text or 'none'}")
        lines += [f"  VIOLATION {violation}" for violation in self.violations[:30]]
        if self.violations:
            lines.append(f"  {len(self.violations)} violation(s); records are in {self.folder}")
        return "\n".join(lines)


class Lab:
    """One experiment, in a database of its own."""

    processes: ProcessSupervisor
    fault_injector: FaultInjector
    monque: Monque
    """The instance with which the lab itself stores jobs."""

    def __init__(
        self,
        mongo: LocalMongo,
        seed: int,
        *,
        has_network_faults: bool = True,
        outage: float = 3,
        variant: str | None = None,
        **options: Any,
    ) -> None:
        self.mongo = mongo
        self.seed = seed
        self.random = random.Random(seed)
        self.options = {**OPTIONS, **options}
        self._has_network_faults = has_network_faults
        self._outage = outage
        self._variant = variant
        self._numbers = itertools.count(1)
        self._stack = AsyncExitStack()
        self._folder = Path(tempfile.mkdtemp(prefix="monque-faults-"))
        self.recorder = Recorder(self._folder / "lab.jsonl")
        self._client = AsyncMongoClient[dict[str, Any]](
            mongo.uri, tz_aware=True, serverSelectionTimeoutMS=2000
        )
        self.db = self._client[f"faults_{uuid.uuid4().hex[:12]}"]

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._client)
        self._began = await self._now()
        self.processes = ProcessSupervisor(
            self._folder,
            self.recorder,
            self.random,
            addresses=[node.address for node in self.mongo.nodes],
            uri=self.mongo.uri,
            database=self.db.name,
            options=self.options,
            has_network_faults=self._has_network_faults,
            variant=self._variant,
        )
        # Creating indexes is up to the processes.
        self.monque = Monque(self.db, skip_index_creation=True, recover_stale_jobs=False)
        self.fault_injector = FaultInjector(
            self.processes,
            self.mongo,
            self.monque,
            self.db,
            self.random,
            self.recorder,
            heartbeat=HEARTBEAT,
            outage=self._outage,
        )
        await self._stack.enter_async_context(self.processes)
        await self._stack.enter_async_context(self.fault_injector)
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.__aexit__(error_type, error, traceback)
        self.recorder.close()

    async def enqueue_many(
        self,
        name: str,
        data: Iterable[dict[str, Any]],
        priority: int = 0,
        run_at: datetime | None = None,
    ) -> list[str]:
        """Store jobs and record the call like a producer; return their ids."""
        op = f"lab/{next(self._numbers)}"
        at = None if run_at is None else run_at.timestamp()
        self.recorder.note("invoked", op=op, action="enqueue_many", name=name, run_at=at)
        jobs = await self.monque.enqueue_many(
            name,
            [{**one, "op": op, "i": i} for i, one in enumerate(data)],
            priority=priority,
            run_at=run_at,
        )
        ids = [str(job.id) for job in jobs]
        self.recorder.note("succeeded", op=op, jobs=ids)
        return ids

    async def finish(self, *extra_rules: Rule, seconds: float = _LONGEST_WAIT) -> Report:
        """Wait for all jobs, stop all processes, and check the history.

        An experiment may add rules to those that hold for all of them.
        """
        await self.processes.stop_producers()
        if not await self.wait_until_idle(seconds):
            self.recorder.note("not idle", seconds=seconds)
        await self.processes.stop_workers()
        self.recorder.note("end")
        documents = await read_document_histories(self.db, self._began)
        history = History(read_notes(self._folder), documents, self._worker_options())
        violations = check(history, *extra_rules)
        await self._client.drop_database(self.db.name)
        report = Report(self.seed, violations, summary(history), history, self._folder)
        if not violations:
            report.delete_records()
        return report

    async def wait_until_deleted(self, count: int) -> None:
        """Wait until this many completed jobs were deleted."""
        async with asyncio.timeout(_LONGEST_WAIT):
            while (
                self.processes.count_recorded("completed")
                - await self.db.monque_jobs.count_documents({"status": "completed"})
                < count
            ):
                await asyncio.sleep(_LOOK_GAP)

    async def wait_until_idle(self, seconds: float) -> bool:
        """Wait until every job is finished, except future occurrences of schedules.

        Unreadable documents are finished when they are quarantined.
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

    def _worker_options(self) -> WorkerOptions:
        """Return the options of the workers as the checker needs them."""
        options = self.options
        return WorkerOptions(
            heartbeat=int(options["heartbeat_interval"] * SECOND),
            max_retries=options["max_retries"],
            base_retry_interval=int(options["base_retry_interval"] * SECOND),
            max_backoff_delay=int(options["max_backoff_delay"] * SECOND),
            retention=options.get("job_retention") or {},
        )

    async def _now(self) -> Timestamp:
        """Return the cluster time at which the history starts."""
        reply = await self._client.admin.command("ping")
        time: Timestamp = reply["operationTime"]
        return time
