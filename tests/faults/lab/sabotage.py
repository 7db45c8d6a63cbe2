"""Monque broken on purpose: what the checker must catch, or it is worth nothing."""

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
from monque_core.scheduler.dispatcher import Dispatcher
from monque_core.scheduler.job_source import JobSource
from monque_core.scheduler.recovery import Recovery
from monque_core.scheduler.runner import Runner
from monque_core.scheduler.slots import Slots
from monque_core.store import index_maintenance, queue, stale_jobs, transitions
from monque_core.store.indexes import job_indexes
from monque_core.store.inserts import Inserts
from monque_core.store.outcomes import Outcomes

if TYPE_CHECKING:
    from collections.abc import Callable

_EVERY = 5


def _put(owner: Any, name: str, broken: Any) -> None:
    """Put something broken in the place of what works."""
    setattr(owner, name, broken)


def _no_fencing() -> None:
    """Settle by id alone, whoever has the claim by now."""

    def unfenced(ids: Any, token: object, owner: object) -> dict[str, Any]:
        return {"_id": ids, "status": "processing"}

    _put(transitions, "_fence", unfenced)


def _lost_settle() -> None:
    """Take some outcomes for written that were not."""
    settle = Outcomes.settle
    numbers = itertools.count(1)

    async def sometimes(self: Outcomes, settlements: Any, now: Any) -> Any:
        if next(numbers) % _EVERY == 0:
            return ["written"] * len(settlements)
        return await settle(self, settlements, now)

    _put(Outcomes, "settle", sometimes)


def _double_claim() -> None:
    """Claim what is claimed already."""
    claim = transitions.claim

    def careless(selection: Any, owner: Any, token: Any, now: Any) -> transitions.Transition:
        step = claim(selection, owner, token, now)
        anyone = {"status": {"$in": ["pending", "processing"]}, "nextRunAt": {"$lte": now}}
        return transitions.Transition({**selection, **anyone}, step.update)

    _put(queue, "claim", careless)


def _lost_enqueue() -> None:
    """Acknowledge some jobs that were not stored."""
    put = Inserts.put
    numbers = itertools.count(1)

    async def sometimes(self: Inserts, job: Any, session: Any = None) -> Any:
        return await put(self, job, session) if next(numbers) % _EVERY else job

    _put(Inserts, "put", sometimes)


def _stored_twice() -> None:
    """Store some jobs a second time, as a careless retry would."""
    put = Inserts.put
    numbers = itertools.count(1)

    async def sometimes(self: Inserts, job: Any, session: Any = None) -> Any:
        stored = await put(self, job, session)
        if next(numbers) % _EVERY == 0 and session is None and job.unique_key is None:
            await put(self, replace(job, id=ObjectId()))
        return stored

    _put(Inserts, "put", sometimes)


def _keys_ignored() -> None:
    """Store jobs with keys as if they had none to heed, without the index that forbids it."""
    indexes = job_indexes

    def without_unique(*, retention: bool) -> Any:
        return [one for one in indexes(retention=retention) if not one.document.get("unique")]

    async def plainly(self: Inserts, job: Any, session: Any) -> Any:
        await self.insert_alike([job], session)
        return job

    _put(index_maintenance, "job_indexes", without_unique)
    _put(Inserts, "insert_unique", plainly)


def _limits_ignored() -> None:
    """Run more at once than was asked for."""
    own_free, free = Slots._own_free, Slots.free
    _put(Slots, "_own_free", lambda self, name: own_free(self, name) + 3)
    _put(Slots, "free", lambda self, name: free(self, name) + 3)


def _eager_recovery() -> None:
    """Take over claims whose owners are alive."""

    def everything(intervals: Any, now: Any, lock_timeout: Any) -> dict[str, Any]:
        # However fresh: renewals and looks for the stale may go in step.
        return {"status": "processing"}

    _put(stale_jobs, "stale", everything)


