"""Recurring jobs: stored once, changed in place, removed."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from bson.codec_options import CodecOptions

from monque_core.jobs.draft import Limits, draft_schedule
from monque_core.jobs.job import JobStatus
from monque_core.jobs.outcome import Advanced
from monque_core.store.outcomes import Settlement
from tests.support.payloads import ONE_OF_EACH
from tests.support.samples import NOW, a_job, a_schedule
from tests.support.stored import stored, stored_jobs
from tests.support.stores import claim, document_of, open_store, put, set_fields

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.jobs.job import AnyJob
    from monque_core.store.store import Store

    Db = AsyncDatabase[dict[str, Any]]

LIMITS = Limits(CodecOptions(tz_aware=True, tzinfo=UTC), None)
LATER = NOW + timedelta(minutes=10)


def wanted(
    cron: str = "0 * * * *", data: object = None, *, now: datetime = NOW, **fields: Any
) -> AnyJob:
    return draft_schedule(cron, "report", data, now=now, limits=LIMITS, **fields)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


class TestWithoutAKey:
    async def test_the_same_schedule_is_one_however_often_it_is_asked_for(
        self, db: Db, store: Store, other: Store
    ) -> None:
        first = await store.schedules.put(wanted(data={"a": 1, "b": {"c": 2, "d": 3}}), None)
        again = await other.schedules.put(
            wanted(data={"b": {"d": 3, "c": 2}, "a": 1}, now=LATER), None
        )
        assert not first.deduplicated
        assert again.deduplicated
        assert again == first
        assert await stored_jobs(db) == [first]

    async def test_replicas_that_start_at_once_make_one(
        self, db: Db, store: Store, other: Store
    ) -> None:
        results = await asyncio.gather(
            *(
                owner.schedules.put(wanted(data={"a": 1}), None)
                for _ in range(20)
                for owner in (store, other)
            )
        )
        (job,) = await stored_jobs(db)
        assert {result.id for result in results} == {job.id}
        assert [result.deduplicated for result in results].count(False) == 1

    async def test_whatever_differs_is_another_schedule(self, db: Db, store: Store) -> None:
        for job in (
            wanted(),
            wanted("@daily"),
            wanted(timezone="Europe/Berlin"),
            wanted(data=1),
            draft_schedule("0 * * * *", "other-report", None, now=NOW, limits=LIMITS),
        ):
            assert not (await store.schedules.put(job, None)).deduplicated
        assert len(await stored_jobs(db)) == 5

    async def test_every_type_of_data_is_recognized_as_the_same(self, db: Db, store: Store) -> None:
        for kind, data in ONE_OF_EACH.items():
            first = await store.schedules.put(wanted(data=data), None)
            before = await document_of(db, first)
            again = await store.schedules.put(wanted(data=data, now=LATER), None)
            assert again.deduplicated, kind
            assert await document_of(db, first) == before, kind


class TestMovedByNode:
    """Node ignores the time zone, and leaves its heartbeat interval behind."""

    ENDED = utc("2026-05-05 03:00:05")
    """The time at which Node's run ended; the schedule is 6:00 in Helsinki."""
    BY_NODE: ClassVar[dict[str, Any]] = {
        "nextRunAt": utc("2026-05-05 06:00"),
        "updatedAt": ENDED,
        "heartbeatInterval": 30_000,
        "claims": 2,
    }

    def _wanted(self, now: datetime = LATER) -> AnyJob:
        return wanted("0 6 * * *", unique_key="daily", timezone="Europe/Helsinki", now=now)

    async def test_is_put_back_to_the_tick_after_its_last_run(self, db: Db, store: Store) -> None:
        first = await store.schedules.put(self._wanted(), None)
        await set_fields(db, first, **self.BY_NODE)

        repaired = await store.schedules.put(self._wanted(), None)
        assert repaired == await stored(db, first)
        assert repaired.next_run_at == utc("2026-05-06 03:00")
        assert (repaired.updated_at, repaired.claims) == (self.ENDED, 0)

    async def test_still_makes_up_for_a_tick_that_was_missed(self, db: Db, store: Store) -> None:
        first = await store.schedules.put(self._wanted(), None)
        await set_fields(db, first, **self.BY_NODE)
        days_later = self._wanted(now=utc("2026-05-09 12:00"))
        for _ in range(2):
            repaired = await store.schedules.put(days_later, None)
            assert repaired.next_run_at == utc("2026-05-06 03:00")

    @pytest.mark.parametrize(
        "fields",
        [
            {"heartbeatInterval": None},
            {"failCount": 1},
            {"status": "processing"},
            {"nextRunAt": ENDED},
            {"nextRunAt": utc("2026-05-06 03:00")},
        ],
        ids=["rescheduled here", "waiting for a retry", "running", "retried", "in its place"],
    )
    async def test_is_left_as_it_is_if_it_was_not(
        self, db: Db, store: Store, fields: dict[str, Any]
    ) -> None:
        first = await store.schedules.put(self._wanted(), None)
        await set_fields(db, first, **(self.BY_NODE | fields))
        before = await document_of(db, first)
        await store.schedules.put(self._wanted(), None)
        assert await document_of(db, first) == before


