"""Group commit: jobs that are enqueued while another insert is running."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pymongo
import pytest
from pymongo import AsyncMongoClient
from pymongo.errors import WriteError

from monque_core import InvalidJobError, Monque
from tests.support.commands import CommandLog
from tests.support.stored import jobs_in, stored_jobs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from pymongo.asynchronous.database import AsyncDatabase

    from tests.conftest import AnyDatabase

    Db = AsyncDatabase[dict[str, Any]]

KEYS: dict[str, Callable[[int], str | None]] = {"plain": lambda _: None, "keyed": str}


@pytest.fixture
async def log() -> CommandLog:
    return CommandLog()


@pytest.fixture
async def monque(uri: str, database_name: str, log: CommandLog) -> AsyncIterator[Monque]:
    async with AsyncMongoClient[dict[str, Any]](uri, event_listeners=[log]) as client:
        monque = Monque(client[database_name])
        await monque.initialize()
        log.sent.clear()
        yield monque


@pytest.mark.parametrize("kind", KEYS)
async def test_concurrent_jobs_are_each_stored_once(any_db: AnyDatabase, db: Db, kind: str) -> None:
    monque, key = Monque(any_db), KEYS[kind]

    jobs = await asyncio.gather(
        *(
            monque.enqueue(f"work-{n % 3}", n, unique_key=key(n), priority=n % 2, max_retries=n + 1)
            for n in range(120)
        )
    )
    await monque.stop()

    assert [job.data for job in jobs] == list(range(120))
    assert not any(job.deduplicated for job in jobs)
    assert await stored_jobs(db) == sorted(jobs, key=lambda job: job.id)


async def test_jobs_that_wait_for_a_write_share_the_next_one(
    monque: Monque, log: CommandLog
) -> None:
    await asyncio.gather(*(monque.enqueue("work", n) for n in range(100)))
    assert log.count() == {"insert": 2}

    log.sent.clear()
    await asyncio.gather(*(monque.enqueue("work", n, unique_key=str(n)) for n in range(100)))
    assert log.count() == {"findAndModify": 1, "update": 1}

    log.sent.clear()
    for number in range(3):
        await monque.enqueue("work", number)
    assert log.count() == {"insert": 3}


async def test_concurrent_calls_with_one_key_store_one_job(monque: Monque, db: Db) -> None:
    jobs = await asyncio.gather(
        *(monque.enqueue(f"work-{n % 2}", n, unique_key="same") for n in range(40))
    )

    for name in ("work-0", "work-1"):
        (kept,) = await stored_jobs(db, name=name)
        of_name = [job for job in jobs if job.name == name]
        assert {job.id for job in of_name} == {kept.id}
        assert [job.deduplicated for job in of_name].count(False) == 1


@pytest.mark.parametrize("kind", KEYS)
async def test_a_refused_job_fails_only_its_own_caller(monque: Monque, db: Db, kind: str) -> None:
    await db.command("collMod", jobs_in(db).name, validator={"data.bad": {"$exists": False}})
    key = KEYS[kind]
    bad = {3, 7}

    results = await asyncio.gather(
        *(
            monque.enqueue("work", {"bad" if n in bad else "good": n}, unique_key=key(n))
            for n in range(10)
        ),
        return_exceptions=True,
    )

    failed = {n for n, result in enumerate(results) if isinstance(result, BaseException)}
    assert failed == bad
    for n in bad:
        # The same as for a job that is enqueued alone.
        assert type(results[n]) is type(await _refusal(monque, key(n)))
    good = sorted(set(range(10)) - bad)
    assert [job.data["good"] for job in await stored_jobs(db)] == good


async def _refusal(monque: Monque, key: str | None) -> BaseException:
    with pytest.raises(pymongo.errors.PyMongoError) as refused:
        await monque.enqueue("work", {"bad": 0}, unique_key=key)
    assert isinstance(refused.value, (WriteError, pymongo.errors.OperationFailure))
    return refused.value


async def test_a_cancelled_caller_does_not_affect_others(monque: Monque, db: Db) -> None:
    tasks = [asyncio.create_task(monque.enqueue("work", n)) for n in range(6)]
    await asyncio.sleep(0)
    # The last two wait for the first one's write, and are in no batch yet.
    for task in tasks[4:]:
        task.cancel()
    stored = await asyncio.gather(*tasks, return_exceptions=True)

    assert [isinstance(one, asyncio.CancelledError) for one in stored] == [False] * 4 + [True] * 2
    assert [job.data for job in await stored_jobs(db)] == [0, 1, 2, 3]


async def test_jobs_in_a_transaction_are_not_batched(
    monque: Monque, db: Db, client: AsyncMongoClient[dict[str, Any]]
) -> None:
    elsewhere = Monque(db)

    async def within() -> None:
        async with client.start_session() as session, await session.start_transaction():
            await asyncio.gather(
                elsewhere.enqueue("work", "committed", session=session),
                *(elsewhere.enqueue("work", "at once") for _ in range(5)),
            )
            await session.abort_transaction()

    await within()
    await elsewhere.stop()

    assert [job.data for job in await stored_jobs(db)] == ["at once"] * 5


async def test_a_caller_with_its_own_deadline_is_not_batched(
    monque: Monque, log: CommandLog
) -> None:
    async def in_time(number: int) -> None:
        with pymongo.timeout(10):
            await monque.enqueue("work", number)

    await asyncio.gather(*(in_time(n) for n in range(3)))

    assert log.count() == {"insert": 3}


def test_one_monque_serves_one_event_loop_after_another(blocking_db: Any) -> None:
    monque = Monque(blocking_db)

    async def some() -> None:
        await asyncio.gather(*(monque.enqueue("work", n) for n in range(5)))

    async def cut_short() -> None:
        asyncio.get_running_loop().create_task(some())  # It is left behind.
        await asyncio.sleep(0)

    async def the_last() -> None:
        await some()
        await monque.stop()

    asyncio.run(some())
    asyncio.run(cut_short())
    asyncio.run(the_last())

    assert blocking_db["monque_jobs"].count_documents({}) >= 10


async def test_a_key_held_by_garbage_fails_only_callers_with_that_key(
    monque: Monque, db: Db
) -> None:
    await jobs_in(db).insert_one({"name": "work", "status": "pending", "uniqueKey": ["taken", "x"]})

    first, taken, free = await asyncio.gather(
        *(monque.enqueue("work", key, unique_key=key) for key in ("first", "taken", "free")),
        return_exceptions=True,
    )

    assert isinstance(taken, InvalidJobError)
    for job in (first, free):
        assert not isinstance(job, BaseException)
        assert not job.deduplicated
        assert await jobs_in(db).count_documents({"uniqueKey": job.data, "_id": job.id}) == 1
