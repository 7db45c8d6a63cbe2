"""The lifecycle messages in the log of an instance."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from pymongo import AsyncMongoClient, MongoClient

from monque_core import Monque, lifecycle
from tests.support.threads import monque_threads
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job
    from tests.conftest import AnyDatabase

    Log = Callable[[], list[str]]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Log:
    """Return what instances have logged so far."""
    caplog.set_level(logging.INFO, "monque")
    return lambda: [
        record.getMessage() for record in caplog.records if record.name == "monque.worker"
    ]


async def test_logs_its_connection_its_workers_and_how_it_stopped(
    any_db: AnyDatabase, uri: str, log: Log
) -> None:
    monque = Monque(any_db, scheduler_instance_id="one", collection_name="work")
    place = f"{urlsplit(uri).netloc}/{any_db.name}.work"

    @monque.worker("mail", concurrency=7)
    async def mail(job: Job[None]) -> None: ...

    @monque.worker("import")
    async def load(job: Job[None]) -> None: ...

    @monque.reactive("orders", name="invoice", concurrency=2)
    async def invoice(task: object) -> None: ...

    names = (
        "jobs import (concurrency 5), mail (concurrency 7); reactive tasks invoice (concurrency 2)"
    )
    async with monque:
        assert log() == [
            f"connecting to MongoDB at {place}",
            f"instance one is up at {place}: {names}",
        ]

    assert log()[2:] == ["finishing the jobs that run: none", "stopped: no job was left running"]


async def test_logs_how_many_jobs_it_left_running(
    db: AsyncDatabase[dict[str, Any]], log: Log
) -> None:
    monque = Monque(db)
    started = asyncio.Event()

    @monque.worker("long")
    async def run(job: Job[None]) -> None:
        started.set()
        await asyncio.Event().wait()

    await monque.start()
    await monque.enqueue("long", None)
    await started.wait()
    await monque.stop(0)

    assert log()[-2:] == [
        "finishing the jobs that run: 1, for at most 0 s",
        "stopped: 1 job(s) did not finish in time and will run again",
    ]


async def test_logs_that_it_has_no_workers(db: AsyncDatabase[dict[str, Any]], log: Log) -> None:
    async with Monque(db):
        pass

    assert log()[1].endswith("no worker is registered, so it runs nothing")


async def test_names_only_some(db: AsyncDatabase[dict[str, Any]], log: Log) -> None:
    monque = Monque(db)
    for number in range(100, 125):
        monque.worker(f"job-{number}", print)

    async with monque:
        assert "job-119 (concurrency 5) and 5 more" in log()[1]


@pytest.mark.parametrize("kind", ["async", "blocking"])
async def test_logs_that_it_waits_and_never_shows_credentials(
    kind: str, absent_uri: str, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "_FIRST", 0.05)
    monkeypatch.setattr(lifecycle, "_LATER", 0.1)
    uri = absent_uri.replace("//", "//user:secret@").replace("MS=100", "MS=5000")
    client: Any = AsyncMongoClient(uri) if kind == "async" else MongoClient(uri)
    host = urlsplit(absent_uri).netloc

    monque = Monque(client["shop"])
    starting = asyncio.create_task(monque.start())
    try:
        await eventually(lambda: len([line for line in log() if "waiting" in line]) >= 2)
    finally:
        starting.cancel()
        await asyncio.wait([starting])
        await client.close() if kind == "async" else client.close()
        await monque.stop()
        # A thread waits for the server as long as the driver does.
        await eventually(lambda: not monque_threads())

    connecting, *waiting, stopped = log()
    assert connecting == f"connecting to MongoDB at {host}/shop.monque_jobs"
    for line in waiting:
        assert line.startswith(f"waiting for MongoDB at {host}/shop.monque_jobs, for 0.")
    assert "[Errno" in waiting[-1]
    assert stopped == "stopped before it was up"
    assert "secret" not in "".join(log())


async def test_logs_that_it_waits_for_its_instance_id(
    db: AsyncDatabase[dict[str, Any]], log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "_FIRST", 0.6)
    dead = Monque(db, scheduler_instance_id="one", heartbeat_interval=10)
    await dead._store.leases.take("instance:one", "another", dead._options.stale_after)

    starting = asyncio.create_task(Monque(db, scheduler_instance_id="one").start())
    try:
        await eventually(lambda: any("the instance id one is not free yet" in x for x in log()))
    finally:
        starting.cancel()
        await asyncio.wait([starting])


async def test_run_until_idle_is_not_logged(db: AsyncDatabase[dict[str, Any]], log: Log) -> None:
    await Monque(db).run_until_idle()
    assert log() == []


async def test_each_start_is_logged_anew(db: AsyncDatabase[dict[str, Any]], log: Log) -> None:
    monque = Monque(db)
    for _ in range(2):
        async with monque:
            pass
    assert [line.split()[0] for line in log()] == [
        *("connecting", "instance", "finishing", "stopped:"),
    ] * 2