def _no_recovery() -> None:
    """Leave the jobs of the dead where they are."""

    async def nothing(self: Recovery, grace_seconds: float = 0.0) -> int:
        return 0

    _put(Recovery, "recover", nothing)


def _claimed_early() -> None:
    """Claim what is not due yet."""
    due = transitions.due
    hour = timedelta(hours=1)
    for module in (transitions, queue):
        _put(module, "due", lambda now: due(now + hour))


def _settled_before_running() -> None:
    """Complete jobs before they have run, as queues do that promise at most once."""
    execute = Runner.execute

    async def hasty(self: Runner[Any, Any], run: Any, ended: Any) -> None:
        ending = self._source.conclude(run, None, timedelta(0))
        if run.work.repeat_interval is None:
            await self._source.settle([ending], run.work.locked_at)
        await execute(self, run, ended)

    _put(Runner, "execute", hasty)


def _forgotten_at_stop() -> None:
    """Keep what is running when a stop cuts it short, instead of handing it back."""
    settle = Outcomes.settle

    async def unless_released(self: Outcomes, settlements: Any, now: Any) -> Any:
        kept = [one for one in settlements if not isinstance(one.outcome, Released)]
        verdicts = dict(zip(map(id, kept), await settle(self, kept, now), strict=True))
        return [verdicts.get(id(one), "written") for one in settlements]

    async def nothing(self: Dispatcher[Any, Any]) -> None:
        self._backlog.pop_overdue(float("inf"))

    _put(Outcomes, "settle", unless_released)
    _put(Dispatcher, "release_unstarted", nothing)


def _given_up_too_early() -> None:
    """Give up a job at its first error, whatever it was promised."""

    def at_once(job: Any, reason: str, now: Any, policy: object) -> Any:
        return after_exhaustion(job, reason, now)

    _put(job_source, "after_failure", at_once)


def _spent_at_once() -> None:
    """Give up a job whose process has died, instead of giving it back to the queue."""
    _put(Recovery, "_is_spent", lambda self, job: True)  # noqa: ARG005


def _no_backoff() -> None:
    """Try again at once what has failed."""
    _put(Exponential, "delay", lambda *_: timedelta(0))


def _handed_back_while_running() -> None:
    """Hand back a job that has just begun, and run it all the same."""
    execute = Runner.execute
    handed_back = set[ObjectId]()

    async def careless(self: Runner[Any, Any], run: Any, ended: Any) -> None:
        # Each once, or there would be no end to it.
        if run.work.name == "long" and run.work.id not in handed_back:
            handed_back.add(run.work.id)
            await self._source.settle([self._source.release(run)], run.work.locked_at)
        await execute(self, run, ended)

    _put(Runner, "execute", careless)


def _silent() -> None:
    """Keep some outcomes to oneself that were written."""
    announce = JobSource._publish
    numbers = itertools.count(1)

    def sometimes(self: JobSource, ending: Any, now: Any) -> None:
        if next(numbers) % _EVERY:
            announce(self, ending, now)

    _put(JobSource, "_publish", sometimes)


def _delay_ignored() -> None:
    """Store jobs that are due at once, whatever was asked for."""
    _put(draft, "resolve_run_at", lambda now, run_at, delay: now)  # noqa: ARG005


SABOTAGE: dict[str, Callable[[], None]] = {
    "no fencing": _no_fencing,
    "lost settle": _lost_settle,
    "double claim": _double_claim,
    "lost enqueue": _lost_enqueue,
    "stored twice": _stored_twice,
    "keys ignored": _keys_ignored,
    "limits ignored": _limits_ignored,
    "eager recovery": _eager_recovery,
    "no recovery": _no_recovery,
    "claimed early": _claimed_early,
    "settled before running": _settled_before_running,
    "forgotten at stop": _forgotten_at_stop,
    "given up too early": _given_up_too_early,
    "spent at once": _spent_at_once,
    "no backoff": _no_backoff,
    "handed back while running": _handed_back_while_running,
    "silent": _silent,
    "delay ignored": _delay_ignored,
}
