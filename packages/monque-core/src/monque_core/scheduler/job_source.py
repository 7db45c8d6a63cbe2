"""Jobs as a source of work: what their handlers get, and how their runs are settled."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from monque_core.errors import OwnershipLostError
from monque_core.events import JOB_COMPLETE
from monque_core.jobs.job import AnyJob, JobStatus, twin
from monque_core.jobs.outcome import (
    COMPLETED,
    RELEASED,
    Advanced,
    Completed,
    Released,
    Retrying,
    after_failure,
    after_success,
    failure_reason,
    max_runs,
    settled,
    truncated,
)
from monque_core.jobs.retry import Exponential
from monque_core.scheduler.poison_guard import is_suspect
from monque_core.scheduler.polling import SteadyPolling
from monque_core.scheduler.source import RunResult, Source
from monque_core.store.outcomes import Rescheduled, Settlement, Verdict
from monque_core.store.queue import JobCandidate
from monque_core.store.write_errors import is_document_error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime, timedelta

    from monque_core.options import Options
    from monque_core.scheduler.event_publisher import EventPublisher
    from monque_core.scheduler.runs import Run
    from monque_core.scheduler.source import Claim
    from monque_core.scheduler.wakeups import Wakeups
    from monque_core.scheduler.workers import Work, Worker, Workers
    from monque_core.store.claim_renewal import Loss
    from monque_core.store.quarantine import Rejected
    from monque_core.store.store import Store

logger = logging.getLogger("monque")


class JobSource(Source[AnyJob, JobCandidate]):
    """The jobs collection."""

    def __init__(
        self,
        store: Store,
        options: Options,
        workers: Workers,
        wakeups: Wakeups,
        publisher: EventPublisher,
    ) -> None:
        self.queue = store.queue
        self.workers = workers
        self.polling: SteadyPolling = SteadyPolling(
            options.poll_interval, options.safety_poll_interval, streams_lag=store.streams_lag
        )
        self.renewal_interval = options.heartbeat_interval
        self._outcomes = store.outcomes
        self._clock = options.clock
        self._retry = default_retry(options)
        self._wakeups = wakeups
        self._publisher = publisher

    def is_suspect(self, candidate: JobCandidate) -> bool:
        """Whether a waiting job may be a poison job."""
        limit = candidate.max_retries or self._retry.max_attempts
        return is_suspect(candidate.claims, candidate.failures, limit)

    def due_at(self, work: AnyJob) -> datetime:
        """Return when a claimed job was due."""
        return work.next_run_at

    def needs_isolation(self, work: AnyJob) -> bool:
        """Whether a claimed job was a suspect while it waited."""
        # As it was before this claim; for most jobs the first comparison decides.
        before = work.claims - 1
        return before > work.fail_count and is_suspect(
            before, work.fail_count, max_runs(work, self._retry)
        )

    def report_rejected(self, rejected: Rejected, error: Exception) -> None:  # noqa: ARG002  # the error names it
        """Report a document that is no job."""
        self._publisher.errored(error)

    def begin(self, run: Run[AnyJob]) -> Work:
        """Publish that a job starts, and return a copy of it for its handler."""
        # A handler that changes its job must not change the engine's; only the data is shared.
        job = twin(run.work)
        self._publisher.started(job)
        return job

    def timeout(self, work: AnyJob, worker: Worker) -> timedelta | None:
        """Return how long one run may take: the job's own timeout, else its worker's."""
        return worker.timeout if work.timeout is None else work.timeout

    def conclude(
        self, run: Run[AnyJob], error: BaseException | None, seconds: float
    ) -> RunResult[AnyJob]:
        """Return the result of a run whose handler has ended."""
        job = run.work
        if error is None and not job.is_recurring:
            return RunResult(run, COMPLETED, None, seconds)
        now = self._clock.now()
        if error is None:
            return RunResult(run, after_success(job, now), None, seconds)
        if run.ended_by == "stop":
            return RunResult(run, RELEASED, error, seconds)
        outcome = after_failure(job, failure_reason(error), now, self._retry)
        return RunResult(run, outcome, error, seconds)

    def release(self, run: Run[AnyJob]) -> RunResult[AnyJob]:
        """Return a result that undoes the claim."""
        return RunResult(run, RELEASED, None)

    async def settle(self, results: Sequence[RunResult[AnyJob]], now: datetime) -> list[Verdict]:
        """Write outcomes, and return a verdict for each."""
        settlements = [Settlement(result.run.work, result.outcome) for result in results]
        return await self._outcomes.settle(settlements, now)

    def finalize(self, result: RunResult[AnyJob], verdict: Verdict, now: datetime) -> bool:
        """Publish what was written; False if the schedule has changed and decides again."""
        if verdict == "written":
            self._publish(result, now)
        elif isinstance(verdict, Rescheduled):
            self._conclude_again(result, verdict, now)
            return False
        else:
            self.report_lost(result.run.work, verdict)
        return True

    def truncate(self, result: RunResult[AnyJob], error: Exception) -> bool:
        """Shorten the reason of a failure, or leave it out, for a job that has no room for it."""
        shorter = truncated(result.outcome) if is_document_error(error) else None
        if shorter is None:
            return False
        result.outcome = shorter
        return True

    def report_write_error(self, work: AnyJob, error: Exception) -> None:
        """Report that MongoDB rejects an outcome, which is kept and retried."""
        self._publisher.errored(error, work)

    async def renew(self, runs: Sequence[Run[AnyJob]], now: datetime) -> Mapping[Claim, Loss]:
        """Renew claims, and return those that were lost, and why."""
        return await self._outcomes.renew([run.work for run in runs], now)

    def report_lost(self, work: AnyJob, loss: Loss) -> None:
        """Report that a job was taken over, or deleted, while its handler ran."""
        if loss == "deleted":
            # Somebody wanted that.
            logger.info("job %s %s was deleted while it ran", work.name, work.id)
            return
        error = OwnershipLostError(
            f"this run of job {work.name} {work.id} lost its claim: the job was recovered by "
            "another instance; the outcome was not written"
        )
        self._publisher.errored(error, work)

    def _conclude_again(
        self, result: RunResult[AnyJob], schedule: Rescheduled, now: datetime
    ) -> None:
        """Change a result to follow the schedule as it is stored now."""
        run = result.run
        run.work = replace(
            run.work,
            repeat_interval=schedule.repeat_interval,
            timezone=schedule.timezone,
            data=schedule.data,
        )
        if result.error is None:
            result.outcome = after_success(run.work, now)
        elif not isinstance(result.outcome, Released):
            reason = failure_reason(result.error)
            result.outcome = after_failure(run.work, reason, now, self._retry)

    def _publish(self, result: RunResult[AnyJob], now: datetime) -> None:
        job, outcome = result.run.work, result.outcome
        match outcome:
            case Completed():
                self._publish_success(result, now)
            case Advanced(at, problem) if result.error is None:
                self._wakeups.hint_at(job.name, at)
                self._publish_success(result, now)
                if problem is not None:
                    self._publisher.errored(problem, job)
            case Released():
                self._wakeups.hint(job.name, 1)
            case _:
                stored = settled(job, outcome, now)
                if stored.status == JobStatus.PENDING:
                    self._wakeups.hint_at(job.name, stored.next_run_at)
                error = result.error or RuntimeError(stored.fail_reason)
                will_retry = isinstance(outcome, Retrying)
                self._publisher.failed(stored, error, will_retry=will_retry)

    def _publish_success(self, result: RunResult[AnyJob], now: datetime) -> None:
        # Usually nobody listens, and the job need not be built.
        if self._publisher.is_heard(JOB_COMPLETE):
            stored = settled(result.run.work, result.outcome, now)
            self._publisher.completed(stored, result.duration)


def default_retry(options: Options) -> Exponential:
    """Return the retry policy of an instance: 2^fail_count × `base_retry_interval`, capped."""
    cap = options.max_backoff_delay
    return Exponential(
        # The first failure already doubles the interval.
        min(2 * options.base_retry_interval, cap),
        cap=cap,
        jitter=options.retry_jitter,
        max_attempts=options.max_retries,
    )
