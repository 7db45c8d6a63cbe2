"""The plugin as a project sees it: pytest in a process of its own."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from monque_core.local.node import free_port
from tests.support.tally import Tally
from tests.support.trial import SETTINGS, Project

if TYPE_CHECKING:
    from pathlib import Path

    from pymongo import AsyncMongoClient
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job, LocalMongo, Monque, MonqueOptions, SyncMonque
    from monque_core.testing import MovableClock

_CONFTEST = """
from datetime import UTC, datetime

import pytest

from monque_core.testing import MovableClock

pytest_plugins = ["monque_core.testing"]

@pytest.fixture
def clock():
    return MovableClock(datetime(2030, 1, 1, tzinfo=UTC))
"""

_MARKED_TESTS = """
import threading
from pathlib import Path

import pytest

from monque_core.testing import assert_enqueued, sync

names = []
left = []

@pytest.mark.asyncio
@pytest.mark.parametrize("number", range(3))
async def test_database(number, monque, monque_db, monque_blocking_db, monque_database_name):
    assert monque_db.name == monque_blocking_db.name == monque_database_name
    assert await monque_db.list_collection_names() == []
    assert (await monque.enqueue("welcome", None)).created_at.year == 2030
    assert monque_blocking_db["monque_jobs"].count_documents({}) == 1
    names.append(monque_database_name)
    Path("names.txt").write_text("\\n".join(names))
    assert number < 2, "also after a failure"

@pytest.mark.asyncio
async def test_async(monque):
    await monque.start()
    left.append(monque)
    await assert_enqueued(monque, "welcome")  # async

def test_sync(sync_monque):
    sync_monque.start()
    left.append(sync_monque)
    sync.assert_enqueued(sync_monque, "welcome")  # sync

def test_nothing_is_left():
    assert [one.is_running for one in left] == [False, False]
    assert not [one.name for one in threading.enumerate() if one.name.startswith("monque")]
"""


class TestMonque:
    async def test_is_not_started(self, monque: Monque) -> None:
        assert not monque.is_running
        await monque.stop()

    async def test_has_a_database_of_its_own(
        self, monque: Monque, monque_db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        assert monque_db.name.startswith("monque_test_")
        assert await monque_db.list_collection_names() == []
        await monque.enqueue("welcome", None)
        assert await monque_db["monque_jobs"].count_documents({}) == 1

    async def test_sees_a_moved_clock_while_it_runs(
        self, monque: Monque, clock: MovableClock
    ) -> None:
        runs = Tally[str]()

        @monque.worker("remind")
        async def remind(job: Job[str]) -> None:
            runs.add(job.data)

        async with monque:
            await monque.enqueue("remind", "Ada", delay=timedelta(days=30))
            clock.advance(timedelta(days=30))
            await runs.reach(1)

    async def test_counts_its_jobs_anew_each_time(self, monque: Monque) -> None:
        for count in range(3):
            assert (await monque.get_queue_stats()).total == count
            await monque.enqueue("welcome", None)


class TestOptions:
    @pytest.fixture
    def monque_options(self) -> MonqueOptions:
        """Return options that differ from the defaults."""
        return {"collection_name": "chores", "scheduler_instance_id": "under-test"}

    async def test_are_those_of_the_overriding_fixture(
        self, monque: Monque, monque_db: AsyncDatabase[dict[str, Any]], clock: MovableClock
    ) -> None:
        job = await monque.enqueue("welcome", None)
        assert await monque_db["chores"].count_documents({"_id": job.id}) == 1
        assert monque.scheduler_instance_id == "under-test"
        assert job.created_at == clock.now()

    def test_are_those_of_a_sync_monque_too(
        self, sync_monque: SyncMonque, clock: MovableClock
    ) -> None:
        assert sync_monque.scheduler_instance_id == "under-test"
        assert sync_monque.enqueue("welcome", None).created_at == clock.now()


async def test_a_project_whose_tests_pass_and_fail_is_left_clean(
    tmp_path: Path, uri: str, client: AsyncMongoClient[dict[str, Any]]
) -> None:
    project = Project(tmp_path, uri)
    project.write("conftest.py", _CONFTEST)
    project.write("pyproject.toml", SETTINGS.replace('"auto"', '"strict"'))
    project.write("test_marked.py", _MARKED_TESTS)

    verdict = project.run()

    assert verdict.summary == "3 failed, 3 passed", verdict.text
    names = (tmp_path / "names.txt").read_text().splitlines()
    assert len(set(names)) == 3
    assert not set(names) & set(await client.list_database_names())
    # A failed assertion is shown in the test, not in the plugin.
    for kind in ("async", "sync"):
        (line,) = [n for n, text in enumerate(_MARKED_TESTS.splitlines(), 1) if f"# {kind}" in text]
        assert f"\ntest_marked.py:{line}: AssertionError" in verdict.text
    assert "monque_core/testing" not in verdict.text


def test_a_server_is_started_once_when_it_is_needed_and_ended(tmp_path: Path) -> None:
    project = Project(tmp_path, uri=None)
    project.write(
        "test_server.py",
        """
