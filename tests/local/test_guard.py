"""The servers and their directory end with the owner, whatever ends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

import pytest

from monque_core.errors import MonqueConnectionError
from monque_core.local import LocalMongo

OWNER = """
import json, os, sys, time
from monque_core.local import LocalMongo

mongo = LocalMongo(**json.loads(sys.argv[1]))
mongo.start()
print(json.dumps([[node.pid, str(node.path)] for node in mongo.nodes]), flush=True)
"""


class Owner:
    """A process that starts a LocalMongo, then runs `then`."""

    def __init__(self, then: str, **arguments: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWNER + then, json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        nodes = json.loads(self.says())
        self.pids = [pid for pid, _ in nodes]
        self.paths = [Path(path) for _, path in nodes]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self.process:
            self.process.kill()

    def says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def left_behind(self) -> list[object]:
        servers = [pid for pid in self.pids if _alive(pid)]
        return [*servers, *(path for path in self.paths if path.parent.exists())]

    def leaves_nothing(self) -> bool:
        deadline = time.monotonic() + 120
        while self.left_behind() and time.monotonic() < deadline:
            time.sleep(0.02)
        return not self.left_behind()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_killed_owner_leaves_neither_servers_nor_a_directory() -> None:
    with Owner("time.sleep(60)", replicas=2) as owner:
        assert len(owner.left_behind()) == 4
        owner.process.send_signal(signal.SIGKILL)
        owner.process.wait()

        assert owner.leaves_nothing()


def test_a_killed_owner_leaves_nothing_of_nodes_that_ended_before_it() -> None:
    with Owner("mongo.nodes[0].kill(); print(flush=True); time.sleep(60)") as owner:
        owner.says()
        owner.process.send_signal(signal.SIGKILL)
        owner.process.wait()

        assert owner.leaves_nothing()


def test_a_killed_owner_also_ends_suspended_servers() -> None:
    with Owner("mongo.nodes[0].suspend(); print(flush=True); time.sleep(60)") as owner:
        owner.says()
        owner.process.send_signal(signal.SIGKILL)
        owner.process.wait()

        assert owner.leaves_nothing()


def test_a_killed_owner_leaves_a_kept_path_in_order(tmp_path: Path) -> None:
    with Owner("time.sleep(60)", path=str(tmp_path)) as owner:
        owner.process.send_signal(signal.SIGKILL)
        owner.process.wait()
        deadline = time.monotonic() + 120
        while any(_alive(pid) for pid in owner.pids):
            assert time.monotonic() < deadline
            time.sleep(0.02)

    assert b"Now exiting" in (tmp_path / "node-0.log").read_bytes()


@pytest.mark.parametrize(
    "then", ["", "raise SystemExit(0)", "import threading; threading.Thread(target=int).start()"]
)
def test_an_owner_that_ends_without_a_stop_leaves_nothing(then: str) -> None:
    with Owner(then) as owner:
        assert owner.process.wait(120) == 0
        assert owner.left_behind() == []


def test_an_owner_interrupted_from_the_terminal_leaves_nothing() -> None:
    wait = """
try:
    print("waiting", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    print(mongo.nodes[0].running, flush=True)
"""
    with Owner(wait) as owner:
        assert owner.says() == "waiting"
        # In a terminal, Ctrl-C reaches the whole process group, not the owner alone.
        os.killpg(owner.process.pid, signal.SIGINT)
        assert owner.says() == "True"
        assert owner.process.wait(120) == 0
        assert owner.left_behind() == []


def test_a_forked_child_neither_stops_the_servers_nor_keeps_them_alive() -> None:
    fork = """
child = os.fork()
if child == 0:
    mongo.stop()
    os.close(1)
    time.sleep(60)
    os._exit(0)
print(child, mongo.nodes[0].running, flush=True)
time.sleep(60)
"""
    with Owner(fork) as owner:
        child, running = owner.says().split()
        try:
            assert running == "True"
            owner.process.send_signal(signal.SIGKILL)
            owner.process.wait()
            assert owner.leaves_nothing()
            assert _alive(int(child))
        finally:
            os.kill(int(child), signal.SIGKILL)


def test_starting_in_a_thread_that_ends_does_not_end_the_servers() -> None:
    in_thread = """
import threading
other = LocalMongo()
thread = threading.Thread(target=other.start)
thread.start()
thread.join()
time.sleep(0.3)
print(other.nodes[0].running, flush=True)
"""
    with Owner(in_thread) as owner:
        assert owner.says() == "True"


@pytest.mark.skipif(sys.platform != "linux", reason="needs the parent-death signal of Linux")
def test_a_killed_guard_takes_the_servers_with_it_and_is_reported() -> None:
    mongo = LocalMongo()
    mongo.start()
    (node,) = mongo.nodes
    guard = int(Path(f"/proc/{node.pid}/stat").read_text().split(")")[1].split()[1])
    os.kill(guard, signal.SIGKILL)
    deadline = time.monotonic() + 120
    while _alive(node.pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)

    with pytest.raises(MonqueConnectionError, match="ended unexpectedly, with code -9"):
        _ = node.running
    mongo.stop()
    assert not node.path.parent.exists()
