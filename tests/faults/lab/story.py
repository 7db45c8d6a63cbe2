"""Histories told by hand, to see whether the checker understands them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.faults.lab.history import SECOND, History, Note
from tests.faults.lab.lives import Life, Step

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
        self.retention: dict[str, float] | None = None

    def history(self) -> History:
        """Give it as the checker gets it."""
        self.note("lab", "end")
        return History(self._notes, self._lives, SECOND, self.retention)

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

    def time(self, seconds: float = 0) -> datetime:
        """Give the time of the story, or one so many seconds later."""
        return datetime.fromtimestamp(self._now / SECOND + seconds, UTC)

    def _step(self, job: str, after: dict[str, Any] | None) -> None:
        self._now += _TICK
        self._order += 1
        life = self._lives.setdefault(job, Life(job))
        before = life.steps[-1].after if life.steps else None
        life.steps.append(Step(self._now, self._order, before, after))
