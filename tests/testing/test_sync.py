"""The same assertions for code without asyncio."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from monque_core.testing.sync import assert_enqueued, assert_not_enqueued, run_until_idle

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase
    from pymongo.database import Database

    from monque_core import Job, Monque, SyncMonque
    from monque_core.testing import MovableClock


def test_jobs_are_found_through_a_sync_monque_and_its_database(
    sync_monque: SyncMonque, blocking_db: Database[dict[str, Any]]
) -> None:
    first = sync_monque.enqueue("welcome", {"to": "Ada"}, unique_key="ada")
    second = sync_monque.enqueue("welcome", {"to": "Bob"})

    for source in (sync_monque, blocking_db):
        assert assert_enqueued(source, "welcome") == [first, second]
        assert assert_enqueued(source, "welcome", data={"to": "Bob"}, count=1) == [second]
        assert assert_enqueued(source, "welcome", unique_key="ada") == [first]
        assert_not_enqueued(source, "welcome", status="failed")


def test_what_fails_shows_what_is_there(sync_monque: SyncMonque) -> None:
    sync_monque.enqueue("welcome", {"to": "Bob"})

    with pytest.raises(AssertionError, match=r"data\['to'\] is 'Bob', not 'Ada'"):
        assert_enqueued(sync_monque, "welcome", data={"to": "Ada"})
    with pytest.raises(AssertionError, match="expected no job 'welcome'"):
        assert_not_enqueued(sync_monque, "welcome")


def test_due_jobs_run_by_the_moved_clock(sync_monque: SyncMonque, clock: MovableClock) -> None:
    ran: list[str] = []
    sync_monque.worker("remind", lambda job: ran.append(job.data))
    sync_monque.enqueue("remind", "now")
    sync_monque.enqueue("remind", "tomorrow", delay=timedelta(days=1))

    run_until_idle(sync_monque)
    assert ran == ["now"]
    clock.advance(timedelta(days=1))
    run_until_idle(sync_monque)
    assert ran == ["now", "tomorrow"]
    assert not sync_monque.is_running


def test_an_instance_that_runs_goes_on_running(
    sync_monque: SyncMonque, clock: MovableClock
) -> None:
    ran: list[str] = []
    sync_monque.worker("remind", lambda job: ran.append(job.data))
    with sync_monque:
        sync_monque.enqueue("remind", "tomorrow", delay=timedelta(days=1))
        run_until_idle(sync_monque)
        clock.advance(timedelta(days=1))
        run_until_idle(sync_monque)
        assert ran == ["tomorrow"]
        assert sync_monque.is_running


def test_what_hangs_is_given_up_in_time_and_reported(sync_monque: SyncMonque) -> None:
    release = threading.Event()

    @sync_monque.worker("hang")
    def hang(job: Job[str]) -> None:
        release.wait(120)

    sync_monque.enqueue("hang", "up")
    with sync_monque:
        with pytest.raises(TimeoutError, match="hang  processing  data='up'"):
            run_until_idle(sync_monque, timeout=0.3)
        release.set()


async def test_what_needs_an_event_loop_is_refused(
    monque: Monque, db: AsyncDatabase[dict[str, Any]]
) -> None:
    with pytest.raises(TypeError, match=r"of monque_core\.testing for a Monque"):
        assert_enqueued(monque, "welcome")
    with pytest.raises(TypeError, match="an AsyncDatabase belongs to its own event loop"):
        assert_enqueued(db, "welcome")