class TestWithAKey:
    async def test_the_same_schedule_is_left_as_it_is(self, db: Db, store: Store) -> None:
        first = await store.schedules.put(wanted(data=[1], unique_key="mine"), None)
        before = await document_of(db, first)
        again = await store.schedules.put(wanted(data=[1], unique_key="mine", now=LATER), None)
        assert again == first
        assert again.deduplicated
        assert await document_of(db, first) == before

    @pytest.mark.parametrize(
        ("change", "next_run_at"),
        [
            ({"cron": "30 * * * *"}, "2026-05-05 12:30"),
            ({"cron": "0 9 * * *"}, "2026-05-06 09:00"),
            ({"timezone": "Asia/Kolkata"}, "2026-05-05 12:30"),
        ],
    )
    async def test_another_time_moves_the_next_run(
        self, db: Db, store: Store, change: dict[str, Any], next_run_at: str
    ) -> None:
        first = await store.schedules.put(wanted(unique_key="mine"), None)
        assert first.next_run_at == utc("2026-05-05 13:00")
        changed = wanted(unique_key="mine", now=LATER, **change)
        updated = await store.schedules.put(changed, None)
        assert (updated.id, updated.deduplicated) == (first.id, True)
        assert updated == await stored(db, first)
        assert updated.next_run_at == utc(next_run_at)
        assert updated.repeat_interval == changed.repeat_interval
        assert updated.timezone == changed.timezone
        assert (updated.created_at, updated.updated_at) == (NOW, LATER)
        assert len(await stored_jobs(db)) == 1

    async def test_other_data_is_taken_over_and_the_next_run_stays(
        self, db: Db, store: Store
    ) -> None:
        first = await store.schedules.put(wanted(data="old", unique_key="mine"), None)
        updated = await store.schedules.put(wanted(data="new", unique_key="mine", now=LATER), None)
        assert updated == await stored(db, first)
        assert (updated.data, updated.next_run_at) == ("new", first.next_run_at)

    async def test_another_priority_is_taken_over(self, db: Db, store: Store) -> None:
        first = await store.schedules.put(wanted(unique_key="mine"), None)
        await store.schedules.put(wanted(unique_key="mine", priority=5), None)
        assert (await document_of(db, first))["priority"] == 5

    @pytest.mark.parametrize("change", [{"data": "new"}, {"cron": "@daily"}, {"priority": 0}])
    async def test_no_priority_is_absent_not_nought(
        self, db: Db, store: Store, change: dict[str, Any]
    ) -> None:
        first = await store.schedules.put(wanted(unique_key="mine", priority=3), None)
        await store.schedules.put(wanted(unique_key="mine", **change), None)
        assert "priority" not in await document_of(db, first)

    async def test_another_time_ends_the_retries_of_the_old_one(self, db: Db, store: Store) -> None:
        first = await store.schedules.put(wanted(unique_key="mine"), None)
        await set_fields(db, first, failCount=3, claims=3, nextRunAt=LATER)
        updated = await store.schedules.put(wanted("@daily", unique_key="mine"), None)
        assert (updated.fail_count, updated.claims) == (0, 0)
        assert updated.next_run_at == utc("2026-05-06 00:00")

    async def test_other_data_leaves_the_retries_alone(self, db: Db, store: Store) -> None:
        first = await store.schedules.put(wanted(unique_key="mine"), None)
        await set_fields(db, first, failCount=3, claims=3, nextRunAt=LATER)
        updated = await store.schedules.put(wanted(data="new", unique_key="mine"), None)
        assert (updated.fail_count, updated.claims, updated.next_run_at) == (3, 3, LATER)

    async def test_a_running_one_is_changed_without_touching_the_run(
        self, db: Db, store: Store, other: Store
    ) -> None:
        await put(db, a_schedule(name="report"))
        running = await claim(store, "report")
        updated = await other.schedules.put(
            wanted("@daily", "new", unique_key="hourly", now=LATER), None
        )
        assert (updated.id, updated.status) == (running.id, "processing")
        assert (updated.repeat_interval, updated.data) == ("@daily", "new")
        assert updated.claim_token == running.claim_token
        assert updated.next_run_at == running.next_run_at
        assert updated.claims == 1

    async def test_an_ordinary_job_with_the_key_becomes_the_schedule_after_its_own_run(
        self, db: Db, store: Store
    ) -> None:
        job = a_job(name="report", unique_key="mine", next_run_at=NOW)
        await put(db, job)
        updated = await store.schedules.put(wanted(unique_key="mine"), None)
        assert (updated.id, updated.next_run_at) == (job.id, NOW)
        assert updated.repeat_interval == "0 * * * *"

    async def test_changes_from_all_sides_never_mix(
        self, db: Db, store: Store, other: Store
    ) -> None:
        variants = [(f"{minute} * * * *", f"at {minute}") for minute in range(1, 21)]
        await asyncio.gather(
            *(
                owner.schedules.put(wanted(cron, data, unique_key="mine"), None)
                for cron, data in variants
                for owner in (store, other)
            )
        )
        (job,) = await stored_jobs(db)
        assert (job.repeat_interval, job.data) in variants
        assert job.next_run_at == wanted(str(job.repeat_interval)).next_run_at

    async def test_a_finished_one_is_no_schedule_any_more(self, db: Db, store: Store) -> None:
        await put(db, a_schedule(name="report", unique_key="mine", status="cancelled"))
        assert not (await store.schedules.put(wanted(unique_key="mine"), None)).deduplicated


