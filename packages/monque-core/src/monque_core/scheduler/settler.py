"""Writing outcomes in groups: while one write is on its way, the next outcomes gather."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from monque_core.errors import MonqueConnectionError, OwnershipLostError
from monque_core.jobs.job import JobStatus
from monque_core.jobs.outcome import (
    Advanced,
    Completed,
    Released,
    Retrying,
    RetryPolicy,
    after_failure,
    after_success,
    failure_reason,
    settled,
)
from monque_core.scheduler.loop import Loop
from monque_core.store.ledger import Rescheduled, Settlement, Verdict

if TYPE_CHECKING:
    from datetime import datetime

    from monque_core.clock import Clock
    from monque_core.jobs.job import AnyJob
    from monque_core.scheduler.announcer import Announcer
    from monque_core.scheduler.runner import Ending
    from monque_core.scheduler.runs import Runs
    from monque_core.scheduler.wakeups import Wakeups
    from monque_core.store.ledger import Ledger

_LARGEST_GROUP = 1000
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 5.0


class Settler(Loop):
    """The group commit of outcomes."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        policy: RetryPolicy,
        runs: Runs,
        wakeups: Wakeups,
        announcer: Announcer,
    ) -> None:
        super().__init__(announcer.errored)
        self._ledger = ledger
        self._clock = clock
        self._policy = policy
        self._runs = runs
        self._wakeups = wakeups
        self._announcer = announcer
        self._waiting: list[Ending] = []
        self._signal = asyncio.Event()

    def put(self, ending: Ending) -> None:
        """Hand over an ending to be written; it is kept until it is, or ownership is lost."""
        ending.run.stage = "settling"
        self._waiting.append(ending)
        self._signal.set()

    async def _run(self) -> None:
        pause = _FIRST_PAUSE
        one_by_one = 0
        while True:
            # What is settled is not held on to while there is nothing to do.
            group: list[Ending] = []
            await self._signal.wait()
            self._signal.clear()
            while self._waiting:
                group = self._waiting[: 1 if one_by_one else _LARGEST_GROUP]
                one_by_one = max(0, one_by_one - 1)
                try:
                    await self._settle(group)
                    pause = _FIRST_PAUSE
                except Exception as error:  # noqa: BLE001  # an outcome is kept until it is written
                    self._announcer.errored(error)
                    if not isinstance(error, MonqueConnectionError):
                        one_by_one = max(one_by_one, self._single_out(group))
                    await asyncio.sleep(pause)
                    pause = min(_LONGEST_PAUSE, pause * 2)

    def _single_out(self, group: list[Ending]) -> int:
        """Keep an outcome the server refuses from holding up the others."""
        if len(group) > 1:
            return len(group)
        self._waiting.append(self._waiting.pop(0))
        return 0

    async def _settle(self, group: list[Ending]) -> None:
        now = self._clock.now()
        settlements = [Settlement(ending.run.job, ending.outcome) for ending in group]
        verdicts = await self._ledger.settle(settlements, now)
        # Only now are they no longer waiting: a write that failed leaves them where they are.
        del self._waiting[: len(group)]
        for ending, verdict in zip(group, verdicts, strict=True):
            self._close(ending, verdict, now)

    def _close(self, ending: Ending, verdict: Verdict, now: datetime) -> None:
        if isinstance(verdict, Rescheduled):
            self._reckon_again(ending, verdict, now)
            return
        self._runs.discard(ending.run)
        if verdict == "lost":
            self._announcer.errored(ownership_lost(ending.run.job), ending.run.job)
            return
        self._announce(ending, now)

    def _reckon_again(self, ending: Ending, schedule: Rescheduled, now: datetime) -> None:
        """Decide anew by the schedule as it is stored now."""
        run = ending.run
        run.job = replace(
            run.job,
            repeat_interval=schedule.repeat_interval,
            timezone=schedule.timezone,
            data=schedule.data,
        )
        if ending.error is None:
            ending.outcome = after_success(run.job, now)
        elif not isinstance(ending.outcome, Released):
            reason = failure_reason(ending.error)
            ending.outcome = after_failure(run.job, reason, now, self._policy)
        self.put(ending)

    def _announce(self, ending: Ending, now: datetime) -> None:
        job, outcome = ending.run.job, ending.outcome
        match outcome:
            case Completed():
                self._announcer.completed(lambda: settled(job, outcome, now), ending.duration)
            case Advanced(at) if ending.error is None:
                self._wakeups.hint_at(job.name, at)
                self._announcer.completed(lambda: settled(job, outcome, now), ending.duration)
            case Released():
                self._wakeups.hint(job.name, 1)
            case _:
                stored = settled(job, outcome, now)
                if stored.status == JobStatus.PENDING:
                    self._wakeups.hint_at(job.name, stored.next_run_at)
                error = ending.error or RuntimeError(stored.fail_reason)
                will_retry = isinstance(outcome, Retrying)
                self._announcer.failed(stored, error, will_retry=will_retry)


def ownership_lost(job: AnyJob) -> OwnershipLostError:
    """Say that a claim was taken over while its handler ran."""
    return OwnershipLostError(
        f"this run of job {job.name} {job.id} lost its claim: the job was recovered by another "
        "instance, or deleted; the outcome was not written"
    )
