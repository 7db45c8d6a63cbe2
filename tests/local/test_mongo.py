from __future__ import annotations

import asyncio
import gc
import os
import random
import socket
import threading
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import pytest
from pymongo import AsyncMongoClient, MongoClient
from pymongo.errors import AutoReconnect, OperationFailure

from monque_core.errors import MonqueConnectionError, MonqueError
from monque_core.local import LocalMongo
from monque_core.local.node import free_port

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from monque_core.local import Node


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_database_for_the_length_of_a_block() -> None:
    with LocalMongo() as mongo:
        (node,) = mongo.nodes
        assert node.path.is_dir()
        with MongoClient[dict[str, Any]](mongo.uri) as client:
            client.test.things.insert_one({"_id": 1})
            assert client.test.things.find_one() == {"_id": 1}

    assert not alive(node.pid)
    assert not node.path.parent.exists()


async def test_a_database_for_the_length_of_an_async_block() -> None:
    async with LocalMongo() as mongo:
        (node,) = mongo.nodes
        async with AsyncMongoClient[dict[str, Any]](mongo.uri) as client:
            await client.test.things.insert_one({"_id": 1})
            assert await client.test.things.find_one() == {"_id": 1}

    assert not alive(node.pid)
    assert not node.path.parent.exists()


async def test_the_event_loop_goes_on_while_it_starts_and_stops() -> None:
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.001)
            turns += 1

    turning = asyncio.create_task(turn())
    async with LocalMongo():
        while_starting, turns = turns, 0
    turning.cancel()

    # A blocked loop would iterate about once.
    assert while_starting > 5
    assert turns > 2


async def test_cancelling_the_start_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = threading.Event()
    pids: list[int] = []

    def form(nodes: Sequence[Node]) -> None:
        pids.extend(node.pid for node in nodes)
        launched.set()

    monkeypatch.setattr("monque_core.local.replica_set.form", form)
    mongo = LocalMongo(path=tmp_path)
    entering = asyncio.create_task(mongo.__aenter__())
    await asyncio.sleep(0)
    entering.cancel()

    with pytest.raises(asyncio.CancelledError):
        await entering
    assert launched.is_set()
    assert not any(alive(pid) for pid in pids)
    with pytest.raises(MonqueError, match="not running"):
        _ = mongo.uri


def test_it_is_a_replica_set_with_change_streams_and_transactions(mongo: LocalMongo) -> None:
    with MongoClient[dict[str, Any]](mongo.uri) as client:
        things = client.local_mongo_test.things
        with things.watch(max_await_time_ms=1000) as stream, client.start_session() as session:
            session.with_transaction(lambda s: things.insert_one({"_id": 1}, session=s))
            assert next(stream)["documentKey"] == {"_id": 1}
        client.drop_database("local_mongo_test")


def test_it_takes_documents_of_the_largest_size(mongo: LocalMongo) -> None:
    with MongoClient[dict[str, Any]](mongo.uri) as client:
        collection = client["large"]["documents"]
        collection.insert_one({"_id": 1, "filling": "x" * ((16 << 20) - 100)})
        assert collection.count_documents({}) == 1
        client.drop_database("large")


def test_standalone_is_a_server_without_a_replica_set() -> None:
    with (
        LocalMongo(standalone=True) as mongo,
        MongoClient[dict[str, Any]](mongo.uri) as client,
    ):
        client.test.things.insert_one({"_id": 1})
        with pytest.raises(OperationFailure, match="replica sets"):
            client.test.things.watch().__enter__()


def test_another_replica_takes_over_when_the_primary_is_killed() -> None:
    with (
        LocalMongo(replicas=3) as mongo,
        MongoClient[dict[str, Any]](mongo.uri, w="majority", heartbeatFrequencyMS=500) as client,
    ):
        client.test.things.insert_one({"_id": 1})
        assert len(client.secondaries) == 2
        assert client.primary is not None
        killed = next(node for node in mongo.nodes if node.port == client.primary[1])
        killed.kill()
        assert not killed.running

        _insert_when_possible(client, {"_id": 2})
        assert client.primary[1] != killed.port

        killed.start()
        assert killed.running
        _wait_until(lambda: len(client.secondaries) == 2)
        assert client.test.things.count_documents({}) == 2


def _insert_when_possible(client: MongoClient[dict[str, Any]], document: dict[str, Any]) -> None:
    # The driver retries writes once, which may not outlast an election.
    for _ in range(20):
        try:
            client.test.things.replace_one({"_id": document["_id"]}, document, upsert=True)
        except AutoReconnect:
            continue
        return
    pytest.fail("no primary took over")


def _wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_path_is_kept_and_found_again_on_other_ports(tmp_path: Path, replicas: int) -> None:
    uris = []
    for visit in range(2):
        with (
            LocalMongo(replicas, tmp_path / "data") as mongo,
            MongoClient[dict[str, Any]](mongo.uri, w="majority") as client,
        ):
            uris.append(mongo.uri)
            assert client.test.things.count_documents({}) == visit
            client.test.things.insert_one({})

    assert len(set(uris)) == 2


