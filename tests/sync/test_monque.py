"""The public class for code without asyncio: what it accepts, and how a script uses it."""

from __future__ import annotations

import inspect
import logging
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pymongo.write_concern import WriteConcern

from monque_core import (
    Job,
    JobSelector,
    Monque,
    SyncMonque,
)
from monque_core.emitter import IsolatingEmitter
from tests.support.inventory import stored_jobs
from tests.support.record import Record
from tests.support.threads import no_threads_are_left

if TYPE_CHECKING:
    from motor.motor_asyncio import AsyncIOMotorDatabase
    from pymongo.asynchronous.database import AsyncDatabase
    from pymongo.database import Database

_FROM_PYEE = {"on", "once", "off"}


def members(kind: type) -> dict[str, Any]:
    """Return the public members that monque itself defines in a class."""
    return {
        name: getattr(kind, name)
        for ancestor in kind.__mro__
        # What the emitter overrides is pyee's.
        if ancestor.__module__.startswith("monque_core.") and ancestor is not IsolatingEmitter
        for name in vars(ancestor)
        if not name.startswith("_")
    }


class TestMembers:
    def test_are_those_of_monque(self) -> None:
        assert set(members(SyncMonque)) == set(members(Monque)) | _FROM_PYEE

    @pytest.mark.parametrize("name", sorted(set(members(Monque)) - _FROM_PYEE))
    def test_have_the_parameters_and_results_of_monque_s(self, name: str) -> None:
        own, theirs = getattr(SyncMonque, name), getattr(Monque, name)
        if isinstance(theirs, property):
            assert isinstance(own, property)
            own, theirs = own.fget, theirs.fget
        assert inspect.signature(own) == inspect.signature(theirs)

    @pytest.mark.parametrize("name", sorted(members(SyncMonque)))
    def test_say_what_they_do_and_block(self, name: str) -> None:
        member = getattr(SyncMonque, name)

        assert inspect.getdoc(member)
        assert getattr(member, "__name__", name) == name
        assert not inspect.iscoroutinefunction(member)

    def test_of_a_context_are_the_blocking_ones(self) -> None:
        assert hasattr(SyncMonque, "__enter__")
        assert not hasattr(SyncMonque, "__aenter__")


class TestHandles:
    def test_blocking(self, blocking_db: Database[dict[str, Any]]) -> None:
        job = SyncMonque(blocking_db).enqueue("work", {"n": 1})

        (found,) = stored_jobs(blocking_db)
        assert (found.id, found.data, found.status) == (job.id, {"n": 1}, "pending")

    async def test_motor(
        self,
        motor_db: AsyncIOMotorDatabase[dict[str, Any]],
        blocking_db: Database[dict[str, Any]],
    ) -> None:
        ran: Record[int] = Record()
        monque = SyncMonque(motor_db)
        monque.worker("work", lambda job: ran.add(job.data))
        with monque:
            monque.enqueue("work", 1)
            ran.reach(1)

        assert [job.status for job in stored_jobs(blocking_db)] == ["completed"]

    async def test_async_is_refused_with_advice(self, db: AsyncDatabase[dict[str, Any]]) -> None:
        with pytest.raises(TypeError, match=r"belongs to its own event loop.*use Monque"):
            SyncMonque(db)

    @pytest.mark.parametrize("nonsense", [None, 7, "mongodb://localhost", object()])
    def test_nonsense_is_refused(self, nonsense: object) -> None:
        with pytest.raises(TypeError, match="db must be a PyMongo"):
            SyncMonque(nonsense)

    def test_a_client_is_refused_with_advice(self, blocking_db: Database[dict[str, Any]]) -> None:
        with pytest.raises(TypeError, match=r"get_default_database\(\)"):
            SyncMonque(blocking_db.client)

    def test_unacknowledged_writes_are_refused(self, blocking_db: Database[dict[str, Any]]) -> None:
        with pytest.raises(ValueError, match="w=0 cannot be used"):
            SyncMonque(blocking_db.with_options(write_concern=WriteConcern(w=0)))

    def test_a_wrong_option_is_refused_with_advice(
        self, blocking_db: Database[dict[str, Any]]
    ) -> None:
        with pytest.raises((TypeError, ValueError), match="poll_interval"):
            SyncMonque(blocking_db, poll_intervall=3)  # type: ignore[call-arg]


