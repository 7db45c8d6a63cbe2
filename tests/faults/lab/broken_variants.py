"""Variants of monque that are broken on purpose, to test that the checker finds violations."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from bson import ObjectId

from monque_core.jobs import draft
from monque_core.jobs.outcome import Released, after_exhaustion
from monque_core.jobs.retry import Exponential
from monque_core.scheduler import job_source
from monque_core.scheduler.cluster import Cluster
from monque_core.scheduler.dispatcher import Dispatcher
from monque_core.scheduler.job_source import JobSource
from monque_core.scheduler.recovery import Recovery
from monque_core.scheduler.runner import Runner
from monque_core.scheduler.slots import Slots
from monque_core.scheduler.wakeups import Wakeups
from monque_core.store import index_maintenance, queue, stale_jobs, transitions
from monque_core.store.indexes import job_indexes
from monque_core.store.inserts import Inserts
from monque_core.store.listener_seats import ListenerSeats
from monque_core.store.outcomes import Outcomes
from monque_core.store.shard_key import identified

if TYPE_CHECKING:
    from collections.abc import Callable

_EVERY = 5


def _replace(owner: Any, name: str, broken: Any) -> None:
    """Replace an attribute with a broken version."""
    setattr(owner, name, broken)


def _no_fencing() -> None:
    """Settle by id alone, regardless of who owns the claim."""

    def unfenced(jobs: Any, owner: object) -> dict[str, Any]:
        return {**identified(jobs), "status": "processing"}

    _replace(transitions, "_fence", unfenced)


def _lost_outcome() -> None:
    """Report some outcomes as written without writing them."""
    settle = Outcomes.settle
    numbers = itertools.count(1)

    async def sometimes(self: Outcomes, settlements: Any, now: Any) -> Any:
        if next(numbers) % _EVERY == 0:
            return ["written"] * len(settlements)
        return await settle(self, settlements, now)

    _replace(Outcomes, "settle", sometimes)


def _double_claim() -> None:
    """Claim jobs that are already claimed."""
    claim = transitions.claim

    def careless(selection: Any, owner: Any, token: Any, now: Any) -> transitions.Transition:
        step = claim(selection, owner, token, now)
        anyone = {"status": {"$in": ["pending", "processing"]}, "nextRunAt": {"$lte": now}}
        return transitions.Transition({**selection, **anyone}, step.update)

    _replace(queue, "claim", careless)


def _lost_enqueue() -> None:
    """Acknowledge some jobs without storing them."""
    put = Inserts.put
    numbers = itertools.count(1)

    async def sometimes(self: Inserts, job: Any, session: Any = None) -> Any:
        return await put(self, job, session) if next(numbers) % _EVERY else job

    _replace(Inserts, "put", sometimes)


def _stored_twice() -> None:
    """Store some jobs a second time, like an incorrect retry."""
    put = Inserts.put
    numbers = itertools.count(1)

    async def sometimes(self: Inserts, job: Any, session: Any = None) -> Any:
        stored = await put(self, job, session)
        if next(numbers) % _EVERY == 0 and session is None and job.unique_key is None:
            await put(self, replace(job, id=ObjectId()))
        return stored

    _replace(Inserts, "put", sometimes)


def _unique_keys_ignored() -> None:
    """Store jobs with unique keys as if they had none, without the unique index."""
    indexes = job_indexes

    def without_unique(*, retention: bool) -> Any:
        return [one for one in indexes(retention=retention) if not one.document.get("unique")]

    async def plainly(self: Inserts, job: Any, session: Any) -> Any:
        await self.insert_alike([job], session)
        return job

    _replace(index_maintenance, "job_indexes", without_unique)
    _replace(Inserts, "insert_unique", plainly)


def _limits_ignored() -> None:
    """Exceed the concurrency limits."""
    own_free, free = Slots._own_free, Slots.free
    _replace(Slots, "_own_free", lambda self, name: own_free(self, name) + 3)
    _replace(Slots, "free", lambda self, name: free(self, name) + 3)


def _eager_recovery() -> None:
    """Take over claims whose owners are alive."""

    def everything(intervals: Any, now: Any, lock_timeout: Any) -> dict[str, Any]:
        # Regardless of age: renewals and recovery may run in lockstep.
        return {"status": "processing"}

    _replace(stale_jobs, "stale", everything)


def _no_recovery() -> None:
    """Leave the jobs of dead instances claimed."""

    async def nothing(self: Recovery, grace_seconds: float = 0.0) -> int:
        return 0

    _replace(Recovery, "recover", nothing)


def _claimed_early() -> None:
    """Claim jobs that are not due yet."""
    due = transitions.due
    hour = timedelta(hours=1)
    for module in (transitions, queue):
        _replace(module, "due", lambda now: due(now + hour))


def _settled_before_running() -> None:
    """Complete jobs before they have run, like a queue with at-most-once delivery."""
    execute = Runner.execute

    async def hasty(self: Runner[Any, Any], run: Any, ended: Any) -> None:
        ending = self._source.conclude(run, None, 0.0)
        if run.work.repeat_interval is None:
            await self._source.settle([ending], run.work.locked_at)
        await execute(self, run, ended)

    _replace(Runner, "execute", hasty)


def _claims_kept_at_stop() -> None:
    """Keep the claims of runs that a stop interrupts, instead of handing them back."""
    settle = Outcomes.settle

    async def unless_released(self: Outcomes, settlements: Any, now: Any) -> Any:
        kept = [one for one in settlements if not isinstance(one.outcome, Released)]
        verdicts = dict(zip(map(id, kept), await settle(self, kept, now), strict=True))
        return [verdicts.get(id(one), "written") for one in settlements]

    async def nothing(self: Dispatcher[Any, Any]) -> None:
        self._backlog.pop_overdue(float("inf"))

    _replace(Outcomes, "settle", unless_released)
    _replace(Dispatcher, "release_unstarted", nothing)


def _given_up_at_first_error() -> None:
    """Fail a job permanently at its first error, whatever its limit of retries."""

    def at_once(job: Any, reason: str, now: Any, policy: object) -> Any:
        return after_exhaustion(job, reason, now)

    _replace(job_source, "after_failure", at_once)


def _given_up_at_first_interruption() -> None:
    """Fail a job permanently when its process died, instead of making it pending again."""
    _replace(Recovery, "_is_spent", lambda self, job: True)  # noqa: ARG005


def _no_backoff() -> None:
    """Retry failed jobs without a delay."""
    _replace(Exponential, "delay", lambda *_: timedelta(0))


def _handed_back_while_running() -> None:
    """Hand back a job that has just started, and run it anyway."""
    execute = Runner.execute
    handed_back = set[ObjectId]()

    async def careless(self: Runner[Any, Any], run: Any, ended: Any) -> None:
        # Once per job, or it would never end.
        if run.work.name == "long" and run.work.id not in handed_back:
            handed_back.add(run.work.id)
            await self._source.settle([self._source.release(run)], run.work.locked_at)
        await execute(self, run, ended)

    _replace(Runner, "execute", careless)


def _lost_event() -> None:
    """Drop the events of some outcomes that were written."""
    announce = JobSource._publish
    numbers = itertools.count(1)

    def sometimes(self: JobSource, ending: Any, now: Any) -> None:
        if next(numbers) % _EVERY:
            announce(self, ending, now)

    _replace(JobSource, "_publish", sometimes)


def _delay_ignored() -> None:
    """Store all jobs as due at once, whatever their delay."""
    _replace(draft, "resolve_run_at", lambda now, run_at, delay: now)  # noqa: ARG005


def _no_backup() -> None:
    """Leave each job to its first listener, which never looks."""

    def only_first(self: Wakeups, name: str, at: Any, count: int = 1) -> None:
        """Leave it to others."""

    async def nobody(self: Cluster) -> None:
        """Leave the seats of dead listeners, too."""

    _replace(Wakeups, "arrived", only_first)
    _replace(Cluster, "check", nobody)


def _standby_never_woken() -> None:
    """Send no signal to anyone."""

    async def nothing(self: Cluster, kind: Any, to: Any, names: Any = ()) -> None:
        """Leave it to polls."""

    _replace(Cluster, "_send", nothing)


def _seats_kept_for_ever() -> None:
    """Count dead listeners in, and take no seat away from anyone."""

    async def nothing(self: ListenerSeats, other: Any) -> None:
        """Leave the seat to whoever had it."""

    async def seated(self: ListenerSeats, pool: str) -> Any:
        return await self._seated(pool)

    _replace(ListenerSeats, "evict", nothing)
    _replace(ListenerSeats, "listeners", seated)


LISTENER_VARIANTS: dict[str, Callable[[], None]] = {
    "no backup": _no_backup,
    "standby never woken": _standby_never_woken,
    "seats kept for ever": _seats_kept_for_ever,
}
"""These show only where listeners fail and nobody polls."""

BROKEN_VARIANTS: dict[str, Callable[[], None]] = {
    "no fencing": _no_fencing,
    "lost outcome": _lost_outcome,
    "double claim": _double_claim,
    "lost enqueue": _lost_enqueue,
    "stored twice": _stored_twice,
    "unique keys ignored": _unique_keys_ignored,
    "limits ignored": _limits_ignored,
    "eager recovery": _eager_recovery,
    "no recovery": _no_recovery,
    "claimed early": _claimed_early,
    "settled before running": _settled_before_running,
    "claims kept at stop": _claims_kept_at_stop,
    "given up at first error": _given_up_at_first_error,
    "given up at first interruption": _given_up_at_first_interruption,
    "no backoff": _no_backoff,
    "handed back while running": _handed_back_while_running,
    "lost event": _lost_event,
    "delay ignored": _delay_ignored,
}
