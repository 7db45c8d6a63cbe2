"""Two instances, any operations in any order: the jobs always follow the specification.

The machine drives the stores of two instances on a real MongoDB: it enqueues, schedules, claims,
settles, stalls, crashes, resumes late, recovers and interferes in random order, and maintains a
model of the expected jobs. After every step the collection must equal the model.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest
from bson import ObjectId
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pymongo import AsyncMongoClient, WriteConcern
from pymongo.errors import AutoReconnect

from monque_core import Exponential, JobStateError, next_cron_run
from monque_core.jobs.outcome import (
    RELEASED,
    OccurrenceFailed,
    Released,
    Retrying,
    after_exhaustion,
    after_failure,
    after_success,
)
from monque_core.store.documents import to_job
from monque_core.store.driver import Collection, Driver
from monque_core.store.outcomes import Outcomes, Rescheduled, Settlement
from monque_core.store.transitions import Owner
from tests.support.samples import a_job, a_schedule
from tests.support.stored import jobs_in
from tests.support.stores import open_store

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from monque_core.jobs.job import AnyJob
    from monque_core.jobs.outcome import Outcome
    from monque_core.store.outcomes import Verdict
    from monque_core.store.store import Store

BEGINNING: Final = datetime(2026, 5, 5, 12, 0, 30, tzinfo=UTC)
OWNERS: Final = ["one", "two"]
NAMES: Final = ["a", "b"]
HEARTBEAT: Final = timedelta(seconds=30)
MAX_RUNS: Final = 2
FIRST_DELAY: Final = timedelta(seconds=20)
LONGEST_DELAY: Final = timedelta(minutes=1)
RETRY: Final = Exponential(FIRST_DELAY, cap=LONGEST_DELAY, max_attempts=MAX_RUNS)
NO_CLAIM: Final = {
    "claimed_by": None,
    "locked_at": None,
    "last_heartbeat": None,
    "heartbeat_interval": None,
}
CLAIM_FIELDS: Final = {"claimedBy", "lockedAt", "lastHeartbeat", "heartbeatInterval"}
APT: Final = {
    "cancel": {"pending"},
    "retry": {"failed", "cancelled"},
    "move": {"pending"},
    "delete": {"processing"},
}
"""The statuses in which each action of an operator has an effect."""

owners = st.sampled_from(OWNERS)
names = st.sampled_from(["a", "a", "b"])
keys = st.sampled_from(["x", "x", "y"])
crons = st.sampled_from(["* * * * *", "*/5 * * * *"])
picks = st.integers(0, 1000)
endings = st.sampled_from(["success", "failure", "failure", "release"])


class DiesBeforeTheMove(Collection):
    """Inserts the copy, and then never sends the bulk write."""

    async def bulk_write(self, *_: object, **__: object) -> tuple[int, dict[int, Any]]:
        raise AutoReconnect("the process died here")


class Rig:
    """A database with the stores of two instances, and the event loop that they run on."""

    def __init__(self, uri: str, database_name: str) -> None:
        self._runner = asyncio.Runner()
        self._client = AsyncMongoClient[dict[str, Any]](uri)
        quick = WriteConcern(w=1, j=False)
        self._db = self._client.get_database(database_name, write_concern=quick)
        self.stores: dict[str, Store] = {
            owner: self.run(open_store(self._db, owner, heartbeat_interval=HEARTBEAT))
            for owner in OWNERS
        }

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)

    def clear(self) -> None:
        self.run(jobs_in(self._db).delete_many({}))

    def documents(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.run(jobs_in(self._db).find().to_list())
        return found

    def dying_outcomes(self, owner: str) -> Outcomes:
        collection = DiesBeforeTheMove(Driver(self._db), "monque_jobs")
        return Outcomes(collection, Owner(owner, HEARTBEAT // timedelta(milliseconds=1)))

    def close(self) -> None:
        self.run(self._client.close())
        self._runner.close()


@dataclass(eq=False)
class Run:
    """A claim in the memory of the process that made it."""

    owner: str
    job: AnyJob


def runs_of(job: AnyJob) -> int:
    return MAX_RUNS if job.max_retries is None else job.max_retries


def counted_claims(job: AnyJob) -> int:
    """Return how often a pending job was claimed; a move since the last claim resets the count."""
    is_moved = job.claimed_at is not None and job.next_run_at > job.claimed_at
    return max(job.fail_count, 0 if is_moved and not job.fail_count else job.claims)


@dataclass
class Model:
    """The expected jobs: the specification in plain Python."""

    now: datetime = BEGINNING
    jobs: dict[ObjectId, AnyJob] = field(default_factory=dict)
    failed_occurrences: dict[tuple[ObjectId, datetime], AnyJob] = field(default_factory=dict)

    def active(self, name: str, key: str | None) -> AnyJob | None:
        """Return the pending or processing job with this name and key."""
        for job in self.jobs.values():
            is_active = job.status in {"pending", "processing"}
            if key and is_active and (job.name, job.unique_key) == (name, key):
                return job
        return None

    def due(self, name: str) -> list[AnyJob]:
        """Return the claimable jobs in the order of the queue."""
        found = [
            job
            for job in self.jobs.values()
            if (job.name, job.status) == (name, "pending") and job.next_run_at <= self.now
        ]
        return sorted(found, key=rank)

    def holds(self, run: Run) -> bool:
        """Return whether a run still has its claim."""
        job = self.jobs.get(run.job.id)
        return (
            job is not None
            and job.status == "processing"
            and (job.claimed_by, job.claim_token) == (run.owner, run.job.claim_token)
        )

    def stale(self) -> set[ObjectId]:
        """Return the jobs whose owners have been silent for more than three heartbeats."""
        return {
            job.id
            for job in self.jobs.values()
            if job.status == "processing" and job.last_heartbeat is not None
            if self.now - job.last_heartbeat > 3 * HEARTBEAT
        }

    def change(self, job_id: ObjectId, **fields: Any) -> None:
        self.jobs[job_id] = replace(self.jobs[job_id], updated_at=self.now, **fields)

    def claim(self, job_id: ObjectId, owner: str, token: ObjectId) -> AnyJob:
        self.change(
            job_id,
            status="processing",
            claimed_by=owner,
            claim_token=token,
            claimed_at=self.now,
            locked_at=self.now,
            last_heartbeat=self.now,
            heartbeat_interval=HEARTBEAT // timedelta(milliseconds=1),
            claims=counted_claims(self.jobs[job_id]) + 1,
        )
        return self.jobs[job_id]

    def succeed(self, job_id: ObjectId) -> None:
        job = self.jobs[job_id]
        if job.repeat_interval is None:
            self.change(job_id, status="completed", fail_reason=None, **NO_CLAIM)
        else:
            self.change(job_id, fail_reason=None, **self._next_tick(job))

    def fail(self, job_id: ObjectId, reason: str) -> None:
        job = self.jobs[job_id]
        if job.fail_count + 1 >= runs_of(job):
            self.give_up(job_id, reason)
        else:
            self.change(
                job_id,
                status="pending",
                fail_count=job.fail_count + 1,
                fail_reason=reason,
                next_run_at=self.now + min(2**job.fail_count * FIRST_DELAY, LONGEST_DELAY),
                **NO_CLAIM,
            )

    def give_up(self, job_id: ObjectId, reason: str) -> None:
        job = self.jobs[job_id]
        if job.repeat_interval is None:
            self.change(
                job_id,
                status="failed",
                fail_count=job.fail_count + 1,
                fail_reason=reason,
                **NO_CLAIM,
            )
        else:
            self.leave_behind(job_id, reason)
            self.change(job_id, fail_reason=reason, **self._next_tick(job))

    def leave_behind(self, job_id: ObjectId, reason: str) -> None:
        """Keep a failed occurrence as a job of its own, once."""
        job = self.jobs[job_id]
        copy = a_job(
            name=job.name,
            data=job.data,
            status="failed",
            next_run_at=job.next_run_at,
            created_at=self.now,
            updated_at=self.now,
            fail_count=job.fail_count + 1,
            fail_reason=reason,
            priority=job.priority,
            max_retries=job.max_retries,
        )
        left = self.failed_occurrences.setdefault((job_id, job.next_run_at), copy)
        left.claim_token = job.claim_token

    def release(self, job_id: ObjectId) -> None:
        claims = self.jobs[job_id].claims - 1
        self.change(job_id, status="pending", claims=claims, **NO_CLAIM)

    def revive(self, job_id: ObjectId) -> None:
        self.change(job_id, status="pending", claim_token=None, **NO_CLAIM)

    def reschedule(self, job_id: ObjectId, wanted: AnyJob) -> None:
        """Create or update a schedule."""
        job = self.jobs[job_id]
        if (job.repeat_interval, job.data) == (wanted.repeat_interval, wanted.data):
            return
        moves = job.status == "pending" and job.repeat_interval != wanted.repeat_interval
        if moves:
            due_at = wanted.next_run_at
            if job.repeat_interval is None:
                due_at = min(due_at, job.next_run_at)
            self.change(job_id, next_run_at=due_at, fail_count=0, claims=0)
        self.change(
            job_id,
            repeat_interval=wanted.repeat_interval,
            timezone=wanted.timezone,
            data=wanted.data,
            priority=wanted.priority,
        )

    def can(self, action: str, job_id: ObjectId) -> bool:
        """Return whether an operator may apply an action to a job."""
        job = self.jobs[job_id]
        if action == "retry":
            is_free = self.active(job.name, job.unique_key) is None
            return job.status in {"failed", "cancelled"} and is_free
        return job.status == "pending" or (action, job.status) == ("cancel", "cancelled")

    def cancel(self, job_id: ObjectId) -> None:
        if self.jobs[job_id].status == "pending":
            self.change(job_id, status="cancelled")

    def retry(self, job_id: ObjectId) -> None:
        job = self.jobs[job_id]
        self.change(
            job_id,
            status="pending",
            next_run_at=max(self.now, job.next_run_at) if job.status == "cancelled" else self.now,
            fail_count=0,
            fail_reason=None,
            claims=0,
            claim_token=None,
            **NO_CLAIM,
        )

    def unschedule(self, name: str) -> int:
        found = [
            job
            for job in self.jobs.values()
            if job.name == name and job.repeat_interval and job.status in {"pending", "processing"}
        ]
        for job in found:
            if job.status == "pending":
                del self.jobs[job.id]
            else:
                self.change(job.id, repeat_interval=None, timezone=None)
        return len(found)

    def _next_tick(self, job: AnyJob) -> dict[str, Any]:
        assert job.repeat_interval is not None
        tick = next_cron_run(job.repeat_interval, self.now)
        return NO_CLAIM | {
            "status": "pending",
            "next_run_at": tick,
            "fail_count": 0,
            "claims": 0,
        }


def rank(job: AnyJob) -> tuple[int, datetime]:
    return (-job.priority, job.next_run_at)


class TwoInstances(RuleBasedStateMachine):
    """The operations of two instances."""

    rig: Rig

    def __init__(self) -> None:
        super().__init__()
        self.rig.clear()
        self.model = Model()
        self.runs: list[Run] = []

    @initialize()
    def begin_with_something_to_do(self) -> None:
        self.enqueue("a", 0, 0, "one")
        self.enqueue_with_key("a", "x", "one")
        self.schedule("a", "y", "* * * * *", "old", "one")
        self.let_time_pass(70)
        self.claim_batch("one", 2, has_rival=False)
        self.claim_batch("two", 2, has_rival=False)

    @rule(
        what=st.sampled_from(["job", "job with key", "many jobs", "schedule", "schedule", "end"]),
        name=names,
        key=keys,
        keys=st.lists(keys, min_size=1, max_size=4),
        cron=crons,
        data=st.sampled_from(["old", "new"]),
        priority=st.integers(0, 2),
        delay=st.sampled_from([0, 0, 40]),
        owner=owners,
    )
    def ask_for(
        self,
        what: str,
        name: str,
        key: str,
        keys: list[str],
        cron: str,
        data: str,
        priority: int,
        delay: int,
        owner: str,
    ) -> None:
        """Enqueue, schedule or unschedule."""
        match what:
            case "job":
                self.enqueue(name, priority, delay, owner)
            case "job with key":
                self.enqueue_with_key(name, key, owner)
            case "many jobs":
                self.enqueue_many_with_keys(name, keys, owner)
            case "schedule":
                self.schedule(name, key, cron, data, owner)
            case "end":
                self.unschedule(name, owner)

    @precondition(lambda self: self.model.due("a") or self.model.due("b"))
    @rule(
        how=st.sampled_from(["one", "batch", "batch", "contested"]),
        name=names,
        limit=st.integers(1, 5),
        owner=owners,
    )
    def claim(self, how: str, name: str, limit: int, owner: str) -> None:
        """Claim due jobs."""
        if how == "one":
            self.claim_one(name, owner)
        else:
            self.claim_batch(owner, limit, has_rival=how == "contested")

    @precondition(lambda self: self.runs)
    @rule(
        how=st.sampled_from(["late", "late", "half", "one", "all"]),
        pick=picks,
        endings=st.lists(endings, min_size=3, max_size=3),
        is_reply_lost=st.booleans(),
    )
    def finish(self, how: str, pick: int, endings: list[str], is_reply_lost: bool) -> None:
        """End runs, some of which may have lost their claims long ago."""
        late = [run for run in self.runs if not self.model.holds(run)]
        last = self._on_their_last_run()
        match how:
            case "late" if late:
                self.settle(late[pick % len(late)], endings[0], is_reply_lost)
            case "half" if last:
                self.die_between_the_copy_and_the_move(last[pick % len(last)])
            case "all":
                self.settle_all_of(OWNERS[pick % 2], endings)
            case _:
                self.settle(self.runs[pick % len(self.runs)], endings[0], is_reply_lost)

    @rule(
        seconds=st.sampled_from([1, 30, 70, 100]),
        beating=st.sampled_from([[], [], ["one"], ["two"], OWNERS]),
        recovering=st.lists(owners, unique=True),
    )
    def pass_time(self, seconds: int, beating: list[str], recovering: list[str]) -> None:
        """Send heartbeats of some instances, advance time, and recover on some."""
        for owner in beating:
            self.heartbeat(owner)
        self.let_time_pass(seconds)
        for owner in recovering:
            self.recover(owner)

    @precondition(lambda self: self.runs)
    @rule(pick=picks, is_dead=st.booleans(), next_owner=owners)
    def fall_silent(self, pick: int, is_dead: bool, next_owner: str) -> None:
        """Kill an instance, or stall it without its knowledge until others have its jobs."""
        silent = self.runs[pick % len(self.runs)].owner
        if is_dead:
            self.runs = [run for run in self.runs if run.owner != silent]
        self.heartbeat(OWNERS[OWNERS.index(silent) - 1])
        self.let_time_pass(100)
        self.recover(next_owner)
        self.claim_batch(next_owner, 2, has_rival=False)

    @precondition(lambda self: self.model.jobs)
    @rule(
        action=st.sampled_from(["delete", "move", "retry", "retry", "cancel", "cancel"]),
        pick=picks,
        is_apt=st.sampled_from([False, True, True]),
        seconds=st.sampled_from([-70, 0, 30]),
        owner=owners,
    )
    def manage(self, action: str, pick: int, is_apt: bool, seconds: int, owner: str) -> None:
        """Change jobs from outside, mostly where this has an effect."""
        jobs = sorted(self.model.jobs.values(), key=lambda job: job.id)
        apt = [job for job in jobs if is_apt and job.status in APT[action]] or jobs
        job_id = apt[pick % len(apt)].id
        run_at = self.model.now + timedelta(seconds=seconds)
        match action:
            case "delete":
                self.delete(job_id, owner)
            case "move":
                self.move(job_id, run_at, owner)
            case "cancel":
                self.cancel(job_id, owner)
            case "retry":
                self.retry(job_id, owner)

    @precondition(lambda self: len(self.model.jobs) > 8)
    @rule()
    def see_everything_through(self) -> None:
        """Kill all instances, and complete every job: none is lost."""
        self.runs.clear()
        self.let_time_pass(100)
        self.recover("one")
        self.let_time_pass(100)
        while any(self.model.due(name) for name in NAMES):
            self.claim_batch("two", 1000, has_rival=False)
            self.settle_all_of("two", ["success"] * 3)
        for job in self.model.jobs.values():
            ends = {"pending"} if job.is_recurring else {"completed", "failed"}
            assert job.status in ends | {"cancelled"}

    def enqueue(self, name: str, priority: int, delay: int, owner: str) -> None:
        job = self._a_job(name, priority=priority, delay=delay)
        self.rig.run(self.rig.stores[owner].inserts.insert_alike([job], None))
        self.model.jobs[job.id] = job

    def enqueue_with_key(self, name: str, key: str, owner: str) -> None:
        job = self._a_job(name, unique_key=key)
        taken = self.model.active(name, key)
        result = self.rig.run(self.rig.stores[owner].inserts.insert_unique(job, None))
        assert result.deduplicated is (taken is not None)
        assert result == (taken or job)
        if taken is None:
            self.model.jobs[job.id] = job

    def enqueue_many_with_keys(self, name: str, wanted: list[str], owner: str) -> None:
        jobs = [self._a_job(name, unique_key=key) for key in wanted]
        results = self.rig.run(self.rig.stores[owner].inserts.insert_many_unique(jobs, None))
        for result, job in zip(results, jobs, strict=True):
            if not result.deduplicated:
                assert self.model.active(name, job.unique_key) is None
                self.model.jobs[job.id] = job
        assert results == [self.model.active(name, key) for key in wanted]

    def schedule(self, name: str, key: str, cron: str, data: str, owner: str) -> None:
        now = self.model.now
        wanted = a_schedule(
            name=name,
            unique_key=key,
            repeat_interval=cron,
            data=data,
            next_run_at=next_cron_run(cron, now),
            max_retries=1 if key == "y" else None,
            created_at=now,
            updated_at=now,
        )
        taken = self.model.active(name, key)
        result = self.rig.run(self.rig.stores[owner].schedules.put(wanted, None))
        if taken is None:
            self.model.jobs[wanted.id] = wanted
        else:
            self.model.reschedule(taken.id, wanted)
        assert result == self.model.active(name, key)

    def unschedule(self, name: str, owner: str) -> None:
        expected = self.model.unschedule(name)
        schedules = self.rig.stores[owner].schedules
        assert self.rig.run(schedules.remove(name, None, self.model.now)) == expected

    def cancel(self, job_id: ObjectId, owner: str) -> None:
        control = self.rig.stores[owner].management
        self._manage("cancel", job_id, control.cancel(job_id, self.model.now))
        if self.model.can("cancel", job_id):
            self.model.cancel(job_id)

    def retry(self, job_id: ObjectId, owner: str) -> None:
        control = self.rig.stores[owner].management
        self._manage("retry", job_id, control.retry(job_id, self.model.now))
        if self.model.can("retry", job_id):
            self.model.retry(job_id)

    def move(self, job_id: ObjectId, run_at: datetime, owner: str) -> None:
        control = self.rig.stores[owner].management
        work = control.reschedule(job_id, run_at, self.model.now)
        self._manage("reschedule", job_id, work)
        if self.model.can("reschedule", job_id):
            self.model.change(job_id, next_run_at=run_at)

    def delete(self, job_id: ObjectId, owner: str) -> None:
        control = self.rig.stores[owner].management
        assert self.rig.run(control.delete(job_id))
        assert not self.rig.run(control.delete(job_id))
        del self.model.jobs[job_id]

    def _manage(self, action: str, job_id: ObjectId, work: Coroutine[Any, Any, Any]) -> None:
        """Apply an action, and assert that it is executed or rejected as specified."""
        job = self.model.jobs[job_id]
        if self.model.can(action, job_id):
            assert self.rig.run(work).previous_status == job.status
        else:
            with pytest.raises(JobStateError) as caught:
                self.rig.run(work)
            assert (caught.value.current_status, caught.value.action) == (job.status, action)

    def claim_one(self, name: str, owner: str) -> None:
        due, token = self.model.due(name), ObjectId()
        queue = self.rig.stores[owner].queue
        job = self.rig.run(queue.claim_first(name, token, self.model.now))
        if not due:
            assert job is None
            return
        assert job.id in {one.id for one in due if rank(one) == rank(due[0])}
        self._began([job], owner, token)

    def claim_batch(self, owner: str, limit: int, has_rival: bool) -> None:
        """Look and claim; a rival that claims in between leaves nothing."""
        now, token, queue = self.model.now, ObjectId(), self.rig.stores[owner].queue
        due = sorted(self.model.due("a") + self.model.due("b"), key=rank)
        found = self.rig.run(queue.look(NAMES, limit, now))
        seen = [self.model.jobs[one.id] for one in found]
        assert [rank(job) for job in seen] == [rank(job) for job in due[:limit]]
        for candidate, job in zip(found, seen, strict=True):
            assert candidate.interrupted is (counted_claims(job) > job.fail_count)
        first = OWNERS[OWNERS.index(owner) - 1] if has_rival else owner
        claimed = self.rig.run(self.rig.stores[first].queue.claim_batch(found, token, now))
        assert {job.id for job in claimed} == {job.id for job in seen}
        self._began(claimed, first, token)
        assert self.rig.run(queue.claim_batch(found, ObjectId(), now)) == []

    def settle(self, run: Run, ending: str, is_reply_lost: bool) -> None:
        self.runs.remove(run)
        self._settle([(run, ending)])
        if is_reply_lost:
            self._settle_again(run, ending)

    def settle_all_of(self, owner: str, ending: list[str]) -> None:
        runs = [run for run in self.runs if run.owner == owner]
        self.runs = [run for run in self.runs if run.owner != owner]
        self._settle([(run, ending[n % 3]) for n, run in enumerate(runs)])

    def die_between_the_copy_and_the_move(self, run: Run) -> None:
        """Leave a failed occurrence behind, but not the claim on its schedule."""
        self.runs.remove(run)
        ledger = self.rig.dying_outcomes(run.owner)
        settlement = Settlement(run.job, self._outcome(run.job, "failure"))
        with pytest.raises(AutoReconnect):
            self.rig.run(ledger.settle([settlement], self.model.now))
        self._renewed(run.job.id)
        self.model.leave_behind(run.job.id, "boom")

    def heartbeat(self, owner: str) -> None:
        runs = [run for run in self.runs if run.owner == owner]
        if not runs:
            return
        ledger = self.rig.stores[owner].outcomes
        lost = self.rig.run(ledger.renew([run.job for run in runs], self.model.now))
        assert lost == {
            (run.job.id, run.job.claim_token): self._loss(run, "none")
            for run in runs
            if not self.model.holds(run)
        }
        for run in runs:
            if self.model.holds(run):
                self._renewed(run.job.id)
            else:
                self.runs.remove(run)

    def let_time_pass(self, seconds: int) -> None:
        self.model.now += timedelta(seconds=seconds)

    def recover(self, owner: str) -> None:
        """Recover the jobs of dead and stalled runs, as every instance does."""
        store, model = self.rig.stores[owner], self.model
        batch = self.rig.run(store.stale_jobs.find(model.now, 1000))
        assert {job.id for job in batch.jobs} == model.stale()
        assert all(job == model.jobs[job.id] for job in batch.jobs)
        spent = [job for job in batch.jobs if job.claims >= runs_of(job)]
        alive = [job for job in batch.jobs if job not in spent]
        for job in spent:
            adopted = self.rig.run(store.stale_jobs.adopt(batch, job, model.now))
            self.model.change(
                job.id,
                claimed_by=owner,
                claim_token=adopted.claim_token,
                locked_at=model.now,
                last_heartbeat=model.now,
            )
            assert adopted == model.jobs[job.id]
            outcome = after_exhaustion(adopted, "died", model.now)
            settlement = Settlement(adopted, outcome)
            assert self.rig.run(store.outcomes.settle([settlement], model.now)) == ["written"]
            model.give_up(job.id, "died")
        if alive:
            assert self.rig.run(store.stale_jobs.revive(batch, alive, model.now)) == len(alive)
        for job in alive:
            model.revive(job.id)

    @invariant()
    def the_collection_is_as_it_should_be(self) -> None:
        documents = self.rig.documents()
        by_id = {document["_id"]: to_job(document) for document in documents}
        copies = [job for job_id, job in by_id.items() if job_id not in self.model.jobs]
        assert {job_id: by_id.get(job_id) for job_id in self.model.jobs} == self.model.jobs
        assert sorted(map(_without_id, copies)) == sorted(
            map(_without_id, self.model.failed_occurrences.values())
        )
        for document in documents:
            _check_fields(document)
        active = [
            (document["name"], document["uniqueKey"])
            for document in documents
            if "uniqueKey" in document and document["status"] in {"pending", "processing"}
        ]
        assert len(active) == len(set(active))

    def _a_job(self, name: str, *, delay: int = 0, **fields: Any) -> AnyJob:
        now = self.model.now
        return a_job(
            name=name,
            data=str(ObjectId()),
            next_run_at=now + timedelta(seconds=delay),
            created_at=now,
            updated_at=now,
            **fields,
        )

    def _began(self, jobs: list[AnyJob], owner: str, token: ObjectId) -> None:
        for job in jobs:
            assert job == self.model.claim(job.id, owner, token)
            self.runs.append(Run(owner, job))

    def _on_their_last_run(self) -> list[Run]:
        return [
            run
            for run in self.runs
            if self.model.holds(run)
            and _schedule(run.job) == _schedule(self.model.jobs[run.job.id])
            and isinstance(self._outcome(run.job, "failure"), OccurrenceFailed)
        ]

    def _renewed(self, job_id: ObjectId) -> None:
        self.model.change(job_id, last_heartbeat=self.model.now, locked_at=self.model.now)

    def _outcome(self, job: AnyJob, ending: str) -> Outcome:
        if ending == "release":
            return RELEASED
        if ending == "success":
            return after_success(job, self.model.now)
        return after_failure(job, "boom", self.model.now, RETRY)

    def _settle(self, ended: list[tuple[Run, str]]) -> None:
        """Write outcomes like the settler, until each is written or its claim is lost."""
        while ended:
            owner = ended[0][0].owner
            settlements = [
                Settlement(run.job, self._outcome(run.job, ending)) for run, ending in ended
            ]
            ledger = self.rig.stores[owner].outcomes
            verdicts = self.rig.run(ledger.settle(settlements, self.model.now))
            ended = [
                (run, ending)
                for (run, ending), verdict in zip(ended, verdicts, strict=True)
                if not self._is_closed(run, ending, verdict)
            ]

    def _is_closed(self, run: Run, ending: str, verdict: Verdict) -> bool:
        if not self.model.holds(run):
            assert verdict == self._loss(run, ending)
            return True
        schedule = _schedule(self.model.jobs[run.job.id])
        is_final = not isinstance(self._outcome(run.job, ending), Released | Retrying)
        if is_final and schedule != _schedule(run.job):
            assert verdict == Rescheduled(*schedule)
            run.job = replace(run.job, repeat_interval=schedule[0], timezone=schedule[1])
            return False
        assert verdict == "written"
        self._end(run, ending)
        return True

    def _end(self, run: Run, ending: str) -> None:
        if ending == "release":
            self.model.release(run.job.id)
        elif ending == "failure":
            self.model.fail(run.job.id, "boom")
        else:
            self.model.succeed(run.job.id)

    def _settle_again(self, run: Run, ending: str) -> None:
        """Repeat a write whose reply was lost: it is recognized, and nothing changes."""
        stored = self.model.jobs.get(run.job.id)
        is_mine = stored is not None and stored.claim_token == run.job.claim_token
        settlement = Settlement(run.job, self._outcome(run.job, ending))
        ledger = self.rig.stores[run.owner].outcomes
        verdicts = self.rig.run(ledger.settle([settlement], self.model.now))
        assert verdicts == ["written" if is_mine else self._loss(run, ending)]

    def _loss(self, run: Run, ending: str) -> str:
        job = self.model.jobs.get(run.job.id)
        if job is None:
            return "deleted"
        if ending == "release" and job.claim_token and job.claims == run.job.claims:
            # Failed by recovery: the counts equal those of a release that was written and followed
            # by another claim. Nothing depends on which of the two it was.
            return "written"
        return "lost"


def _check_fields(document: dict[str, Any]) -> None:
    assert None not in document.values()
    claimed = CLAIM_FIELDS & document.keys()
    assert claimed == (CLAIM_FIELDS if document["status"] == "processing" else set())
    assert document["failCount"] >= 0
    assert document.get("claims", 0) >= 0


def _schedule(job: AnyJob) -> tuple[str | None, str | None]:
    return job.repeat_interval, job.timezone


def _without_id(job: AnyJob) -> str:
    return repr(replace(job, id=ObjectId(b"\0" * 12)))


@pytest.mark.timeout(600)  # Shrinking a failure takes minutes.
def test_two_instances_keep_the_jobs_as_specified(uri: str, database_name: str) -> None:
    TwoInstances.rig = Rig(uri, database_name)
    try:
        run_state_machine_as_test(
            TwoInstances,
            settings=settings(max_examples=20, stateful_step_count=40),
        )
    finally:
        TwoInstances.rig.close()