import json
from pathlib import Path

uris = []

async def test_first(monque, monque_uri):
    await monque.enqueue("welcome", None)
    uris.append(monque_uri)

def test_second(sync_monque, monque_uri, monque_mongo):
    sync_monque.enqueue("welcome", None)
    assert uris == [monque_uri] == [monque_mongo.uri]
    Path("pids.json").write_text(json.dumps([node.pid for node in monque_mongo.nodes]))
""",
    )

    verdict = project.run()

    assert verdict.summary == "2 passed", verdict.text
    assert "tests use the MongoDB at" not in verdict.text
    (pid,) = json.loads((tmp_path / "pids.json").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_no_server_is_started_for_tests_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MONQUE_MONGOD", "/there/is/none")
    project = Project(tmp_path, uri=None)
    project.write("test_some.py", "def test_a(): pass\n\ndef test_b(monque_uri): pass\n")

    verdict = project.run()

    assert verdict.summary == "1 passed, 1 error", verdict.text
    assert "/there/is/none" in verdict.text


def test_plugin_and_server_may_be_named_on_the_command_line(tmp_path: Path, uri: str) -> None:
    project = Project(tmp_path, uri="mongodb://127.0.0.1:1/")
    project.write("conftest.py", "")
    project.write("test_it.py", "async def test_it(monque):\n    await monque.initialize()\n")

    verdict = project.run("-p", "monque_core.testing", "--monque-uri", uri)

    assert verdict.summary == "1 passed", verdict.text
    address = uri.removeprefix("mongodb://").partition("/")[0]
    assert f"monque: tests use the MongoDB at {address}\n" in verdict.text


def test_a_server_that_cannot_be_used_is_reported_without_its_password(tmp_path: Path) -> None:
    port = free_port()
    project = Project(tmp_path, uri=f"mongodb://ada:secret@127.0.0.1:{port}/?authSource=admin")
    project.write(
        "test_it.py", "def test_a(monque_blocking_db): pass\n\ndef test_b(sync_monque): pass\n"
    )

    verdict = project.run("--tb=line")

    assert verdict.summary == "2 errors", verdict.text
    assert f"monque: tests use the MongoDB at 127.0.0.1:{port}\n" in verdict.text
    assert "from --monque-uri or MONGODB_URI" in verdict.text
    assert "secret" not in verdict.text


def test_a_project_that_does_not_name_it_does_not_even_import_monque(
    tmp_path: Path, uri: str
) -> None:
    project = Project(tmp_path, uri)
    project.write("conftest.py", "")
    project.write(
        "test_it.py", "import sys\n\ndef test_it(): assert 'monque_core' not in sys.modules\n"
    )

    verdict = project.run(installed_plugins=True)

    assert verdict.summary == "1 passed", verdict.text


def test_our_own_suite_uses_it(pytestconfig: pytest.Config, uri: str, monque_uri: str) -> None:
    assert pytestconfig.pluginmanager.hasplugin("monque_core.testing")
    assert uri == monque_uri


def test_its_server_is_that_of_our_own_suite(mongo: LocalMongo, monque_mongo: LocalMongo) -> None:
    assert mongo is monque_mongo
