"""The methods of `Monque` that need no event loop and run in the calling thread."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

import pytest
from pymongo import MongoClient

from monque_core import InvalidJobError, JobSelector, Monque, SyncMonque
from monque_core.controller import Controller
from monque_core.inspector import Inspector
from monque_core.options import Options
from monque_core.producer import Producer
from monque_core.scheduler.workers import Workers
from monque_core.sync.blocking_api import BlockingApi, run_in_place
from tests.support.commands import CommandLog
from tests.support.threads import monque_threads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pymongo.asynchronous.database import AsyncDatabase
    from pymongo.database import Database

    from monque_core.jobs.job import AnyJob


class FakeHost:
    """A stand-in that records the calls of a blocking API."""

    def __init__(self) -> None:
        self.noticed: list[AnyJob] = []
        self.emitted: list[str] = []
        self.initialized = 0

    def initialize(self) -> None:
        self.initialized += 1

    def notice(self, jobs: Sequence[AnyJob]) -> None:
        self.noticed.extend(jobs)

    def emit(self, event: str, payload: object) -> None:
        self.emitted.append(event)

    def running(self, name: str) -> int:
        return 3


@pytest.fixture
def host() -> FakeHost:
    return FakeHost()


@pytest.fixture
def api(blocking_db: Database[dict[str, Any]], host: FakeHost) -> BlockingApi:
    return BlockingApi(blocking_db, Options.parse({}), Workers(), host)


class TestRunInPlace:
    def test_a_coroutine_that_never_waits_returns_its_result(self) -> None:
        async def add(one: int, other: int) -> int:
            return one + other

        async def add_in_depth() -> int:
            return await add(await add(1, 2), 3)

        assert run_in_place(add_in_depth()) == 6

    def test_an_exception_of_a_coroutine_is_raised(self) -> None:
        async def fail() -> None:
            raise ValueError("bad")

        with pytest.raises(ValueError, match="bad"):
            run_in_place(fail())

    def test_a_coroutine_that_waits_is_closed_and_a_defect(self) -> None:
        closed = []

        async def wait() -> None:
            try:
                await asyncio.sleep(0)
            finally:
                closed.append(True)

        with pytest.raises(AssertionError, match="waited for an event loop"):
            run_in_place(wait())
        assert closed == [True]


class TestBlockingApi:
    def test_has_the_methods_of_monque_that_need_no_running_instance(self) -> None:
        for part in (Producer, Inspector, Controller):
            for name, method in inspect.getmembers(part, inspect.iscoroutinefunction):
                if name != "initialize" and not name.startswith("_"):
                    assert getattr(BlockingApi, name) is method is getattr(Monque, name)

    def test_stores_in_the_thread_that_asks(self, uri: str, database_name: str) -> None:
        log = CommandLog()
        threads_at_work: list[set[Any]] = []
        log.on_sending = lambda *_: threads_at_work.append(monque_threads())
        with MongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
            api = BlockingApi(client[database_name], Options.parse({}), Workers(), FakeHost())
            run_in_place(api.enqueue("work", 1))

            assert log.count() == {"insert": 1}
            assert threads_at_work == [set()]

    def test_has_the_collection_made_ready_once(self, api: BlockingApi, host: FakeHost) -> None:
        with pytest.raises(InvalidJobError):
            run_in_place(api.enqueue("", 1))
        assert host.initialized == 0
        run_in_place(api.enqueue("work", 1))
        run_in_place(api.get_jobs())

        assert host.initialized == 1

    def test_lets_the_workers_know_of_new_jobs_only(
        self, api: BlockingApi, host: FakeHost, blocking_db: Database[dict[str, Any]]
    ) -> None:
        SyncMonque(blocking_db).initialize()
        first = run_in_place(api.enqueue("work", 1, unique_key="k"))
        again = run_in_place(api.enqueue("work", 1, unique_key="k"))
        many = run_in_place(api.enqueue_many("work", [1, 2]))
        with blocking_db.client.start_session() as session, session.start_transaction():
            run_in_place(api.enqueue("work", 1, session=session))

        assert again.deduplicated
        assert [job.id for job in host.noticed] == [first.id, *(job.id for job in many)]

    def test_lets_listeners_know_what_was_done(self, api: BlockingApi, host: FakeHost) -> None:
        job = run_in_place(api.enqueue("work", 1))
        run_in_place(api.cancel_job(job.id))
        run_in_place(api.retry_jobs(JobSelector(name="work")))
        run_in_place(api.delete_job(job.id))

        assert host.emitted == ["job:cancelled", "jobs:retried", "job:deleted"]

    def test_asks_the_workers_how_many_jobs_run(
        self, blocking_db: Database[dict[str, Any]], host: FakeHost
    ) -> None:
        monque = Monque(blocking_db)
        monque.worker("work", lambda _: None)
        api = BlockingApi(blocking_db, Options.parse({}), monque._workers, host)
        (view,) = run_in_place(api.get_queue_view_summaries())

        assert view.worker is not None
        assert view.worker.running == 3

    def test_refuses_a_handle_that_belongs_to_an_event_loop(
        self, db: AsyncDatabase[dict[str, Any]], host: FakeHost
    ) -> None:
        with pytest.raises(TypeError, match="use Monque with it"):
            BlockingApi(db, Options.parse({}), Workers(), host)
