"""`MonqueService`, the injectable API."""

from __future__ import annotations

import asyncio
import inspect
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from dependency_injector import containers, providers
from pymongo import AsyncMongoClient, MongoClient

from monque_core import (
    InvalidJobError,
    Job,
    JobSelector,
    LocalMongo,
    Monque,
    MonqueConnectionError,
    MonqueError,
)
from monque_di import MonqueContainer, MonqueService, job, lifespan
from tests.support.leftovers import Leftovers
from tests.support.stored import jobs_in, stored, stored_jobs
from tests.support.tally import Tally
from tests.support.task_records import declare, put_record
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.local.node import Node

OF_THE_LIFECYCLE = {"initialize", "start", "stop", "run"}
"""What the container does, and no one else."""

FORWARDED = sorted(
    name
    for name, method in inspect.getmembers(Monque, inspect.iscoroutinefunction)
    if method.__module__.startswith("monque_core.")
    and not name.startswith("_")
    and name not in OF_THE_LIFECYCLE
)
every_method = pytest.mark.parametrize("name", FORWARDED)


class TestItsMethods:
    def test_are_all_that_use_the_queue(self) -> None:
        assert {"enqueue", "enqueue_many", "now", "schedule", "unschedule"} <= set(FORWARDED)
        assert [name for name in FORWARDED if not hasattr(MonqueService, name)] == []
        assert not any(hasattr(MonqueService, name) for name in OF_THE_LIFECYCLE)

    @every_method
    def test_look_like_those_of_monque(self, name: str) -> None:
        mine, original = getattr(MonqueService, name), getattr(Monque, name)
        assert inspect.signature(mine) == inspect.signature(original)
        assert inspect.getdoc(mine) == inspect.getdoc(original)
        assert mine.__name__ == name
        assert inspect.iscoroutinefunction(mine)

    @pytest.fixture
    def container(self, db: AsyncDatabase[dict[str, Any]]) -> Any:
        return MonqueContainer(connection=providers.Object(db), options={"process_jobs": False})

    async def test_hand_every_option_on(
        self, container: Any, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        at = datetime(2040, 1, 2, 3, 4, 5, tzinfo=UTC)
        options = {"priority": 7, "max_retries": 2, "timeout": 1.5, "unique_key": "one"}
        async with lifespan(container):
            service = container.service()
            single = await service.enqueue("send", {"to": "me"}, run_at=at, **options)
            again = await service.enqueue("send", {"to": "me"}, **options)
            many = await service.enqueue_many(
                "send", [1, 2, 1], delay=timedelta(hours=1), unique_key=str, priority=1
            )
            at_once = await service.now("send", 3)
            schedule = await service.schedule(
                "0 9 * * *", "send", 4, unique_key="daily", timezone="Asia/Kolkata", priority=2
            )
        assert again.deduplicated
        assert [one.data for one in many] == [1, 2, 1]
        assert [one.deduplicated for one in many] == [False, False, True]
        found = await stored(db, single)
        assert (found.next_run_at, found.data) == (at, {"to": "me"})
        assert (found.priority, found.max_retries, found.unique_key) == (7, 2, "one")
        assert found.timeout == timedelta(seconds=1.5)
        assert (await stored(db, at_once)).next_run_at <= datetime.now(UTC) + timedelta(minutes=1)
        daily = await stored(db, schedule)
        assert (daily.repeat_interval, daily.unique_key) == ("0 9 * * *", "daily")
        assert daily.priority == 2
        assert daily.next_run_at.astimezone(UTC).strftime("%H:%M") == "03:30"
        assert await jobs_in(db).count_documents({}) == 5

    async def test_take_their_arguments_by_name(
        self, container: Any, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        async with lifespan(container):
            service = container.service()
            await service.enqueue(name="a", data=1)
            await service.enqueue_many(name="b", items=[1])
            await service.now(name="c", data=1)
            await service.schedule(cron="@daily", name="d", data=1)
            assert await service.unschedule(name="d", unique_key=None) == 1
        names = {found.name for found in await stored_jobs(db, status="pending")}
        assert names == {"a", "b", "c"}

    async def test_manage_and_look(self, container: Any, db: AsyncDatabase[dict[str, Any]]) -> None:
        later = datetime(2040, 1, 2, 3, 4, 5, tzinfo=UTC)
        async with lifespan(container):
            service = container.service()
            first, second, third = await service.enqueue_many("send", [1, 2, 3])
            await service.schedule("@daily", "sweep", None)
            await service.reschedule_job(first.id, later)
            await service.cancel_job(second.id)
            assert await service.delete_job(str(third.id))
            assert (await service.get_job(first.id)).next_run_at == later
            assert [found.data for found in await service.get_jobs(name="send")] == [2, 1]
            page = await service.get_jobs_with_cursor(limit=1, sort="created_at")
            assert [found.data for found in page.jobs] == [1]
            assert [found.name for found in await service.get_schedules()] == ["sweep"]
            stats = await service.get_queue_stats("send")
            assert (stats.pending, stats.cancelled, stats.total) == (1, 1, 2)
            views = await service.get_queue_view_summaries()
            assert [(view.name, view.worker) for view in views] == [("send", None), ("sweep", None)]
            assert await service.retry_jobs(JobSelector(name="send")) == 1
            assert await service.cancel_jobs(JobSelector(name="send")) == 2
            await service.retry_job(second.id)
            assert await service.delete_jobs(JobSelector(name="send")) == 2
        assert [found.name for found in await stored_jobs(db)] == ["sweep"]

    async def test_manage_and_look_at_reactive_tasks(
        self, container: Any, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        await declare(db)
        await put_record(db, 1, status="failed", lastError="ValueError: no")
        await put_record(db, 2)
        async with lifespan(container):
            service = container.service()
            page = await service.get_reactive_tasks(name="invoice", limit=1)
            assert ([found.source_id for found in page.tasks], page.has_next) == ([2], True)
            assert await service.count_reactive_tasks(error="ValueError") == 1
            assert await service.retry_reactive_tasks(collection="orders", source_id=1) == 1
            await service.reconcile("invoice")
            stats = await service.get_reactive_stats()
            with pytest.raises(MonqueError, match="unknown reactive task 'unknown'"):
                await service.reconcile("unknown")
        assert [(one.name, one.pending, one.completed) for one in stats.tasks] == [
            ("invoice", 1, 1)
        ]
        assert stats.tasks[0].reconciling

    async def test_take_part_in_a_transaction(
        self,
        container: Any,
        client: AsyncMongoClient[dict[str, Any]],
        db: AsyncDatabase[dict[str, Any]],
    ) -> None:
        async with lifespan(container), client.start_session() as session:
            await session.start_transaction()
            await container.service().enqueue("undone", 1, session=session)
            await session.abort_transaction()
            await session.start_transaction()
            await container.service().enqueue("done", 1, session=session)
            await session.commit_transaction()
        assert [found.name for found in await stored_jobs(db)] == ["done"]

    async def test_raise_what_monque_raises(self, container: Any) -> None:
        async with lifespan(container):
            with pytest.raises(InvalidJobError, match="name"):
                await container.service().enqueue("", 1)
            with pytest.raises(TypeError, match="prio"):
                await container.service().enqueue("send", 1, prio=1)


class TestBeforeTheStart:
    @every_method
    async def test_raises_and_says_what_to_do(self, name: str) -> None:
        with pytest.raises(MonqueError, match=r"not started.*lifespan\(container\)"):
            await _called(MonqueContainer().service(), name)

    def test_is_there_without_an_event_loop_and_not_healthy(self) -> None:
        service = MonqueContainer().service()
        assert isinstance(service, MonqueService)
        assert service.is_healthy is False
        with pytest.raises(MonqueError, match="not started"):
            _ = service.monque

    async def test_may_be_injected_and_used_once_it_is_started(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        class Signup:
            def __init__(self, queue: MonqueService) -> None:
                self.queue = queue

        class App(containers.DeclarativeContainer):
            monque = providers.Container(MonqueContainer, connection=providers.Object(db))
            signup = providers.Singleton(Signup, monque.service)

        app = App()
        signup = app.signup()
        for number in range(2):
            async with lifespan(app):
                await signup.queue.enqueue("welcome", number)
                assert app.signup() is signup
                assert app.monque.service() is signup.queue
        assert [found.data for found in await stored_jobs(db)] == [0, 1]


class TestAfterTheStop:
    async def test_raises_as_before_the_start(self, db: AsyncDatabase[dict[str, Any]]) -> None:
        container = MonqueContainer(connection=providers.Object(db))
        async with lifespan(container):
            await container.service().enqueue("send", 1)
        for name in FORWARDED:
            with pytest.raises(MonqueError, match="not started"):
                await _called(container.service(), name)
        assert container.service().is_healthy is False

    async def test_still_serves_the_jobs_that_finish(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        started: Tally[int] = Tally()
        is_over = asyncio.Event()

        @job(name="split")
        class Split:
            def __init__(self, queue: MonqueService) -> None:
                self.queue = queue

            async def handle(self, job: Job[int]) -> None:
                started.add(job.data)
                await is_over.wait()
                await asyncio.sleep(0.1)
                await self.queue.enqueue("part", job.data)

        container = MonqueContainer(connection=providers.Object(db), jobs=[Split])
        async with lifespan(container):
            await container.service().enqueue("split", 1)
            await started.reach(1)
            is_over.set()
        (part,) = await stored_jobs(db, name="part")
        assert part.data == 1


class TestDisabled:
    async def test_raises_and_says_so(self) -> None:
        container = MonqueContainer(options={"enabled": False})
        async with lifespan(container):
            for name in FORWARDED:
                with pytest.raises(MonqueError, match=r"disabled: set the option enabled to True"):
                    await _called(container.service(), name)
            with pytest.raises(MonqueError, match="disabled"):
                _ = container.service().is_healthy


class TestHealth:
    async def test_of_a_worker_lasts_from_its_start_to_its_stop(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        container: Any = MonqueContainer(connection=providers.Object(db))
        service = container.service()
        async with lifespan(container):
            assert service.is_healthy is True
            await service.monque.stop()
            assert service.is_healthy is False
        assert service.is_healthy is False

    async def test_of_a_producer_needs_no_running_scheduler(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        container: Any = MonqueContainer(
            connection=providers.Object(db), options={"process_jobs": False}
        )
        async with lifespan(container):
            assert container.service().is_healthy is True
            assert not container.service().monque.is_running
        assert container.service().is_healthy is False

    @pytest.mark.parametrize("how", ["killed", "frozen"])
    async def test_of_a_producer_is_lost_with_mongodb_and_comes_back_with_it(
        self, frail_mongo: LocalMongo, node: Node, how: str
    ) -> None:
        leftovers = Leftovers()
        patience: dict[str, Any] = {"serverSelectionTimeoutMS": 1000, "socketTimeoutMS": 1000}
        with MongoClient[dict[str, Any]](frail_mongo.uri, **patience) as client:
            container: Any = MonqueContainer(
                connection=providers.Object(client[f"producer_{uuid4().hex}"]),
                options={"process_jobs": False},
            )
            async with lifespan(container):
                service = container.service()
                assert service.is_healthy is True
                node.kill() if how == "killed" else node.suspend()
                with pytest.raises(MonqueConnectionError):
                    await service.enqueue("send", 1)
                assert service.is_healthy is False
                node.start() if how == "killed" else node.resume()
                await eventually(lambda: _stores(service))
                assert service.is_healthy is True
        assert not leftovers.tasks
        assert not leftovers.threads

    async def test_of_a_worker_is_lost_with_mongodb_and_comes_back_with_it(
        self, frail_mongo: LocalMongo, node: Node
    ) -> None:
        patience: dict[str, Any] = {"serverSelectionTimeoutMS": 1000, "socketTimeoutMS": 1000}
        async with AsyncMongoClient[dict[str, Any]](frail_mongo.uri, **patience) as client:
            container: Any = MonqueContainer(
                connection=providers.Object(client[f"worker_{uuid4().hex}"]),
                options={"heartbeat_interval": 0.2},
            )
            async with lifespan(container):
                service = container.service()
                node.kill()
                await eventually(lambda: service.is_healthy is False)
                node.start()
                await eventually(lambda: service.is_healthy is True)


async def _called(service: MonqueService, name: str) -> Any:
    """Call a method with something for every argument that it must have."""
    method = getattr(service, name)
    parameters = inspect.signature(method).parameters.values()
    return await method(*("x" for needed in parameters if needed.default is needed.empty))


async def _stores(service: MonqueService) -> bool:
    try:
        await service.enqueue("send", 2)
    except MonqueConnectionError:
        return False
    return True
