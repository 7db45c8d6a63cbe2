"""Reactive tasks as a source of work: what handlers get, and how runs are settled."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from monque_core.errors import OwnershipLostError
from monque_core.jobs.outcome import failure_reason
from monque_core.reactive.reactive_task import (
    BaseReactiveTask,
    NoLongerMatches,
    ReactiveTask,
    SyncReactiveTask,
)
from monque_core.scheduler.polling import AdaptivePolling
from monque_core.scheduler.source import RunResult, Source
from monque_core.store.handles import native_session
from monque_core.store.tasks.outcomes import TaskSettlement, TaskVerdict
from monque_core.store.tasks.queue import ExhaustedRecord, TaskCandidate
from monque_core.tasks.outcome import (
    RELEASED,
    SKIPPED,
    SUCCEEDED,
    Deferred,
    Failed,
    Outcome,
    Released,
    Retrying,
    Skipped,
    after_failure,
)
from monque_core.tasks.record import ExecutionStatus, TaskRecord, TaskStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from monque_core.options import Options
    from monque_core.reactive.task_event_publisher import TaskEventPublisher
    from monque_core.reactive.task_registry import TaskRegistry
    from monque_core.scheduler.runs import Run
    from monque_core.scheduler.source import Claim
    from monque_core.scheduler.wakeups import Wakeups
    from monque_core.scheduler.workers import Work, Worker, Workers
    from monque_core.store.claim_renewal import Loss
    from monque_core.store.quarantine import Rejected
    from monque_core.store.tasks.source_collections import SourceCollections
    from monque_core.store.tasks.store import Records

_SHORTEST_GAP = timedelta(milliseconds=200)
_LONGEST_GAP = timedelta(seconds=10)


class TaskSource(Source[TaskRecord, TaskCandidate]):
    """The records of the tasks on one source collection."""

    def __init__(
        self,
        records: Records,
        sources: SourceCollections,
        registry: TaskRegistry,
        workers: Workers,
        options: Options,
        wakeups: Wakeups,
        publisher: TaskEventPublisher,
    ) -> None:
        self.queue = records.queue
        self.workers = workers
        self.polling = AdaptivePolling(_SHORTEST_GAP, _LONGEST_GAP)
        self.renewal_interval = records.renewal_interval
        self.pause: Callable[[str, datetime], None] = _not_at_work
        """Pauses a task until a time; set by the pipeline."""
        self._records = records
        self._sources = sources
        self._registry = registry
        self._clock = options.clock
        self._wakeups = wakeups
        self._publisher = publisher

    def is_suspect(self, candidate: TaskCandidate) -> bool:
        """Whether a record may be a poison record: a process died while it ran."""
        return candidate.interrupted

    def due_at(self, work: TaskRecord) -> datetime | None:
        """Return when a claimed record was due."""
        return work.due_at

    def needs_isolation(self, work: TaskRecord) -> bool:
        """Whether a claimed record was a suspect while it waited."""
        return bool(work.history) and work.history[-1].status == ExecutionStatus.INTERRUPTED

    def report_rejected(self, rejected: Rejected, error: Exception) -> None:
        """Report a record that failed with its process, or a document that is not a record."""
        if isinstance(rejected, ExhaustedRecord):
            self._publisher.failed(rejected.record, error, will_retry=False)
        else:
            self._publisher.errored(error)

    def begin(self, run: Run[TaskRecord]) -> Work:
        """Publish that a task starts, and return what its handler gets."""
        record = run.work
        kind = ReactiveTask if self.workers.by_name[record.task].is_async else SyncReactiveTask
        self._publisher.started(record)
        return kind(record, self)

    def timeout(self, work: TaskRecord, worker: Worker) -> timedelta | None:  # noqa: ARG002
        """Return how long one run may take."""
        return worker.timeout

    def conclude(
        self, run: Run[TaskRecord], error: BaseException | None, seconds: float
    ) -> RunResult[TaskRecord]:
        """Return the result of a run whose handler has ended."""
        return RunResult(run, self._outcome(run, error), error, seconds)

    def release(self, run: Run[TaskRecord]) -> RunResult[TaskRecord]:
        """Return a result that undoes the claim."""
        return RunResult(run, RELEASED, None)

    async def settle(
        self, results: Sequence[RunResult[TaskRecord]], now: datetime
    ) -> list[TaskVerdict]:
        """Write outcomes, and return a verdict for each."""
        settlements = [
            TaskSettlement(result.run.work, result.outcome, result.duration) for result in results
        ]
        return await self._records.outcomes.settle(settlements, now)

    def finalize(self, result: RunResult[TaskRecord], verdict: TaskVerdict, now: datetime) -> bool:  # noqa: ARG002
        """Publish what was written."""
        record = result.run.work
        if verdict == "lost":
            self.report_lost(record, verdict)
            return True
        self._publish(result, verdict)
        return True

    async def renew(self, runs: Sequence[Run[TaskRecord]], now: datetime) -> Mapping[Claim, Loss]:
        """Renew claims, and return those that were lost, and why.

        A run that is completing in a transaction is left alone: a renewal would wait for the
        transaction, or abort it. After the transaction, the record may be completed and without a
        claim; what is stored when the run ends decides.
        """
        renewable = [run.work for run in runs if not _is_in_transaction(run)]
        lost = await self._records.outcomes.renew(renewable, now)
        may_be_over = {(run.work.id, run.work.claim_token) for run in runs if _may_be_over(run)}
        return {claim: loss for claim, loss in lost.items() if claim not in may_be_over}

    def report_write_error(self, work: TaskRecord, error: Exception) -> None:
        """Report that MongoDB rejects an outcome, which is kept and retried."""
        self._publisher.errored(error, work)

    def report_lost(self, work: TaskRecord, loss: Loss) -> None:  # noqa: ARG002  # nobody deletes records
        """Report that a record was taken over while its handler ran."""
        self._publisher.errored(_ownership_lost(work), work)

    def now(self) -> datetime:
        """Return the current time of the server."""
        return self._clock.now()

    async def document(
        self, record: TaskRecord, session: object, projection: Mapping[str, Any] | None
    ) -> dict[str, Any] | None:
        """Return the source document, None if it does not match."""
        declaration = self._registry[record.task].declaration
        return await self._sources.document(
            declaration.database,
            declaration.collection,
            record.source_id,
            declaration.filter,
            projection=projection,
            session=native_session(session),
        )

    async def complete(self, record: TaskRecord, session: object) -> None:
        """Complete the record inside the caller's transaction."""
        native = native_session(session)
        if native is None:
            raise TypeError("complete() needs the session of the transaction it is part of")
        if not await self._records.outcomes.complete_in_session(record, self._clock.now(), native):
            raise _ownership_lost(record)

    def _outcome(self, run: Run[TaskRecord], error: BaseException | None) -> Outcome:
        record = run.work
        deferred_until = (
            run.given.deferred_until if isinstance(run.given, BaseReactiveTask) else None
        )
        if error is None:
            return SUCCEEDED if deferred_until is None else Deferred(deferred_until)
        if isinstance(error, NoLongerMatches):
            return SKIPPED
        if run.ended_by == "stop":
            return RELEASED if deferred_until is None else Deferred(deferred_until)
        if deferred_until is not None:
            return Deferred(deferred_until, failure_reason(error))
        definition = self._registry[record.task]
        return after_failure(definition, record, failure_reason(error), self._clock.now())

    def _publish(self, result: RunResult[TaskRecord], stored: TaskRecord) -> None:
        outcome = result.outcome
        if stored.next_run_at is not None and stored.status == TaskStatus.PENDING:
            self._wakeups.hint_at(stored.task, stored.next_run_at)
        match outcome:
            case Released():
                self._wakeups.hint(stored.task, 1)
            case Skipped():
                self._publisher.skipped(stored, result.duration)
            case Retrying() | Failed() | Deferred(reason=str()):
                self._publish_failure(result, stored)
            case _:
                self._publisher.completed(stored, result.duration)

    def _publish_failure(self, result: RunResult[TaskRecord], stored: TaskRecord) -> None:
        error = result.error or RuntimeError(stored.last_error)
        if _has_completed(stored, result.run):
            # Its transaction had completed it before the handler failed.
            self._publisher.completed(stored, result.duration)
            self._publisher.errored(error, stored)
        else:
            will_retry = stored.status != TaskStatus.FAILED
            self._publisher.failed(stored, error, will_retry=will_retry)


def _is_in_transaction(run: Run[TaskRecord]) -> bool:
    return isinstance(run.given, BaseReactiveTask) and run.given.is_in_transaction


def _may_be_over(run: Run[TaskRecord]) -> bool:
    return isinstance(run.given, BaseReactiveTask) and run.given.session is not None


def _has_completed(stored: TaskRecord, run: Run[TaskRecord]) -> bool:
    """Whether this run is stored as a success, whatever its handler did afterwards."""
    is_its_own = stored.claim_token == run.work.claim_token
    return is_its_own and stored.status == TaskStatus.COMPLETED


def _ownership_lost(record: TaskRecord) -> OwnershipLostError:
    return OwnershipLostError(
        f"this run of the reactive task {record.task} for {record.source_id!r} lost its claim: "
        "its lock expired and another instance took over; the outcome was not written"
    )


def _not_at_work(name: str, until: datetime) -> None:
    raise AssertionError(f"{name} is paused until {until} before it has a pipeline")
