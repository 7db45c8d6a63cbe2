"""`monque worker` of an application that dependency-injector puts together."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.pages import blocks
from tests.support.stored import count_by_status

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Monque
    from tests.support.command_line import CommandLine

SHOP = """
import logging
import os

from dependency_injector import containers, providers
from pymongo import AsyncMongoClient

from monque_di import MonqueContainer, job

log = logging.getLogger("shop")


async def connect():
    log.info("pool opened")
    async with AsyncMongoClient(os.environ["MONQUE_URI"]) as client:
        yield client[os.environ["MONQUE_DATABASE"]]
    log.info("pool closed")


class Mailer:
    def send(self, to):
        log.info("hello %s", to)


@job(name="greet")
class Greet:
    def __init__(self, mailer: Mailer):
        self.mailer = mailer

    async def handle(self, job):
        self.mailer.send(job.data)


@job(name="broken")
class Broken:
    def __init__(self, nothing): ...

    async def handle(self, job): ...


class App(containers.DeclarativeContainer):
    db = providers.Resource(connect)
    mailer = providers.Singleton(Mailer)
    monque = providers.Container(
        MonqueContainer, connection=db, jobs=[Greet], options={"heartbeat_interval": 1}
    )


def fail():
    raise RuntimeError("no configuration")


class Miswired(App):
    monque = providers.Container(MonqueContainer, connection=App.db, jobs=[Broken])


class Unable(App):
    certificate = providers.Resource(fail)


class WebOnly(App):
    monque = providers.Container(
        MonqueContainer, connection=App.db, options={"process_jobs": False}
    )


class Empty(containers.DeclarativeContainer): ...


container = App()
service = container.monque.service()
mailer = container.mailer


def make_container():
    return App()
"""


@pytest.fixture
def shop(monque: CommandLine) -> CommandLine:
    """Return the command, in a directory with an application package."""
    package = monque.directory / "shop"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "app.py").write_text(SHOP, encoding="utf-8")
    return monque


@pytest.mark.parametrize(
    "attribute", ["container", "container.monque", "service", "App", "make_container"]
)
async def test_runs_its_jobs_between_the_start_and_the_end_of_its_resources(
    attribute: str, shop: CommandLine, queue: Monque, db: AsyncDatabase[dict[str, Any]]
) -> None:
    await queue.enqueue("greet", "Ada")

    async with shop.start("worker", f"shop.app:{attribute}") as worker:
        await worker.hear("hello Ada")
        await worker.hear("is up")
        worker.signal()
        assert await worker.end() == 0, worker.output

    steps = [
        "pool opened",
        "connecting to MongoDB",
        "hello Ada",
        "finishing the jobs",
        "stopped",
        "pool closed",
    ]
    assert worker.told("|".join(steps)) == steps
    assert await count_by_status(db) == {"completed": 1}


@pytest.mark.skipif(sys.platform == "win32", reason="--processes needs POSIX")
async def test_runs_in_several_processes(shop: CommandLine) -> None:
    async with shop.start("worker", "shop.app:container", "--processes", "2") as worker:
        instances = await worker.hear(r"instance (\S+) is up", 2)
        worker.signal()
        assert await worker.end() == 0, worker.output

    assert len(set(instances)) == 2
    assert len(worker.told("pool closed")) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="--reload needs POSIX")
async def test_starts_anew_when_its_sources_change(shop: CommandLine, queue: Monque) -> None:
    source = shop.directory / "shop" / "app.py"

    async with shop.start("worker", "shop.app:container", "--reload") as worker:
        await worker.hear("is up")
        source.write_text(SHOP.replace("hello", "welcome"), encoding="utf-8")
        await worker.hear("pool closed")
        await worker.hear("is up", 2)
        await queue.enqueue("greet", "Ada")
        await worker.hear("welcome Ada")
        worker.signal()
        assert await worker.end() == 0, worker.output


async def test_a_signal_ends_a_start_that_waits_for_mongodb(shop: CommandLine) -> None:
    nowhere = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=3600000"
    async with shop.start("worker", "shop.app:container", MONQUE_URI=nowhere) as worker:
        await worker.hear("pool opened")
        worker.signal()
        assert await worker.end() == 0, worker.output
    assert "pool closed" in worker.output


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ("Miswired", "Broken → nothing → no provider"),
        ("WebOnly", "does not process jobs: set its options enabled and process_jobs"),
        ("Empty", "contains no MonqueContainer"),
        ("mailer", "a container or a MonqueService"),
    ],
)
async def test_what_cannot_run_is_reported_without_a_traceback(
    attribute: str, expected: str, shop: CommandLine
) -> None:
    result = await shop.process("worker", f"shop.app:{attribute}")

    assert result.code == 2
    assert expected in result.err


async def test_an_error_of_a_resource_is_reported_with_its_traceback(shop: CommandLine) -> None:
    async with shop.start("worker", "shop.app:Unable") as worker:
        assert await worker.end() == 2

    assert "shop.app:Unable cannot be started" in worker.output
    assert "RuntimeError: no configuration" in worker.output
    assert str(shop.directory / "shop" / "app.py") in worker.output


async def test_runs_the_worker_process_of_the_tutorial(shop: CommandLine, queue: Monque) -> None:
    (program,) = [
        block
        for block in blocks("python service")
        if block.page == "docs/di/tutorial.md" and "container = App()" in block.code
    ]
    (shop.directory / "shop" / "app.py").write_text(program.code, encoding="utf-8")
    await queue.enqueue("greet", "Ada")
    uri = shop.environment["MONQUE_URI"].replace("/?", f"/{shop.environment['MONQUE_DATABASE']}?")

    async with shop.start("worker", "shop.app:container", MONGODB_URI=uri) as worker:
        await worker.hear("hello Ada")
        worker.signal()
        assert await worker.end() == 0, worker.output

    assert worker.told("(?m)^(starting|hello Ada|stopped)$") == ["starting", "hello Ada", "stopped"]
