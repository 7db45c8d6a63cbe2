"""Leases: one holder at a time, by the server's clock."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from monque_core.store.driver import Driver
from monque_core.store.leases import Leases
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    Db = AsyncDatabase[dict[str, Any]]

MINUTE = timedelta(minutes=1)
MOMENT = timedelta(milliseconds=200)


@pytest.fixture
def leases(db: Db) -> Leases:
    return Leases(Driver(db).collection("monque_jobs_meta"))


async def server_now(db: Db) -> datetime:
    hello = await db.command("hello")
    instant: datetime = hello["localTime"]
    return instant.replace(tzinfo=UTC)


class TestTaking:
    async def test_a_free_lease_succeeds(self, leases: Leases) -> None:
        assert await leases.take("retention", "me", MINUTE) is not None
        lease = await leases.read("retention")
        assert lease is not None
        assert (lease.holder, lease.is_expired) == ("me", False)

    async def test_what_another_holds_fails_and_changes_nothing(self, leases: Leases) -> None:
        await leases.take("retention", "me", MINUTE)
        before = await leases.read("retention")
        assert await leases.take("retention", "other", MINUTE) is None
        assert await leases.read("retention") == before

    async def test_ones_own_lease_prolongs_it(self, leases: Leases) -> None:
        await leases.take("retention", "me", MINUTE)
        before = await leases.read("retention")
        assert await leases.take("retention", "me", 10 * MINUTE) is not None
        after = await leases.read("retention")
        assert before is not None
        assert after is not None
        assert after.holder == "me"
        assert after.expires_at - before.expires_at >= 9 * MINUTE

    async def test_one_lease_is_no_hindrance_to_another(self, leases: Leases) -> None:
        assert await leases.take("retention", "me", MINUTE) is not None
        assert await leases.take("reactive", "other", MINUTE) is not None

    async def test_succeeds_for_one_of_many_at_once(self, leases: Leases) -> None:
        taken = await asyncio.gather(
            *(leases.take("retention", f"instance-{n}", MINUTE) for n in range(50))
        )
        assert len([one for one in taken if one is not None]) == 1

    async def test_an_expired_lease_succeeds(self, leases: Leases) -> None:
        await leases.take("retention", "dead", MOMENT)
        assert await eventually(lambda: leases.take("retention", "me", MINUTE)) is not None

    async def test_is_possible_for_holders_that_look_like_fields(self, leases: Leases) -> None:
        assert await leases.take("retention", "$holder", MINUTE) is not None
        assert await leases.take("retention", "$expiresAt", MINUTE) is None
        lease = await leases.read("retention")
        assert lease is not None
        assert lease.holder == "$holder"


class TestTime:
    async def test_is_the_servers(self, db: Db, leases: Leases) -> None:
        before = await server_now(db)
        taken = await leases.take("retention", "me", MINUTE)
        after = await server_now(db)
        assert taken is not None
        assert before <= taken.instant <= after
        lease = await leases.read("retention")
        assert lease is not None
        assert lease.expires_at == taken.instant + MINUTE

    async def test_was_read_between_two_readings_of_our_own(self, leases: Leases) -> None:
        before = time.monotonic_ns()
        taken = await leases.take("retention", "me", MINUTE)
        assert taken is not None
        assert before <= taken.asked_ns <= taken.answered_ns <= time.monotonic_ns()

    async def test_runs_out_without_anyone_doing_anything(self, leases: Leases) -> None:
        await leases.take("retention", "me", MOMENT)

        async def has_expired() -> bool:
            lease = await leases.read("retention")
            assert lease is not None
            assert lease.holder == "me"
            return lease.is_expired

        assert await eventually(has_expired)


class TestGivingBack:
    async def test_frees_the_lease(self, leases: Leases) -> None:
        await leases.take("retention", "me", MINUTE)
        await leases.give_back("retention", "me")
        assert await leases.read("retention") is None
        assert await leases.take("retention", "other", MINUTE) is not None

    async def test_what_is_anothers_does_nothing(self, leases: Leases) -> None:
        await leases.take("retention", "other", MINUTE)
        await leases.give_back("retention", "me")
        lease = await leases.read("retention")
        assert lease is not None
        assert lease.holder == "other"

    async def test_what_was_never_taken_does_nothing(self, leases: Leases) -> None:
        await leases.give_back("retention", "me")
        assert await leases.read("retention") is None


class TestTerms:
    async def test_begin_with_the_servers_time(self, db: Db, leases: Leases) -> None:
        before = (await server_now(db)).timestamp() * 1000
        taken = await leases.take("reactive:leader", "me", MINUTE)
        after = (await server_now(db)).timestamp() * 1000
        assert taken is not None
        assert before <= taken.term <= after
        lease = await leases.read("reactive:leader")
        assert lease is not None
        assert lease.term == taken.term

    async def test_last_as_long_as_the_holder_does(self, leases: Leases) -> None:
        first = await leases.take("reactive:leader", "me", MINUTE)
        await asyncio.sleep(0.01)
        again = await leases.take("reactive:leader", "me", MINUTE)
        assert first is not None
        assert again is not None
        assert again.term == first.term

    async def test_are_the_holders_own_though_another_asks_for_a_new_one(
        self, leases: Leases
    ) -> None:
        first = await leases.take("reactive:leader", "me", MINUTE)
        assert first is not None
        assert await leases.take("reactive:leader", "other", MINUTE, new_term=True) is None
        lease = await leases.read("reactive:leader")
        assert lease is not None
        assert lease.term == first.term

    async def test_grow_with_every_holder(self, leases: Leases) -> None:
        first = await leases.take("reactive:leader", "dead", MOMENT)
        second = await eventually(lambda: leases.take("reactive:leader", "me", MINUTE))
        assert first is not None
        assert second.term > first.term

    async def test_grow_when_the_holder_wants_it(self, leases: Leases) -> None:
        terms = []
        for _ in range(20):
            taken = await leases.take("reactive:leader", "me", MINUTE, new_term=True)
            assert taken is not None
            terms.append(taken.term)
        assert sorted(set(terms)) == terms

    async def test_never_go_back_though_the_servers_clock_does(
        self, db: Db, leases: Leases
    ) -> None:
        ahead = 2**50
        await leases.take("reactive:leader", "me", MINUTE)
        await db["monque_jobs_meta"].update_one({}, {"$set": {"term": ahead}})
        taken = await leases.take("reactive:leader", "me", MINUTE, new_term=True)
        assert taken is not None
        assert taken.term == ahead + 1

    async def test_never_go_back_though_the_lease_was_removed(self, leases: Leases) -> None:
        first = await leases.take("reactive:leader", "me", MINUTE)
        await leases.give_back("reactive:leader", "me")
        await asyncio.sleep(0.005)
        second = await leases.take("reactive:leader", "me", MINUTE)
        assert first is not None
        assert second is not None
        assert second.term > first.term

    async def test_are_had_by_leases_that_were_stored_without(self, db: Db, leases: Leases) -> None:
        expiry = await server_now(db) + MINUTE
        await db["monque_jobs_meta"].insert_one(
            {"_id": "retention", "holder": "me", "expiresAt": expiry}
        )
        lease = await leases.read("retention")
        assert lease is not None
        assert lease.term == 0
        taken = await leases.take("retention", "me", MINUTE)
        assert taken is not None
        assert taken.term == 0
        anew = await leases.take("retention", "me", MINUTE, new_term=True)
        assert anew is not None
        assert anew.term > 0


class TestLayingDown:
    async def test_frees_the_lease_at_once_and_keeps_its_term(self, leases: Leases) -> None:
        first = await leases.take("reactive:leader", "me", MINUTE)
        await leases.lay_down("reactive:leader", "me")
        lease = await leases.read("reactive:leader")
        assert first is not None
        assert lease is not None
        assert (lease.holder, lease.is_expired, lease.term) == (None, True, first.term)
        second = await leases.take("reactive:leader", "other", MINUTE)
        assert second is not None
        assert second.term > first.term

    async def test_ends_the_term_for_the_former_holder_too(self, leases: Leases) -> None:
        first = await leases.take("reactive:leader", "me", MINUTE)
        await leases.lay_down("reactive:leader", "me")
        second = await leases.take("reactive:leader", "me", MINUTE)
        assert first is not None
        assert second is not None
        assert second.term > first.term

    async def test_what_is_anothers_or_nobodys_does_nothing(self, leases: Leases) -> None:
        await leases.take("reactive:leader", "other", MINUTE)
        before = await leases.read("reactive:leader")
        await leases.lay_down("reactive:leader", "me")
        await leases.lay_down("unknown", "me")
        assert await leases.read("reactive:leader") == before
        assert await leases.read("unknown") is None
