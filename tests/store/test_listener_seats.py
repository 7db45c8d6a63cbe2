"""The seats of the listeners."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from monque_core import Monque
from monque_core.store.leases import lease_key
from monque_core.store.listener_seats import SEATS, ListenerSeats, pool_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from monque_core.store.store import Store
    from tests.conftest import AnyDatabase

POOL = pool_of(["send-email"])
MINUTE = timedelta(minutes=1)


class Instances:
    """Instances with a lease each."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def seats(self, instance_id: str, lease: timedelta = MINUTE) -> ListenerSeats:
        """Return the seats as a new instance of the pool takes them."""
        holder = f"holder of {instance_id}"
        await self._store.leases.take(lease_key(instance_id), holder, lease)
        seats = ListenerSeats(self._store._meta, instance_id, holder)
        await seats.join(POOL)
        return seats


@pytest.fixture
async def instances(any_db: AnyDatabase) -> AsyncIterator[Instances]:
    monque = Monque(any_db)
    await monque.initialize()
    yield Instances(monque._store)
    await monque.stop()


def ids(listening: list[Any]) -> list[str]:
    return sorted(one.instance_id for one in listening)


async def test_as_many_listen_as_there_are_seats(instances: Instances) -> None:
    seats = [await instances.seats(name) for name in "abcd"]

    listening = [sorted((await one.take(POOL)).listening) for one in seats]

    assert listening == [["a"], ["a", "b"], ["a", "b"], ["a", "b"]]
    assert SEATS == 2


async def test_taking_a_seat_again_changes_nothing(instances: Instances) -> None:
    seats = await instances.seats("a")
    await seats.take(POOL)

    assert sorted((await seats.take(POOL)).listening) == ["a"]


async def test_a_seat_that_was_left_is_free(instances: Instances) -> None:
    a, b, c = [await instances.seats(name) for name in "abc"]
    await a.take(POOL)
    await b.take(POOL)
    await a.leave()

    assert sorted((await c.take(POOL)).listening) == ["b", "c"]


async def test_a_seat_ends_with_the_lease(instances: Instances) -> None:
    a = await instances.seats("a", timedelta(milliseconds=1))
    b, c = [await instances.seats(name) for name in "bc"]
    await a.take(POOL)
    await b.take(POOL)

    assert ids(await c.listeners(POOL)) == ["b"]
    assert sorted((await c.take(POOL)).listening) == ["b", "c"]


async def test_a_seat_can_be_taken_over(instances: Instances) -> None:
    a, b, c = [await instances.seats(name) for name in "abc"]
    await a.take(POOL)
    await b.take(POOL)

    assert sorted((await c.take(POOL, over="a")).listening) == ["b", "c"]
    assert ids(await a.listeners(POOL)) == ["b", "c"]


async def test_a_seat_that_another_has_taken_over_is_not_taken_over_again(
    instances: Instances,
) -> None:
    a, b, c, d = [await instances.seats(name) for name in "abcd"]
    await a.take(POOL)
    await b.take(POOL)
    await c.take(POOL, over="a")

    assert sorted((await d.take(POOL, over="a")).listening) == ["b", "c"]


async def test_each_pool_has_seats_of_its_own(instances: Instances) -> None:
    a, b, c = [await instances.seats(name) for name in "abc"]
    await a.take(POOL)
    await b.take(POOL)
    other = pool_of(["make-report"])
    await c.join(other)

    assert sorted((await c.take(other)).listening) == ["c"]


def test_a_pool_does_not_depend_on_the_order_of_names() -> None:
    assert pool_of(["a", "b"]) == pool_of(["b", "a"]) != pool_of(["ab"])


async def test_those_on_standby_are_alive_and_have_no_seat(instances: Instances) -> None:
    a, b, _ = [await instances.seats(name) for name in "abc"]
    await instances.seats("dead", timedelta(milliseconds=1))
    await a.take(POOL)

    assert sorted(await b.standby(POOL, 10)) == ["c"]
    assert sorted(await a.standby(POOL, 10)) == ["b", "c"]
    assert len(await a.standby(POOL, 1)) == 1
    assert await a.standby(pool_of(["make-report"]), 10) == []


async def test_an_evicted_instance_has_no_seat(instances: Instances) -> None:
    a, b = [await instances.seats(name) for name in "ab"]
    await a.take(POOL)
    await b.take(POOL)
    (seat,) = [one for one in await b.listeners(POOL) if one.instance_id == "a"]

    await b.evict(seat)

    assert ids(await b.listeners(POOL)) == ["b"]
