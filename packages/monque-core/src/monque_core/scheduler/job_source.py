"""Jobs as a source of work: what their runs get, and what their ends mean."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from monque_core.errors import OwnershipLostError
from monque_core.jobs.job import AnyJob, JobStatus, twin
from monque_core.jobs.outcome import (
    COMPLETED,
    RELEASED,
    Advanced,
    Completed,
    Released,
    Retrying,
    RetryPolicy,
    abridged,
    after_failure,
    after_success,
    failure_reason,
    settled,
)
from monque_core.scheduler.polling import SteadyPolling
from monque_core.scheduler.probation import is_suspicious
from monque_core.scheduler.source import Ending, Source
from monque_core.store.ledger import Rescheduled, Settlement, Verdict
from monque_core.store.queue import Candidate
from monque_core.store.refusals import is_of_the_document

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from monque_core.options import Options
    from monque_core.scheduler.announcer import Announcer
    from monque_core.scheduler.runs import Run
    from monque_core.scheduler.source import Claim
    from monque_core.scheduler.wakeups import Wakeups
    from monque_core.scheduler.workers import Work, Worker, Workers
    from monque_core.store.ledger import Loss
    from monque_core.store.store import Store
    from monque_core.store.turned_away import TurnedAway

logger = logging.getLogger("monque")


class JobSource(Source[AnyJob, Candidate]):
    """The jobs collection."""

    def __init__(
        self,
        store: Store,
        options: Options,
        workers: Workers,
        wakeups: Wakeups,
        announcer: Announcer,
    ) -> None:
        self.queue = store.queue
        self.workers = workers
        self.polling: SteadyPolling = SteadyPolling(
            options.poll_interval, options.safety_poll_interval
        )
        self.renewal_interval = options.heartbeat_interval
        self._ledger = store.ledger
        self._clock = options.clock
        self._policy = retry_policy(options)
        self._wakeups = wakeups
        self._announcer = announcer

    def is_suspicious(self, candidate: Candidate) -> bool:
        """Tell whether a waiting job may be what killed its processes."""
        limit = candidate.max_retries or self._policy.max_retries
        return is_suspicious(candidate.claims, candidate.failures, limit)

    def is_on_trial(self, work: AnyJob) -> bool:
        """Tell whether a claimed job was suspicious when it was waiting."""
        # As it was before this claim; for most that ends the matter.
        before = work.claims - 1
        return before > work.fail_count and is_suspicious(
            before, work.fail_count, self._policy.limit_for(work)
        )

    def turned_away(self, found: TurnedAway, error: Exception) -> None:  # noqa: ARG002  # the error names it
        """Say that a document is no job."""
        self._announcer.errored(error)

    def begin(self, run: Run[AnyJob]) -> Work:
        """Say that a job starts, and give it to its handler."""
        # What a handler does to its job must not reach the engine's own; only the data is shared.
        job = twin(run.work)
        self._announcer.started(job)
        return job

    def time_limit(self, work: AnyJob, worker: Worker) -> timedelta | None:
        """Tell how long one run may take: the job's own limit, else its worker's."""
        return worker.timeout if work.timeout is None else work.timeout

    def conclude(
        self, run: Run[AnyJob], error: BaseException | None, duration: timedelta
    ) -> Ending[AnyJob]:
        """Decide what the end of a handler means for its job."""
        job = run.work
        if error is None and not job.is_recurring:
            return Ending(run, COMPLETED, None, duration)
        now = self._clock.now()
        if error is None:
            return Ending(run, after_success(job, now), None, duration)
        if run.ended_by == "stop":
            return Ending(run, RELEASED, error, duration)
        outcome = after_failure(job, failure_reason(error), now, self._policy)
        return Ending(run, outcome, error, duration)

    def hand_back(self, run: Run[AnyJob]) -> Ending[AnyJob]:
        """End a claim as if it had never been made."""
        return Ending(run, RELEASED, None, timedelta(0))

    async def settle(self, endings: Sequence[Ending[AnyJob]], now: datetime) -> list[Verdict]:
        """Write outcomes, and say for each what became of it."""
        settlements = [Settlement(ending.run.work, ending.outcome) for ending in endings]
        return await self._ledger.settle(settlements, now)

    def close(self, ending: Ending[AnyJob], verdict: Verdict, now: datetime) -> bool:
        """Tell what was written; False if it must be reckoned again by a changed schedule."""
        if isinstance(verdict, Rescheduled):
            self._reckon_again(ending, verdict, now)
            return False
        if verdict != "written":
            self.lost(ending.run.work, verdict)
        else:
            self._announce(ending, now)
        return True

    def abridge(self, ending: Ending[AnyJob], refusal: Exception) -> bool:
        """Shorten the reason of a failure, or leave it out, for a job that has no room for it."""
        shorter = abridged(ending.outcome) if is_of_the_document(refusal) else None
        if shorter is None:
            return False
        ending.outcome = shorter
        return True

    def refused(self, work: AnyJob, error: Exception) -> None:
        """Say that MongoDB refuses an outcome, which is kept and tried again."""
        self._announcer.errored(error, work)

    async def renew(self, runs: Sequence[Run[AnyJob]], now: datetime) -> Mapping[Claim, Loss]:
        """Keep claims alive, and return those that are no longer ours, and why."""
        return await self._ledger.renew([run.work for run in runs], now)

    def lost(self, work: AnyJob, loss: Loss) -> None:
        """Report that a job was taken over, or deleted, while its handler ran."""
        if loss == "deleted":
            # Somebody wanted that.
            logger.info("job %s %s was deleted while it ran", work.name, work.id)
            return
        error = OwnershipLostError(
            f"this run of job {work.name} {work.id} lost its claim: the job was recovered by "
            "another instance; the outcome was not written"
        )
        self._announcer.errored(error, work)

    def _reckon_again(self, ending: Ending[AnyJob], schedule: Rescheduled, now: datetime) -> None:
        """Decide anew by the schedule as it is stored now."""
        run = ending.run
        run.work = replace(
            run.work,
            repeat_interval=schedule.repeat_interval,
            timezone=schedule.timezone,
            data=schedule.data,
        )
        if ending.error is None:
            ending.outcome = after_success(run.work, now)
        elif not isinstance(ending.outcome, Released):
            reason = failure_reason(ending.error)
            ending.outcome = after_failure(run.work, reason, now, self._policy)

    def _announce(self, ending: Ending[AnyJob], now: datetime) -> None:
        job, outcome = ending.run.work, ending.outcome
        match outcome:
            case Completed():
                self._announcer.completed(lambda: settled(job, outcome, now), ending.duration)
            case Advanced(at, problem) if ending.error is None:
                self._wakeups.hint_at(job.name, at)
                self._announcer.completed(lambda: settled(job, outcome, now), ending.duration)
                if problem is not None:
                    self._announcer.errored(problem, job)
            case Released():
                self._wakeups.hint(job.name, 1)
            case _:
                stored = settled(job, outcome, now)
                if stored.status == JobStatus.PENDING:
                    self._wakeups.hint_at(job.name, stored.next_run_at)
                error = ending.error or RuntimeError(stored.fail_reason)
                will_retry = isinstance(outcome, Retrying)
                self._announcer.failed(stored, error, will_retry=will_retry)


def retry_policy(options: Options) -> RetryPolicy:
    """Give the retry rules of an instance."""
    return RetryPolicy(
        max_retries=options.max_retries,
        base=options.base_retry_interval,
        cap=options.max_backoff_delay,
        jitter=options.retry_jitter,
    )
