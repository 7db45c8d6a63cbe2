"""Renewing claims, and writing the outcomes of runs."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from bson import ObjectId
from pymongo import AsyncMongoClient
from pymongo.errors import AutoReconnect

from monque_core.jobs.outcome import (
    COMPLETED,
    RELEASED,
    Advanced,
    Failed,
    OccurrenceFailed,
    Outcome,
    Retrying,
    settled,
)
from monque_core.store.driver import Collection, Driver
from monque_core.store.outcomes import Outcomes, Rescheduled, Settlement
from monque_core.store.queue import JobCandidate
from monque_core.store.transitions import Owner
from tests.support.commands import CommandLog
from tests.support.samples import NOW, a_job, a_schedule
from tests.support.stored import jobs_in, stored, stored_jobs
from tests.support.stores import claim, document_of, open_store, put, set_fields

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.jobs.job import AnyJob
    from monque_core.store.store import Store

    Db = AsyncDatabase[dict[str, Any]]

LATER = NOW + timedelta(seconds=10)
MUCH_LATER = NOW + timedelta(minutes=10)
TICK = NOW + timedelta(hours=1)
NODE_RECOVERY = {
    "$set": {"status": "pending", "updatedAt": LATER},
    "$unset": {"claimedBy": "", "lockedAt": "", "lastHeartbeat": "", "heartbeatInterval": ""},
}
"""What an instance that ignores tokens does to a job that it treats as stale."""

OUTCOMES: dict[str, Outcome] = {
    "completed": COMPLETED,
    "released": RELEASED,
    "retrying": Retrying("boom", TICK),
    "failed": Failed("boom"),
    "advanced": Advanced(TICK),
    "occurrence failed": OccurrenceFailed("boom", TICK),
}


@pytest.fixture(params=OUTCOMES)
def outcome(request: pytest.FixtureRequest) -> Outcome:
    """Return each way in which a run can end."""
    return OUTCOMES[request.param]


async def a_claimed_schedule(db: Db, store: Store, **fields: Any) -> AnyJob:
    await put(db, a_schedule(**({"fail_count": 1, "claims": 1, "fail_reason": "before"} | fields)))
    return await claim(store)


async def a_claimed_job(db: Db, store: Store, outcome: Outcome) -> AnyJob:
    """Claim a job that can end this way: only one-off jobs complete, so the others recur."""
    if outcome is COMPLETED:
        return await a_claimed_schedule(db, store, repeat_interval=None, timezone=None)
    return await a_claimed_schedule(db, store)


class TestRenewal:
    async def test_keeps_claims_alive(self, db: Db, store: Store) -> None:
        await put(db, a_job(), a_job())
        jobs = [await claim(store), await claim(store)]
        before = [await document_of(db, job) for job in jobs]
        assert await store.outcomes.renew(jobs, LATER) == {}
        renewed = {"lastHeartbeat": LATER, "lockedAt": LATER, "updatedAt": LATER}
        assert [await document_of(db, job) for job in jobs] == [one | renewed for one in before]

    async def test_takes_one_command(self, db: Db, uri: str) -> None:
        log = CommandLog()
        async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
            store = await open_store(client[db.name])
            await put(db, *(a_job() for _ in range(20)))
            jobs = [await claim(store) for _ in range(20)]
            log.sent.clear()
            await store.outcomes.renew(jobs, LATER)
            assert log.count() == {"update": 1}

    async def test_reports_lost_claims(self, db: Db, store: Store, other: Store) -> None:
        names = ["kept", "stolen", "settled", "deleted", "reclaimed"]
        await put(db, *(a_job(name=name) for name in names))
        jobs = {name: await claim(store, name) for name in names}
        await set_fields(db, jobs["stolen"], claimedBy="other", claimToken=ObjectId())
        await set_fields(db, jobs["settled"], status="completed")
        await jobs_in(db).delete_one({"_id": jobs["deleted"].id})
        await set_fields(db, jobs["reclaimed"], claimToken=ObjectId())
        stolen = await document_of(db, jobs["stolen"])
        reclaimed = await document_of(db, jobs["reclaimed"])

        lost = await store.outcomes.renew(list(jobs.values()), LATER)

        assert lost == {
            (jobs[name].id, jobs[name].claim_token): "deleted" if name == "deleted" else "lost"
            for name in names[1:]
        }
        assert await document_of(db, jobs["stolen"]) == stolen
        assert await document_of(db, jobs["reclaimed"]) == reclaimed
        assert (await document_of(db, jobs["kept"]))["lastHeartbeat"] == LATER

    async def test_distinguishes_an_older_run_from_the_current_one(
        self, db: Db, store: Store
    ) -> None:
        await put(db, a_job())
        older = await claim(store)
        await jobs_in(db).update_one({"_id": older.id}, NODE_RECOVERY)
        newer = await claim(store, now=LATER)
        lost = await store.outcomes.renew([older, newer], LATER)
        assert lost == {(older.id, older.claim_token): "lost"}


class TestOutcome:
    async def test_is_stored_as_it_is_announced(
        self, db: Db, store: Store, outcome: Outcome
    ) -> None:
        job = await a_claimed_job(db, store, outcome)
        assert await store.outcomes.settle([Settlement(job, outcome)], LATER) == ["written"]
        assert await stored(db, job) == settled(job, outcome, LATER)
        assert (await document_of(db, job))["claimToken"] == job.claim_token

    async def test_success_completes(self, db: Db, store: Store) -> None:
        await put(db, a_job(fail_count=2, claims=2, fail_reason="before"))
        job = await claim(store)
        await store.outcomes.settle([Settlement(job, COMPLETED)], LATER)
        document = await document_of(db, job)
        assert document["status"] == "completed"
        assert document["failCount"] == 2
        assert "failReason" not in document

    async def test_failure_counts_and_gives_its_reason(self, db: Db, store: Store) -> None:
        await put(db, a_job(fail_count=2, claims=2, fail_reason="before"))
        job = await claim(store)
        await store.outcomes.settle([Settlement(job, Retrying("boom", TICK))], LATER)
        document = await document_of(db, job)
        assert document["status"] == "pending"
        assert (document["failCount"], document["failReason"]) == (3, "boom")
        assert document["nextRunAt"] == TICK

    async def test_success_of_a_recurring_job_begins_its_counts_anew(
        self, db: Db, store: Store
    ) -> None:
        job = await a_claimed_schedule(db, store, fail_count=3, claims=3)
        await store.outcomes.settle([Settlement(job, Advanced(TICK))], LATER)
        document = await document_of(db, job)
        assert (document["status"], document["nextRunAt"]) == ("pending", TICK)
        assert (document["failCount"], document["claims"]) == (0, 0)
        assert "failReason" not in document
        assert document["uniqueKey"] == "hourly"

    async def test_release_takes_its_claim_off_the_count(self, db: Db, store: Store) -> None:
        job = a_job(claims=3, fail_count=3, fail_reason="before")
        await put(db, job)
        before = await document_of(db, job)
        claimed = await claim(store)
        assert claimed.claims == 4
        await store.outcomes.settle([Settlement(claimed, RELEASED)], LATER)
        after = await document_of(db, job)
        assert after.pop("claimToken") == claimed.claim_token
        assert after == before | {"updatedAt": LATER, "claimedAt": claimed.claimed_at}

    async def test_of_a_released_job_can_be_claimed_by_anyone(
        self, db: Db, store: Store, other: Store
    ) -> None:
        await put(db, a_job())
        await store.outcomes.settle([Settlement(await claim(store), RELEASED)], LATER)
        assert (await claim(other)).claims == 1

    async def test_frees_the_unique_key(self, db: Db, store: Store) -> None:
        await put(db, a_job(unique_key="key"))
        job = await claim(store)
        await store.outcomes.settle([Settlement(job, COMPLETED)], LATER)
        again = await store.inserts.insert_unique(a_job(unique_key="key"), None)
        assert not again.deduplicated


class TestGroup:
    async def test_is_written_in_one_round_trip(self, db: Db, uri: str) -> None:
        log = CommandLog()
        async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
            store = await open_store(client[db.name])
            await put(db, *(a_job() for _ in range(30)))
            jobs = [await claim(store) for _ in range(30)]
            outcomes: list[Outcome] = [COMPLETED, RELEASED, Retrying("boom", TICK), Failed("boom")]
            group = [Settlement(job, outcomes[n % 4]) for n, job in enumerate(jobs)]
            log.sent.clear()
            assert await store.outcomes.settle(group, LATER) == ["written"] * 30
            assert log.count() == {"update": 1}
        for settlement in group:
            expected = settled(settlement.job, settlement.outcome, LATER)
            assert await stored(db, settlement.job) == expected

    async def test_gives_its_verdicts_in_order(self, db: Db, store: Store) -> None:
        await put(db, *(a_job() for _ in range(6)), a_schedule(name="report"))
        jobs = [await claim(store) for _ in range(6)]
        recurring = await claim(store, "report")
        for job in jobs[::2]:
            await set_fields(db, job, claimToken=ObjectId())
        group = [Settlement(job, COMPLETED) for job in jobs]
        group.insert(3, Settlement(recurring, OccurrenceFailed("boom", TICK)))
        verdicts = await store.outcomes.settle(group, LATER)
        assert verdicts == ["lost", "written", "lost", "written", "written", "lost", "written"]

    async def test_of_nothing_is_nothing(self, store: Store) -> None:
        assert await store.outcomes.settle([], LATER) == []

    @pytest.mark.parametrize("outcome", [COMPLETED, RELEASED, Retrying("boom", TICK)])
    async def test_never_lets_one_claim_settle_for_another(
        self, db: Db, store: Store, outcome: Outcome
    ) -> None:
        """A filter with a set of ids and a set of tokens would match here."""
        await put(db, a_job(name="a"), a_job(name="b"))
        old = await claim(store, "a")
        await jobs_in(db).update_one({"_id": old.id}, NODE_RECOVERY)
        token = ObjectId()
        batch = [JobCandidate(old.id, "a")]
        batch += [JobCandidate(job.id, "b") for job in await stored_jobs(db, name="b")]
        new, b = await store.queue.claim_batch(batch, token, LATER)
        assert (new.id, getattr(new, "claim_token", None)) == (old.id, token)
        before = await document_of(db, old)

        group = [Settlement(old, outcome), Settlement(b, outcome)]  # type: ignore[arg-type]  # readable, as all here
        assert await store.outcomes.settle(group, LATER) == ["lost", "written"]
        assert await document_of(db, old) == before


class TestLostClaim:
    async def test_to_another_instance_writes_nothing(
        self, db: Db, store: Store, other: Store, outcome: Outcome
    ) -> None:
        job = await a_claimed_job(db, store, outcome)
        batch = await other.stale_jobs.find(MUCH_LATER, 10)
        assert await other.stale_jobs.revive(batch, batch.jobs, MUCH_LATER) == 1
        await claim(other, now=MUCH_LATER)
        before = await stored_jobs(db)
        assert await store.outcomes.settle([Settlement(job, outcome)], MUCH_LATER) == ["lost"]
        assert await stored_jobs(db) == before

    async def test_to_the_same_instance_writes_nothing(
        self, db: Db, store: Store, outcome: Outcome
    ) -> None:
        job = await a_claimed_job(db, store, outcome)
        batch = await store.stale_jobs.find(MUCH_LATER, 10)
        assert await store.stale_jobs.revive(batch, batch.jobs, MUCH_LATER) == 1
        newer = await claim(store, now=MUCH_LATER)
        assert (newer.id, newer.claimed_by) == (job.id, job.claimed_by)
        before = await stored_jobs(db)
        assert await store.outcomes.settle([Settlement(job, outcome)], MUCH_LATER) == ["lost"]
        assert await stored_jobs(db) == before

    async def test_to_the_same_instance_that_is_done_with_it_writes_nothing(
        self, db: Db, store: Store, outcome: Outcome
    ) -> None:
        job = await a_claimed_job(db, store, outcome)
        batch = await store.stale_jobs.find(MUCH_LATER, 10)
        await store.stale_jobs.revive(batch, batch.jobs, MUCH_LATER)
        newer = await claim(store, now=MUCH_LATER)
        await store.outcomes.settle([Settlement(newer, Advanced(TICK))], MUCH_LATER)
        before = await stored_jobs(db)
        assert await store.outcomes.settle([Settlement(job, outcome)], MUCH_LATER) == ["lost"]
        assert await stored_jobs(db) == before

    async def test_to_recovery_writes_nothing(
        self, db: Db, store: Store, other: Store, outcome: Outcome
    ) -> None:
        job = await a_claimed_job(db, store, outcome)
        batch = await other.stale_jobs.find(MUCH_LATER, 10)
        await other.stale_jobs.revive(batch, batch.jobs, MUCH_LATER)
        before = await stored_jobs(db)
        assert await store.outcomes.settle([Settlement(job, outcome)], MUCH_LATER) == ["lost"]
        assert await stored_jobs(db) == before

    async def test_of_a_deleted_job_writes_nothing(
        self, db: Db, store: Store, outcome: Outcome
    ) -> None:
        job = await a_claimed_job(db, store, outcome)
        await jobs_in(db).delete_one({"_id": job.id})
        assert await store.outcomes.settle([Settlement(job, outcome)], LATER) == ["deleted"]
        assert await stored_jobs(db) == []

    @pytest.mark.parametrize(
        "outcome", [one for name, one in OUTCOMES.items() if name != "released"]
    )
    async def test_to_a_recovery_that_leaves_the_token_behind_writes_nothing(
        self, db: Db, store: Store, outcome: Outcome
    ) -> None:
        job = await a_claimed_job(db, store, outcome)
        await jobs_in(db).update_one({"_id": job.id}, NODE_RECOVERY)
        before = await document_of(db, job)
        assert before["claimToken"] == job.claim_token
        assert await store.outcomes.settle([Settlement(job, outcome)], LATER) == ["lost"]
        assert await document_of(db, job) == before
        assert len(await stored_jobs(db)) == 1

    async def test_to_an_instance_that_leaves_the_token_behind_writes_nothing(
        self, db: Db, store: Store, outcome: Outcome
    ) -> None:
        job = await a_claimed_job(db, store, outcome)
        await set_fields(db, job, claimedBy="node", lockedAt=LATER, lastHeartbeat=LATER)
        before = await document_of(db, job)
        assert await store.outcomes.settle([Settlement(job, outcome)], LATER) == ["lost"]
        assert await document_of(db, job) == before
        assert len(await stored_jobs(db)) == 1


class TestLostReply:
    async def test_is_told_from_a_lost_claim(self, db: Db, store: Store, outcome: Outcome) -> None:
        job = await a_claimed_job(db, store, outcome)
        assert await store.outcomes.settle([Settlement(job, outcome)], LATER) == ["written"]
        before = await stored_jobs(db)
        assert await store.outcomes.settle([Settlement(job, outcome)], MUCH_LATER) == ["written"]
        assert await stored_jobs(db) == before

    @pytest.mark.parametrize("outcome", [RELEASED, Retrying("boom", LATER)], ids=str)
    @pytest.mark.parametrize("later", [None, Retrying("again", MUCH_LATER), COMPLETED], ids=str)
    async def test_is_told_from_a_lost_claim_though_another_has_the_job_by_now(
        self, db: Db, store: Store, other: Store, outcome: Outcome, later: Outcome | None
    ) -> None:
        await put(db, a_job())
        job = await claim(store)
        assert await store.outcomes.settle([Settlement(job, outcome)], LATER) == ["written"]
        newer = await claim(other, now=MUCH_LATER)
        assert newer.id == job.id
        if later is not None:
            await other.outcomes.settle([Settlement(newer, later)], MUCH_LATER)
        before = await document_of(db, job)
        assert await store.outcomes.settle([Settlement(job, outcome)], MUCH_LATER) == ["written"]
        assert await document_of(db, job) == before

    @pytest.mark.parametrize("outcome", [Failed("boom"), Retrying("boom", TICK)])
    @pytest.mark.parametrize(
        "by_node",
        [
            {"status": "completed"},
            {"status": "pending", "nextRunAt": LATER},
        ],
        ids=["completed", "moved"],
    )
    async def test_of_a_failure_after_which_the_job_ended_elsewhere_is_lost(
        self, db: Db, store: Store, outcome: Outcome, by_node: dict[str, Any]
    ) -> None:
        await put(db, a_job())
        job = await claim(store)
        await jobs_in(db).update_one({"_id": job.id}, NODE_RECOVERY | {"$set": by_node})
        before = await document_of(db, job)
        assert await store.outcomes.settle([Settlement(job, outcome)], LATER) == ["lost"]
        assert await document_of(db, job) == before

    async def test_of_a_group_is_told_job_by_job(self, db: Db, store: Store, other: Store) -> None:
        await put(db, *(a_job() for _ in range(4)))
        jobs = [await claim(store) for _ in range(4)]
        await store.outcomes.settle([Settlement(job, COMPLETED) for job in jobs[:2]], LATER)
        await set_fields(db, jobs[3], claimedBy="other", claimToken=ObjectId())
        verdicts = await store.outcomes.settle([Settlement(job, COMPLETED) for job in jobs], LATER)
        assert verdicts == ["written", "written", "written", "lost"]


class TestRecurringJob:
    @pytest.mark.parametrize(
        ("stored_now", "verdict"),
        [
            ({"repeatInterval": "@daily"}, Rescheduled("@daily", "UTC")),
            ({"timezone": "Europe/Berlin"}, Rescheduled("0 * * * *", "Europe/Berlin")),
        ],
    )
    @pytest.mark.parametrize("outcome", [Advanced(TICK), OccurrenceFailed("boom", TICK)])
    async def test_goes_on_by_the_schedule_as_it_is_stored_then(
        self,
        db: Db,
        store: Store,
        outcome: Outcome,
        stored_now: dict[str, str],
        verdict: Rescheduled,
    ) -> None:
        job = await a_claimed_job(db, store, outcome)
        await set_fields(db, job, **stored_now)
        assert await store.outcomes.settle([Settlement(job, outcome)], LATER) == [verdict]
        assert (await stored(db, job)).status == "processing"

    async def test_that_was_unscheduled_meanwhile_is_no_longer_one(
        self, db: Db, store: Store, other: Store
    ) -> None:
        job = await a_claimed_schedule(db, store)
        assert await other.schedules.remove("send-email", None, LATER) == 1
        verdicts = await store.outcomes.settle([Settlement(job, Advanced(TICK))], LATER)
        assert verdicts == [Rescheduled(None, None)]

    @pytest.mark.parametrize("outcome", [COMPLETED, Failed("boom")])
    async def test_that_became_one_while_it_ran_goes_on_as_one(
        self, db: Db, store: Store, outcome: Outcome
    ) -> None:
        await put(db, a_job(unique_key="hourly"))
        job = await claim(store)
        await store.schedules.put(a_schedule(), None)
        verdicts = await store.outcomes.settle([Settlement(job, outcome)], LATER)
        assert verdicts == [Rescheduled("0 * * * *", "UTC")]
        assert (await stored(db, job)).status == "processing"

    async def test_leaves_a_failed_occurrence_behind(self, db: Db, store: Store) -> None:
        job = await a_claimed_schedule(
            db,
            store,
            fail_count=2,
            claims=2,
            data={"for": "ada"},
            priority=4,
            max_retries=3,
            timeout=timedelta(seconds=7),
        )
        await store.outcomes.settle([Settlement(job, OccurrenceFailed("boom", TICK))], LATER)
        (copy,) = await stored_jobs(db, status="failed")
        assert copy.id != job.id
        assert (copy.name, copy.data, copy.fail_reason) == ("send-email", {"for": "ada"}, "boom")
        assert (copy.fail_count, copy.next_run_at) == (3, job.next_run_at)
        assert (copy.priority, copy.max_retries) == (4, 3)
        assert copy.timeout == timedelta(seconds=7)
        document = await document_of(db, copy)
        assert not {"repeatInterval", "uniqueKey", "claimedBy"} & document.keys()
        assert copy.claim_token == job.claim_token

        schedule = await stored(db, job)
        assert (schedule.status, schedule.next_run_at) == ("pending", TICK)
        assert (schedule.fail_count, schedule.claims) == (0, 0)
        assert (schedule.repeat_interval, schedule.unique_key) == ("0 * * * *", "hourly")

    async def test_leaves_each_failed_occurrence_behind(self, db: Db, store: Store) -> None:
        await put(db, a_schedule())
        for n in range(3):
            job = await claim(store, now=NOW + n * timedelta(hours=1))
            tick = NOW + (n + 1) * timedelta(hours=1)
            await store.outcomes.settle([Settlement(job, OccurrenceFailed("boom", tick))], LATER)
        assert len(await stored_jobs(db, status="failed")) == 3


class DiesBeforeTheMove(Collection):
    """Inserts the copy, and then never sends the bulk write."""

    async def bulk_write(self, *_: object, **__: object) -> tuple[int, dict[int, Any]]:
        raise AutoReconnect("the process died here")


class RescheduledMeanwhile(Collection):
    """Inserts the copy, after which another client changes the schedule before it is moved."""

    change: dict[str, Any]

    async def insert_one(self, *arguments: Any, **options: Any) -> None:
        await super().insert_one(*arguments, **options)
        assert await self.update_one({"status": "processing"}, self.change) == 1


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"$set": {"repeatInterval": "@daily"}}, Rescheduled("@daily", "UTC")),
        ({"$unset": {"repeatInterval": "", "timezone": ""}}, Rescheduled(None, None)),
    ],
)
async def test_a_schedule_that_changes_between_copy_and_move_leaves_nothing_behind_yet(
    db: Db, store: Store, change: dict[str, Any], verdict: Rescheduled
) -> None:
    job = await a_claimed_schedule(db, store)
    collection = RescheduledMeanwhile(Driver(db), "monque_jobs")
    collection.change = change
    ledger = Outcomes(collection, Owner("me", 30_000))
    settlement = Settlement(job, OccurrenceFailed("boom", TICK))
    assert await ledger.settle([settlement], LATER) == [verdict]
    assert [(one.id, one.status) for one in await stored_jobs(db)] == [(job.id, "processing")]


@pytest.mark.parametrize("moved", [False, True], ids=["still there", "moved on"])
async def test_a_schedule_whose_claim_is_lost_between_copy_and_move_is_left_alone(
    db: Db, store: Store, moved: bool
) -> None:
    job = await a_claimed_schedule(db, store)
    collection = RescheduledMeanwhile(Driver(db), "monque_jobs")
    collection.change = {"$set": {"claimToken": ObjectId(), "claimedBy": "another"}}
    if moved:
        # It may be this very move, whose reply was lost, so the copy has to stay.
        collection.change["$set"]["nextRunAt"] = TICK
    ledger = Outcomes(collection, Owner("me", 30_000))
    assert await ledger.settle([Settlement(job, OccurrenceFailed("boom", TICK))], LATER) == ["lost"]
    assert len(await stored_jobs(db, status="failed")) == int(moved)


async def test_a_run_that_is_lost_between_copy_and_move_takes_back_no_copy_but_its_own(
    db: Db, store: Store
) -> None:
    job = await a_claimed_schedule(db, store)

    class FailedElsewhereMeanwhile(RescheduledMeanwhile):
        async def insert_one(self, *arguments: Any, **options: Any) -> None:
            await super().insert_one(*arguments, **options)
            taken = {"claimToken": ObjectId(), "status": "failed"}
            assert await self.update_one({"_id": arguments[0]["_id"]}, {"$set": taken}) == 1

    collection = FailedElsewhereMeanwhile(Driver(db), "monque_jobs")
    collection.change = {"$set": {"claimToken": ObjectId(), "claimedBy": "another"}}
    ledger = Outcomes(collection, Owner("me", 30_000))
    assert await ledger.settle([Settlement(job, OccurrenceFailed("boom", TICK))], LATER) == ["lost"]
    assert len(await stored_jobs(db, status="failed")) == 1


class TakenBackMeanwhile(Collection):
    """Finds the copy of a former run, which removes it at that moment."""

    async def update_one(self, filter: Any, update: Any, **options: Any) -> int:
        if filter.get("status") == "failed":
            await self.delete_many({"status": "failed"})
        return await super().update_one(filter, update, **options)


async def test_a_copy_that_is_taken_back_by_a_former_run_is_left_behind_again(
    db: Db, store: Store
) -> None:
    job = await a_claimed_schedule(db, store)
    ledger = Outcomes(DiesBeforeTheMove(Driver(db), "monque_jobs"), Owner("me", 30_000))
    settlement = Settlement(job, OccurrenceFailed("boom", TICK))
    with pytest.raises(AutoReconnect):
        await ledger.settle([settlement], LATER)
    ledger = Outcomes(TakenBackMeanwhile(Driver(db), "monque_jobs"), Owner("me", 30_000))
    assert await ledger.settle([settlement], LATER) == ["written"]
    assert len(await stored_jobs(db, status="failed")) == 1


async def test_a_copy_that_an_operator_has_retried_meanwhile_is_left_alone(
    db: Db, store: Store
) -> None:
    job = await a_claimed_schedule(db, store)
    ledger = Outcomes(DiesBeforeTheMove(Driver(db), "monque_jobs"), Owner("me", 30_000))
    settlement = Settlement(job, OccurrenceFailed("boom", TICK))
    with pytest.raises(AutoReconnect):
        await ledger.settle([settlement], LATER)
    (copy,) = await stored_jobs(db, status="failed")
    await set_fields(db, copy, status="processing", claimedBy="another", claimToken=ObjectId())
    retried = await document_of(db, copy)
    assert await store.outcomes.settle([settlement], LATER) == ["written"]
    assert await document_of(db, copy) == retried


class TestCrashBetweenCopyAndMove:
    @pytest.fixture
    async def interrupted(self, db: Db, store: Store) -> AnyJob:
        """Return a schedule whose failed occurrence is stored, but which has not moved."""
        job = await a_claimed_schedule(db, store)
        ledger = Outcomes(DiesBeforeTheMove(Driver(db), "monque_jobs"), Owner("me", 30_000))
        with pytest.raises(AutoReconnect):
            await ledger.settle([Settlement(job, OccurrenceFailed("boom", TICK))], LATER)
        assert len(await stored_jobs(db, status="failed")) == 1
        assert (await stored(db, job)).status == "processing"
        return job

    async def test_loses_and_duplicates_nothing_when_it_is_repeated(
        self, db: Db, store: Store, interrupted: AnyJob
    ) -> None:
        settlement = Settlement(interrupted, OccurrenceFailed("boom", TICK))
        assert await store.outcomes.settle([settlement], LATER) == ["written"]
        assert len(await stored_jobs(db, status="failed")) == 1
        assert (await stored(db, interrupted)).next_run_at == TICK

    async def test_loses_and_duplicates_nothing_when_another_instance_takes_over(
        self, db: Db, other: Store, interrupted: AnyJob
    ) -> None:
        batch = await other.stale_jobs.find(MUCH_LATER, 10)
        adopted = await other.stale_jobs.adopt(batch, batch.jobs[0], MUCH_LATER)
        assert adopted is not None
        settlement = Settlement(adopted, OccurrenceFailed("it died", TICK))
        assert await other.outcomes.settle([settlement], MUCH_LATER) == ["written"]
        (copy,) = await stored_jobs(db, status="failed")
        assert copy.fail_reason == "boom"
        assert (await stored(db, interrupted)).next_run_at == TICK

    async def test_loses_and_duplicates_nothing_when_it_runs_again_elsewhere(
        self, db: Db, other: Store, interrupted: AnyJob
    ) -> None:
        batch = await other.stale_jobs.find(MUCH_LATER, 10)
        await other.stale_jobs.revive(batch, batch.jobs, MUCH_LATER)
        again = await claim(other, now=MUCH_LATER)
        settlement = Settlement(again, OccurrenceFailed("again", TICK))
        assert await other.outcomes.settle([settlement], MUCH_LATER) == ["written"]
        (copy,) = await stored_jobs(db, status="failed")
        assert copy.claim_token == again.claim_token
        assert (await stored(db, interrupted)).next_run_at == TICK
