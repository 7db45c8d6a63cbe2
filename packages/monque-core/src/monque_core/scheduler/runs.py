"""The claims this instance holds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, Literal

from monque_core.scheduler.source import W

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from monque_core.scheduler.workers import Work


class Run(Generic[W]):
    """One claim, from the moment it is made until its outcome is written."""

    __slots__ = (
        "claimed_at",
        "ended_by",
        "given",
        "is_abandoned",
        "is_stopping",
        "stage",
        "started_at",
        "task",
        "work",
    )

    def __init__(self, work: W, claimed_at: float) -> None:
        self.work = work
        self.given: Work | None = None
        """What its handler got, once it has started."""
        self.claimed_at = claimed_at
        self.started_at = 0.0
        self.stage: Literal["waiting", "running", "settling"] = "waiting"
        self.task: asyncio.Task[None] | None = None
        self.ended_by: Literal["stop", "loss"] | None = None
        self.is_stopping = False
        self.is_abandoned = False
        """Whether `stop()` gave up on a thread: its work is left to recovery."""

    def end(self, cause: Literal["stop", "loss"]) -> None:
        """Cancel the handler; the cause decides whether its work is released."""
        if cause == "stop":
            self.is_stopping = True
        # A lost claim stays lost: it cannot be released.
        self.ended_by = self.ended_by or cause
        if self.task is not None:
            # Not before its first step: a task cancelled earlier never runs or reports its end.
            asyncio.get_running_loop().call_soon(self.task.cancel)


class Runs(Generic[W]):
    """All claims held here: waiting for a slot, running, or waiting to be written."""

    def __init__(self) -> None:
        self._held: set[Run[W]] = set()
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    def add(self, runs: Iterable[Run[W]]) -> None:
        """Hold these claims."""
        self._held.update(runs)
        if self._held:
            self._is_empty.clear()

    def discard(self, run: Run[W]) -> None:
        """Stop holding a claim."""
        self._held.discard(run)
        if not self._held:
            self._is_empty.set()

    def __iter__(self) -> Iterator[Run[W]]:
        return iter(list(self._held))

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, run: object) -> bool:
        return run in self._held

    async def wait_until_none(self) -> None:
        """Wait until no claim is held."""
        await self._is_empty.wait()