def port_of_our_own(count: int = 1) -> int:
    """Return the first of this many free ports outside the range that other tests use."""
    for port in random.sample(range(10_000, 20_000, count), 100):
        with ExitStack() as probes, suppress(OSError):
            for offset in range(count):
                probes.enter_context(socket.socket()).bind(("127.0.0.1", port + offset))
            return port
    pytest.fail("no port is free")


def test_a_path_is_kept_and_found_again_on_the_same_port(tmp_path: Path) -> None:
    port = port_of_our_own()
    mongo = LocalMongo(path=tmp_path, port=port)
    for visit in range(2):
        with mongo, MongoClient[dict[str, Any]](mongo.uri) as client:
            assert [node.port for node in mongo.nodes] == [port]
            assert client.test.things.count_documents({}) == visit
            client.test.things.insert_one({})


def test_a_path_with_another_number_of_replicas_is_refused(tmp_path: Path) -> None:
    with LocalMongo(path=tmp_path):
        pass
    with pytest.raises(MonqueConnectionError, match=r"data of 1 replica\(s\), not 3"):
        LocalMongo(3, tmp_path).start()


def test_a_path_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(MonqueConnectionError, match=r"cannot hold the data: .*File exists"):
        LocalMongo(path=path).start()


def test_a_path_in_use_is_reported_with_the_output_of_mongod(tmp_path: Path) -> None:
    with (
        LocalMongo(path=tmp_path),
        pytest.raises(MonqueConnectionError, match=r"(?s)ended with code 100.*DBPathInUse"),
    ):
        LocalMongo(path=tmp_path).start()


def test_a_given_port_counts_up(tmp_path: Path) -> None:
    port = port_of_our_own(2)
    with LocalMongo(2, port=port) as mongo:
        assert [node.port for node in mongo.nodes] == [port, port + 1]
        assert mongo.uri == f"mongodb://127.0.0.1:{port},127.0.0.1:{port + 1}/?replicaSet=monque"


def test_a_given_port_that_is_taken_is_an_error(mongo: LocalMongo) -> None:
    port = mongo.nodes[0].port
    with pytest.raises(MonqueConnectionError, match=f"127.0.0.1:{port}: the port is taken"):
        LocalMongo(port=port).start()


def test_losing_the_race_for_a_free_port_takes_another(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy = taken.getsockname()[1]
        choices = iter([busy, busy])
        monkeypatch.setattr(
            "monque_core.local.mongo.free_port", lambda: next(choices, None) or free_port()
        )
        with LocalMongo() as mongo:
            assert mongo.nodes[0].port != busy
        assert next(choices, None) is None


def test_starting_twice_is_an_error_and_harmless() -> None:
    with LocalMongo() as mongo:
        uri = mongo.uri
        with pytest.raises(MonqueError, match="is running already"):
            mongo.start()
        with MongoClient[dict[str, Any]](uri) as client:
            client.test.things.insert_one({})


def test_stopping_twice_or_before_the_start_does_nothing() -> None:
    mongo = LocalMongo()
    mongo.stop()
    mongo.start()
    mongo.stop()
    mongo.stop()
    with pytest.raises(MonqueError, match=r"not running; use it in a `with`"):
        _ = mongo.uri


def test_it_can_be_started_again_after_a_stop_and_is_empty_then() -> None:
    mongo = LocalMongo()
    for _ in range(2):
        with mongo, MongoClient[dict[str, Any]](mongo.uri) as client:
            assert client.test.things.count_documents({}) == 0
            client.test.things.insert_one({})


def test_an_unreferenced_one_is_stopped() -> None:
    mongo = LocalMongo()
    mongo.start()
    pid = mongo.nodes[0].pid
    del mongo
    gc.collect()

    assert not alive(pid)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"replicas": 0}, ValueError, "replicas must be between 1 and 7, not 0"),
        ({"replicas": 8}, ValueError, "replicas must be between 1 and 7, not 8"),
        ({"replicas": True}, TypeError, "replicas must be an integer, not True"),
        ({"replicas": "3"}, TypeError, "replicas must be an integer, not '3'"),
        ({"port": -1}, ValueError, "port must be between 0 and 65535, not -1"),
        ({"port": 65535, "replicas": 3}, ValueError, "port must be between 0 and 65533"),
        ({"port": None}, TypeError, "port must be an integer, not None"),
        ({"path": 5}, TypeError, "path must be a path or None, not 5"),
        ({"standalone": True, "replicas": 3}, ValueError, "replicas=3 with standalone=True"),
    ],
)
def test_bad_arguments_are_refused_at_once(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        LocalMongo(**arguments)