class TestScript:
    def test_stores_looks_and_manages_without_start(
        self, monque: SyncMonque, blocking_db: Database[dict[str, Any]]
    ) -> None:
        job = monque.enqueue("work", 1, priority=3)
        many = monque.enqueue_many("work", [2, 3])
        monque.now("work", 4)
        daily = monque.schedule("@daily", "report", None)
        found = monque.get_job(job.id)
        assert found is not None
        assert (found.data, found.priority) == (1, 3)
        assert [one.data for one in monque.get_jobs(name="work")] == [4, 3, 2, 1]
        page = monque.get_jobs_with_cursor(limit=2, sort="created_at")
        assert [one.id for one in page.jobs] == [job.id, many[0].id]
        assert [one.id for one in monque.get_schedules()] == [daily.id]
        assert monque.get_queue_stats("work").pending == 4
        assert [view.name for view in monque.get_queue_view_summaries()] == ["report", "work"]

        later = datetime(2040, 1, 1, tzinfo=UTC)
        moved = monque.reschedule_job(job.id, later)
        cancelled = monque.cancel_job(job.id)
        again = monque.retry_job(job.id)
        assert moved is not None
        assert cancelled is not None
        assert again is not None
        assert (moved.next_run_at, cancelled.status, again.status) == (
            later,
            "cancelled",
            "pending",
        )
        batches: list[tuple[int, threading.Thread]] = []
        cancelled_count = monque.cancel_jobs(
            JobSelector(name="work"),
            progress=lambda count: batches.append((count, threading.current_thread())),
        )
        assert cancelled_count == 4
        assert batches == [(4, threading.current_thread())]
        assert monque.retry_jobs(JobSelector(name="work")) == 4
        assert monque.delete_job(job.id)
        assert monque.delete_jobs(JobSelector(name="work")) == 3
        assert monque.unschedule("report") == 1

        assert stored_jobs(blocking_db) == []
        assert not monque.is_running
        assert no_threads_are_left()

    def test_makes_the_collection_ready_at_its_first_call(
        self, monque: SyncMonque, blocking_db: Database[dict[str, Any]]
    ) -> None:
        assert not monque.is_connected
        assert monque.ping()
        assert monque.is_connected
        assert blocking_db.list_collection_names() == []
        monque.enqueue("work", 1)

        assert monque.is_connected
        assert "monque_py_claim" in {
            index["name"] for index in blocking_db["monque_jobs"].list_indexes()
        }

    def test_refuses_what_is_wrong_before_mongodb_is_asked(
        self, absent_db: Database[dict[str, Any]]
    ) -> None:
        monque = SyncMonque(absent_db)
        for wrong in (
            lambda: monque.enqueue("", 1),
            lambda: monque.enqueue("work", object()),
            lambda: monque.schedule("every day", "work", 1),
            lambda: monque.get_job("nonsense"),
        ):
            with pytest.raises(ValueError):  # noqa: PT011  # each with a message of its own
                wrong()

    def test_joins_a_transaction_of_its_caller(
        self, monque: SyncMonque, blocking_db: Database[dict[str, Any]]
    ) -> None:
        monque.initialize()
        with blocking_db.client.start_session() as session:
            for ends in (session.abort_transaction, session.commit_transaction):
                session.start_transaction()
                monque.enqueue("one", 1, session=session)
                monque.enqueue("keyed", 2, unique_key="k", session=session)
                monque.enqueue_many("many", range(3), session=session)
                monque.enqueue_many("keyed-many", range(3), unique_key=str, session=session)
                monque.schedule("@daily", "recurring", None, session=session)
                assert stored_jobs(blocking_db) == []
                ends()

        assert len(stored_jobs(blocking_db)) == 9

    def test_joins_a_transaction_that_the_driver_repeats(
        self, monque: SyncMonque, blocking_db: Database[dict[str, Any]]
    ) -> None:
        monque.initialize()

        def buy(session: Any) -> Job[str]:
            blocking_db["orders"].insert_one({"_id": "order"}, session=session)
            return monque.enqueue("ship", "order", session=session)

        with blocking_db.client.start_session() as session:
            job = session.with_transaction(buy)

        assert [found.id for found in stored_jobs(blocking_db)] == [job.id]
        assert blocking_db["orders"].count_documents({}) == 1

    def test_refuses_a_session_that_is_none(self, monque: SyncMonque) -> None:
        with pytest.raises(TypeError, match="client session"):
            monque.enqueue("work", 1, session="session")


def test_the_default_log_is_that_of_monque(
    monque: SyncMonque, caplog: pytest.LogCaptureFixture
) -> None:
    @monque.worker("work")
    def work(job: Job[None]) -> None:
        raise ValueError("bad")

    monque.enqueue("work", None, max_retries=1)
    with caplog.at_level(logging.WARNING, "monque"):
        monque.run_until_idle()

    assert "is given up" in caplog.text