class TestRemoval:
    async def test_takes_all_schedules_of_a_name(self, db: Db, store: Store) -> None:
        await put(
            db,
            a_schedule(unique_key="a"),
            a_schedule(unique_key="b"),
            a_schedule(name="other", unique_key="a"),
            a_job(unique_key="c"),
        )
        assert await store.schedules.remove("send-email", None, LATER) == 2
        assert {(job.name, job.unique_key) for job in await stored_jobs(db)} == {
            ("other", "a"),
            ("send-email", "c"),
        }

    async def test_takes_the_one_with_the_key(self, db: Db, store: Store) -> None:
        kept = a_schedule(unique_key="b")
        await put(db, a_schedule(unique_key="a"), kept)
        assert await store.schedules.remove("send-email", "a", LATER) == 1
        assert await store.schedules.remove("send-email", "a", LATER) == 0
        assert await stored_jobs(db) == [kept]

    async def test_of_an_ordinary_job_does_nothing(self, db: Db, store: Store) -> None:
        await put(db, a_job(unique_key="a"))
        assert await store.schedules.remove("send-email", "a", LATER) == 0
        assert len(await stored_jobs(db)) == 1

    async def test_lets_one_that_runs_end_as_an_ordinary_job(
        self, db: Db, store: Store, other: Store
    ) -> None:
        await put(db, a_schedule())
        running = await claim(store)
        before = await document_of(db, running)
        assert await other.schedules.remove("send-email", None, LATER) == 1
        del before["repeatInterval"], before["timezone"]
        assert await document_of(db, running) == before | {"updatedAt": LATER}
        assert await other.schedules.remove("send-email", None, LATER) == 0

    async def test_is_not_undone_by_a_run_that_ends_later(
        self, db: Db, store: Store, other: Store
    ) -> None:
        await put(db, a_schedule())
        running = await claim(store)
        await other.schedules.remove("send-email", None, LATER)
        tick = Advanced(NOW + timedelta(hours=1))
        (verdict,) = await store.outcomes.settle([Settlement(running, tick)], LATER)
        assert verdict not in {"written", "lost"}
        assert (await stored(db, running)).repeat_interval is None

    @pytest.mark.parametrize(
        "status", [one for one in JobStatus.ALL if one not in JobStatus.ACTIVE]
    )
    async def test_leaves_the_past_alone(self, db: Db, store: Store, status: str) -> None:
        past = a_schedule(status=status)
        await put(db, past)
        assert await store.schedules.remove("send-email", None, LATER) == 0
        assert await stored_jobs(db) == [past]


async def test_two_collections_have_nothing_to_do_with_each_other(db: Db, store: Store) -> None:
    elsewhere = await open_store(db, collection_name="elsewhere")
    for owner in (store, elsewhere):
        assert not (await owner.schedules.put(wanted(), None)).deduplicated
    assert await store.schedules.remove("report", None, LATER) == 1
    assert await elsewhere.schedules.remove("report", None, LATER) == 1
