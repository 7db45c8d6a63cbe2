from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from monque_core.errors import MonqueConnectionError, MonqueError
from monque_core.local import LocalMongo

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def own() -> Iterator[LocalMongo]:
    with LocalMongo() as mongo:
        yield mongo


@pytest.fixture
def impatient(own: LocalMongo) -> Iterator[MongoClient[dict[str, Any]]]:
    with MongoClient[dict[str, Any]](own.uri, timeoutMS=500, serverMonitoringMode="poll") as client:
        client.admin.command("ping")
        yield client


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_a_node_comes_back_on_its_port_with_its_data(own: LocalMongo, ending: str) -> None:
    (node,) = own.nodes
    port, pid = node.port, node.pid
    with MongoClient[dict[str, Any]](own.uri, w="majority") as client:
        client.test[ending].insert_one({"_id": 1})

        getattr(node, ending)()
        assert not node.running

        node.start()
        assert node.running
        assert node.port == port
        assert node.pid != pid
        assert client.test[ending].find_one() == {"_id": 1}


def test_a_suspended_node_answers_again_when_resumed(
    own: LocalMongo, impatient: MongoClient[dict[str, Any]]
) -> None:
    (node,) = own.nodes
    node.suspend()
    node.suspend()
    try:
        assert node.running
        with pytest.raises(PyMongoError):
            impatient.test.things.find_one()
    finally:
        node.resume()

    with MongoClient[dict[str, Any]](own.uri) as client:
        assert client.admin.command("ping")["ok"] == 1


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_a_suspended_node_can_be_ended(own: LocalMongo, ending: str) -> None:
    (node,) = own.nodes
    node.suspend()
    getattr(node, ending)()
    assert not node.running
    node.start()


def test_a_stop_is_clean(own: LocalMongo) -> None:
    (node,) = own.nodes
    node.stop()

    assert b"Now exiting" in node.log_path.read_bytes()
    node.start()


def test_ending_a_stopped_node_does_nothing_and_other_calls_are_refused(own: LocalMongo) -> None:
    (node,) = own.nodes
    with pytest.raises(MonqueError, match="is running already"):
        node.start()
    node.kill()
    node.kill()
    node.stop()
    with pytest.raises(MonqueError, match="is not running"):
        node.suspend()
    with pytest.raises(MonqueError, match="is not running"):
        node.resume()
    node.start()


def test_a_program_that_is_not_mongod_is_reported_with_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "mongod"
    program.write_text("#!/bin/sh\necho no such library >&2\nexit 7\n")
    program.chmod(0o755)
    monkeypatch.setenv("MONQUE_MONGOD", str(program))

    with pytest.raises(MonqueConnectionError, match=r"(?s)ended with code 7.*no such library"):
        LocalMongo().start()


def test_a_program_that_cannot_be_run_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "mongod"
    program.write_bytes(b"\x7fELF nonsense")
    program.chmod(0o755)
    monkeypatch.setenv("MONQUE_MONGOD", str(program))

    with pytest.raises(MonqueConnectionError, match="Exec format error"):
        LocalMongo().start()


def test_a_node_of_a_stopped_mongo_cannot_be_used() -> None:
    with LocalMongo() as mongo:
        (node,) = mongo.nodes
    with pytest.raises(MonqueConnectionError, match="was stopped"):
        node.start()
