"""Waking other instances while due work finds no slot here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from monque_core.scheduler.overflow import Overflow
from tests.scheduler.test_cluster import cluster_of, team
from tests.support.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from monque_core.scheduler.cluster import Cluster
    from tests.conftest import AnyDatabase


def count_calls(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> Tally[int]:
    """Let nobody be woken, and note how many instances were to be."""
    calls = Tally[int]()

    async def note(names: Sequence[str], count: int) -> bool:
        calls.add(count)
        return True

    monkeypatch.setattr(cluster, "call", note)
    return calls


async def test_more_instances_are_called_as_long_as_work_is_left(
    any_db: AnyDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with team() as members:
        members.may_end.clear()
        alone = await members.join(any_db, concurrency=1)
        calls = count_calls(monkeypatch, cluster_of(alone))
        await members.producer(any_db).enqueue_many("work", [1, 2])
        await calls.reach(3)

        assert calls[:3] == [3, 6, 12]
        members.may_end.set()


async def test_nobody_is_called_while_slots_are_free(
    any_db: AnyDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with team() as members:
        members.may_end.clear()
        alone = await members.join(any_db, concurrency=3)
        calls = count_calls(monkeypatch, cluster_of(alone))
        await members.producer(any_db).enqueue_many("work", [1, 2])
        await members.starts.reach(2)
        await asyncio.sleep(0.3)

        assert calls == []
        members.may_end.set()


async def test_a_job_that_comes_long_after_the_slots_were_full_is_called_for_at_once(
    any_db: AnyDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Tally[None]()
    names = Overflow._full_names

    def noted(self: Overflow) -> list[str]:
        looks.add(None)
        return names(self)

    monkeypatch.setattr(Overflow, "_full_names", noted)
    async with team() as members:
        members.may_end.clear()
        alone = await members.join(any_db, names=["full", "free"], concurrency=1)
        producer = members.producer(any_db)
        calls = count_calls(monkeypatch, cluster_of(alone))
        await producer.enqueue("full", 1)
        await members.starts.reach(1)
        # The next look without a cause would come after more than a second.
        await asyncio.sleep(2)
        looked = len(looks)
        await producer.enqueue("full", 2)
        await calls.reach(1)

        assert len(looks) <= looked + 2
        members.may_end.set()


async def test_a_fault_does_not_end_the_loop(
    any_db: AnyDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with team() as members:
        members.may_end.clear()
        alone = await members.join(any_db, concurrency=1)
        attempts = Tally[Any]()

        async def fail(names: Sequence[str], count: int) -> bool:
            attempts.add(count)
            raise RuntimeError("no signal today")

        monkeypatch.setattr(cluster_of(alone), "call", fail)
        await members.producer(any_db).enqueue_many("work", [1, 2])

        await attempts.reach(2)
        members.may_end.set()
