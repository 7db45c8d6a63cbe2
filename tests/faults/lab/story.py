"""Histories told by hand, to see whether the checker understands them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeAlias

from tests.faults.lab.history import History, Note, Terms
from tests.faults.lab.lives import Life, Step
from tests.faults.lab.times import SECOND

_START = 1_700_000_000 * SECOND
_TICK = SECOND // 100
_HEARTBEAT_MS = 1000


class Story:
    """What happened, one thing after the other, a hundredth of a second apart."""

    def __init__(self) -> None:
        self._now = _START
        self._notes: list[Note] = []
        self._lives: dict[str, Life] = {}
        self._order = 0
        self.retention: dict[str, float] = {}

    def history(self) -> History:
        """Give it as the checker gets it."""
        self.note("lab", "end")
        return History(self._notes, self._lives, Terms(retention=self.retention))

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self._now += int(seconds * SECOND)

    def note(self, process: str, what: str, /, **details: Any) -> None:
        """Let a process write something down."""
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
        """Let a producer ask for a job and be told of it."""
        op = f"producer/{job}"
        self.note("producer", "asks", op=op, action="enqueue", name=name)
        self.store(job, name=name, data={"op": op}, **fields)
        self.note("producer", "told", op=op, jobs=[job], deduplicated=False)

    def store(self, job: str, **fields: Any) -> None:
        """Insert a document."""
        document = {"name": "work", "status": "pending", "nextRunAt": self.time(), **fields}
        self._step(job, document | {"updatedAt": self.time()})

    def change(self, job: str, **fields: Any) -> None:
        """Update a document; a None removes the field."""
        before = self._lives[job].last
        assert before is not None
        after = {**before, "updatedAt": self.time(), **fields}
        self._step(job, {name: value for name, value in after.items() if value is not None})

    def delete(self, job: str) -> None:
        """Delete a document."""
        self._step(job, None)

    def claim(self, job: str, token: str, process: str) -> None:
        """Let a worker claim a job."""
        claims = (self._lives[job].last or {}).get("claims", 0)
        self.change(
            job,
            status="processing",
            claimToken=token,
            claimedBy=f"instance of {process}",
            lastHeartbeat=self.time(),
            heartbeatInterval=_HEARTBEAT_MS,
            claims=claims + 1,
        )

    def revive(self, job: str) -> None:
        """Let recovery give a job back to the queue."""
        self.change(job, status="pending", claimToken=None, claimedBy=None)

    def begin(self, job: str, token: str, process: str, name: str = "work") -> None:
        """Let a handler begin."""
        self.note(process, "run", job=job, token=token, name=name)

    def end(self, job: str, token: str, process: str, how: str = "ok") -> None:
        """Let a handler end."""
        self.note(process, "ran", job=job, token=token, how=how)

    def fail(self, job: str, token: str, process: str, *, failures: int, after: float) -> None:
        """Let a failure be written and announced, and wait until the job is due again."""
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
        """Let a job be failed for good, and that be announced."""
        self.change(job, status="failed", failCount=failures, failReason="x", claimedBy=None)
        self.note(process, "failed", job=job, token=token, status="failed")

    def adopt(self, job: str, token: str, process: str) -> None:
        """Let recovery take over a claim in order to give its job up."""
        self.change(
            job,
            claimToken=token,
            claimedBy=f"instance of {process}",
            lastHeartbeat=self.time(),
        )

    def release(self, job: str) -> None:
        """Let a claim be handed back as if it had never been made."""
        claims = (self._lives[job].last or {})["claims"]
        self.change(job, status="pending", claims=claims - 1, claimedBy=None)

    def complete(self, job: str, token: str, process: str) -> None:
        """Let an outcome be written and announced."""
        self.change(job, status="completed", claimedBy=None)
        self.note(process, "completed", job=job, token=token, status="completed")

    def run(self, job: str, token: str, process: str) -> None:
        """Let a job go all the way from its claim to its outcome."""
        self.claim(job, token, process)
        self.begin(job, token, process)
        self.end(job, token, process)
        self.complete(job, token, process)

    def ask(self, op: str, action: str, job: str) -> None:
        """Let a producer ask for something to be done to a job, or for the job itself."""
        self.note("producer", "asks", op=op, action=action, job=job)

    def kill(self, process: str) -> None:
        """Let a process die."""
        self.note("lab", "fault", kind="kill", target=process, for_ever=True)
        self.note("lab", "gone", process=process, code=-9, allowed=[0, -9])

    def tell_to_stop(self, process: str) -> None:
        """Tell a process to stop."""
        self.note("lab", "fault", kind="stop", target=process)

    def end_cleanly(self, process: str) -> None:
        """Let a process end as it was told."""
        self.note(process, "down", tasks=[], threads=["monque-job-1"])
        self.note("lab", "gone", process=process, code=0, allowed=[0])

    def disturb(self, target: str, kind: str, *, seconds: float) -> None:
        """Let a fault last for so long, until now."""
        began = self._now
        self.wait(seconds)
        self.note("lab", "fault", kind=kind, target=target, began=began)

    def time(self, seconds: float = 0) -> datetime:
        """Give the time of the story, or one so many seconds later."""
        return datetime.fromtimestamp(self._now / SECOND + seconds, UTC)

    def _step(self, job: str, after: dict[str, Any] | None) -> None:
        self._now += _TICK
        self._order += 1
        life = self._lives.setdefault(job, Life(job))
        before = life.steps[-1].after if life.steps else None
        life.steps.append(Step(self._now, self._order, before, after))


Telling: TypeAlias = Callable[[Story], None]
