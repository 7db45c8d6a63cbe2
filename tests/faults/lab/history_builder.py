"""Builds histories by hand, to test the rules of the checker."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeAlias

from tests.faults.lab.document_history import DocumentHistory, Write
from tests.faults.lab.history import History, Note, WorkerOptions
from tests.faults.lab.times import SECOND

_START = 1_700_000_000 * SECOND
_TICK = SECOND // 100
_HEARTBEAT_MS = 1000


class HistoryBuilder:
    """Adds events one after the other, a hundredth of a second apart."""

    def __init__(self) -> None:
        self._now = _START
        self._notes: list[Note] = []
        self._documents: dict[str, DocumentHistory] = {}
        self._order = 0
        self.retention: dict[str, float] = {}

    def build(self) -> History:
        """Return the history for the checker."""
        self.note("lab", "end")
        return History(self._notes, self._documents, WorkerOptions(retention=self.retention))

    def wait(self, seconds: float) -> None:
        """Advance the time."""
        self._now += int(seconds * SECOND)

    def note(self, process: str, what: str, /, **details: Any) -> None:
        """Add a note that a process recorded."""
        self._now += _TICK
        self._notes.append(Note(process, self._now, what, details))

    def up(self, process: str, limit: int = 2, instance_limit: int | None = None) -> None:
        """Start a worker."""
        self.note(
            process,
            "up",
            instance=f"instance of {process}",
            limits={"work": limit, "more": limit},
            instance_limit=instance_limit,
        )

    def enqueue(self, job: str, name: str = "work", **fields: Any) -> None:
        """Add a job that a producer enqueued successfully."""
        op = f"producer/{job}"
        self.note("producer", "invoked", op=op, action="enqueue", name=name)
        self.store(job, name=name, data={"op": op}, **fields)
        self.note("producer", "succeeded", op=op, jobs=[job], deduplicated=False)

    def store(self, job: str, **fields: Any) -> None:
        """Insert a document."""
        document = {"name": "work", "status": "pending", "nextRunAt": self.time(), **fields}
        self._write(job, document | {"updatedAt": self.time()})

    def change(self, job: str, **fields: Any) -> None:
        """Update a document; None removes a field."""
        before = self._documents[job].current
        assert before is not None
        after = {**before, "updatedAt": self.time(), **fields}
        self._write(job, {name: value for name, value in after.items() if value is not None})

    def delete(self, job: str) -> None:
        """Delete a document."""
        self._write(job, None)

    def claim(self, job: str, token: str, process: str) -> None:
        """Claim a job for a worker."""
        claims = (self._documents[job].current or {}).get("claims", 0)
        self.change(
            job,
            status="processing",
            claimToken=token,
            claimedBy=f"instance of {process}",
            lastHeartbeat=self.time(),
            heartbeatInterval=_HEARTBEAT_MS,
            claims=claims + 1,
        )

    def recover(self, job: str) -> None:
        """Make a claimed job pending again, like recovery."""
        self.change(job, status="pending", claimToken=None, claimedBy=None)

    def begin(self, job: str, token: str, process: str, name: str = "work") -> None:
        """Start a handler."""
        self.note(process, "run started", job=job, token=token, name=name)

    def end(self, job: str, token: str, process: str, how: str = "ok") -> None:
        """End a handler."""
        self.note(process, "run ended", job=job, token=token, how=how)

    def fail(self, job: str, token: str, process: str, *, failures: int, after: float) -> None:
        """Write and publish a failure, and wait until the job is due again."""
        self.change(
            job,
            status="pending",
            failCount=failures,
            failReason="x",
            nextRunAt=self.time(after),
            claimedBy=None,
        )
        self.note(process, "failed", job=job, token=token, status="pending")
        self.wait(after)

    def give_up(self, job: str, token: str, process: str, *, failures: int) -> None:
        """Fail a job permanently, and publish it."""
        self.change(job, status="failed", failCount=failures, failReason="x", claimedBy=None)
        self.note(process, "failed", job=job, token=token, status="failed")

    def adopt(self, job: str, token: str, process: str) -> None:
        """Take over a claim in order to give its job up, like recovery."""
        self.change(
            job,
            claimToken=token,
            claimedBy=f"instance of {process}",
            lastHeartbeat=self.time(),
        )

    def release(self, job: str) -> None:
        """Hand a claim back, with the claim count restored."""
        claims = (self._documents[job].current or {})["claims"]
        self.change(job, status="pending", claims=claims - 1, claimedBy=None)

    def complete(self, job: str, token: str, process: str) -> None:
        """Write and publish a completion."""
        self.change(job, status="completed", claimedBy=None)
        self.note(process, "completed", job=job, token=token, status="completed")

    def run(self, job: str, token: str, process: str) -> None:
        """Claim, run and complete a job."""
        self.claim(job, token, process)
        self.begin(job, token, process)
        self.end(job, token, process)
        self.complete(job, token, process)

    def invoke(self, op: str, action: str, job: str) -> None:
        """Add a call of a producer on a job, without its result."""
        self.note("producer", "invoked", op=op, action=action, job=job)

    def kill(self, process: str) -> None:
        """Kill a process."""
        self.note("lab", "fault", kind="kill", target=process, for_ever=True)
        self.note("lab", "exited", process=process, code=-9, allowed=[0, -9])

    def request_stop(self, process: str) -> None:
        """Ask a process to stop."""
        self.note("lab", "fault", kind="stop", target=process)

    def exit_cleanly(self, process: str) -> None:
        """Let a process exit cleanly."""
        self.note(process, "down", tasks=[], threads=["monque-job-1"])
        self.note("lab", "exited", process=process, code=0, allowed=[0])

    def fault(self, target: str, kind: str, *, seconds: float) -> None:
        """Add a fault that lasts this long, until now."""
        began = self._now
        self.wait(seconds)
        self.note("lab", "fault", kind=kind, target=target, began=began)

    def time(self, seconds: float = 0) -> datetime:
        """Return the current time of the history, or the time this many seconds later."""
        return datetime.fromtimestamp(self._now / SECOND + seconds, UTC)

    def _write(self, job: str, after: dict[str, Any] | None) -> None:
        self._now += _TICK
        self._order += 1
        document = self._documents.setdefault(job, DocumentHistory(job))
        before = document.writes[-1].after if document.writes else None
        document.writes.append(Write(self._now, self._order, before, after))


Scenario: TypeAlias = Callable[[HistoryBuilder], None]
