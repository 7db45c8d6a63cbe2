"""Checking whether another instance has claimed what it was to claim first."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pymongo.errors import AutoReconnect

from monque_core.scheduler.backup import Backup
from monque_core.scheduler.wakeups import MANY, Wakeups
from monque_core.testing import MovableClock
from tests.support.samples import NOW, a_job
from tests.support.stores import open_store, put
from tests.support.tally import Tally

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.store.store import Store


class Checks:
    """A running backup, and what it found."""

    def __init__(self, store: Store) -> None:
        self.wakeups = Wakeups({"send-email"})
        self.missed = Tally[bool]()
        self.errors = Tally[BaseException]()
        self.backup = Backup(
            store.queue, self.wakeups, MovableClock(NOW), self._note, self.errors.add
        )

    async def _note(self, is_missed: bool) -> None:
        self.missed.add(is_missed)


@asynccontextmanager
async def checks(store: Store) -> AsyncIterator[Checks]:
    running = Checks(store)
    running.backup.start()
    try:
        yield running
    finally:
        await running.backup.stop()


async def test_work_that_is_left_is_looked_for_here(db: AsyncDatabase[dict[str, Any]]) -> None:
    store = await open_store(db)
    await put(db, a_job(next_run_at=NOW - timedelta(seconds=1)))
    async with checks(store) as running:
        running.backup.expect("send-email")
        await running.missed.reach(1)

        assert running.missed == [True]
        assert running.wakeups.expected("send-email") == MANY


async def test_work_that_the_other_has_claimed_is_left_alone(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    store = await open_store(db)
    async with checks(store) as running:
        running.backup.expect("send-email")
        await running.missed.reach(1)

        assert running.missed == [False]
        assert not running.wakeups.is_expecting


async def test_what_is_due_after_the_check_was_asked_for_is_left_to_the_next_check(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    store = await open_store(db)
    await put(db, a_job(next_run_at=NOW + timedelta(seconds=1)))
    async with checks(store) as running:
        running.backup.expect("send-email")
        await running.missed.reach(1)

        assert running.missed == [False]


async def test_many_jobs_of_a_name_cost_two_checks(db: AsyncDatabase[dict[str, Any]]) -> None:
    store = await open_store(db)
    async with checks(store) as running:
        for _ in range(1000):
            running.backup.expect("send-email")
        await running.missed.reach(2)
        # Longer than until a third.
        await asyncio.sleep(0.2)

        assert len(running.missed) == 2


async def test_a_check_that_fails_makes_this_instance_look_itself(
    db: AsyncDatabase[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(db)

    async def fail(*arguments: object) -> bool:
        raise AutoReconnect("cut off")

    async with checks(store) as running:
        monkeypatch.setattr(running.backup._queue, "has_due", fail)
        running.backup.expect("send-email")
        await running.errors.reach(1)

        assert running.wakeups.expected("send-email") == MANY
