"""`monque worker --processes`: each process that dies is replaced, and all drain together."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest

from monque_core.cli.supervisor import Supervisor
from tests.support.stored import count_by_status, stored_jobs
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Monque
    from tests.support.command_line import CommandLine, Running
    from tests.support.terminal import Terminal

    Db = AsyncDatabase[dict[str, Any]]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="--processes needs POSIX")

UP = r"worker\[(\d+)\] instance \S+ is up"


def is_alive(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:  # noqa: PTH123
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def pids(worker: Running, count: int = 2) -> list[int]:
    """Wait until so many processes have come up, ever, and give their ids."""
    return [int(pid) for pid in await worker.hear(UP, count)]


async def test_a_killed_process_is_replaced_and_sigterm_drains_all(
    monque: CommandLine, queue: Monque, db: Db
) -> None:
    gate = monque.directory / "gate"

    async with monque.start("worker", "shop:monque", "--processes", "2") as worker:
        first, second = await pids(worker)
        os.kill(first, signal.SIGKILL)
        *_, third = await pids(worker, 3)
        assert third not in {first, second}
        assert f"process {first} ended with SIGKILL" in worker.output

        # More than the slots of one process, so that both have some.
        await queue.enqueue_many("wait", [str(gate)] * 8)
        await worker.hear("waiting in", 8)
        assert {int(pid) for pid in worker.told(r"waiting in (\d+)")} == {second, third}
        worker.signal(signal.SIGTERM)
        await worker.hear("finishing the jobs", 2)
        gate.touch()

        assert await worker.end() == 0, worker.output
    await eventually(lambda: not is_alive(second) and not is_alive(third))
    assert await count_by_status(db) == {"completed": 8}


_PATIENT = """
import os

import shop
from monque_core import Monque, ReactiveOptions, SyncMonque
from pymongo import MongoClient

# Recovery by silence comes after half an hour.
OPTIONS = {**shop.OPTIONS, "heartbeat_interval": 600, "lock_timeout": 7200}
PACE = ReactiveOptions(visibility_timeout=3600, leader_lease=3600, flush_interval=0.01)


def monque():
    monque = Monque(shop.database(shop.connect()), reactive_options=PACE, **OPTIONS)

    @monque.reactive("orders", name="ship", debounce=0)
    async def ship(task):
        shop.log.info("shipping in %d", os.getpid())
        document = await task.document()
        if document["kills"] == os.getpid():
            os.kill(os.getpid(), 9)
        shop.log.info("shipped")

    return shop.handle(monque)


def with_an_id():
    return shop.handle(
        Monque(shop.database(shop.connect()), scheduler_instance_id="only", **OPTIONS)
    )


def blocking():
    client = MongoClient(os.environ["MONQUE_URI"])
    return shop.handle(SyncMonque(shop.database(client), **OPTIONS))
"""


@pytest.mark.parametrize(
    ("attribute", "options"),
    [
        ("monque", ("--processes", "2")),
        ("blocking", ("--processes", "2")),
        ("with_an_id", ("--reload",)),
    ],
)
async def test_the_jobs_of_a_killed_process_run_again_without_waiting_for_its_silence(
    monque: CommandLine, queue: Monque, db: Db, attribute: str, options: tuple[str, ...]
) -> None:
    (monque.directory / "patient.py").write_text(_PATIENT, encoding="utf-8")
    gate = monque.directory / "gate"
    await queue.enqueue_many("wait", [str(gate)] * 2)

    async with monque.start("worker", f"patient:{attribute}", *options) as worker:
        victim = int((await worker.hear(r"waiting in (\d+)", 2))[0])
        own = worker.told(r"waiting in (\d+)").count(str(victim))
        os.kill(victim, signal.SIGKILL)
        await worker.hear(r"waiting in (\d+)", 2 + own)
        gate.touch()
        await worker.hear("waited", 2)
        worker.signal(signal.SIGTERM)
        assert await worker.end() == 0, worker.output
    jobs = await stored_jobs(db)
    assert {job.status for job in jobs} == {"completed"}
    assert sum(job.claims for job in jobs) == 2 + own


async def test_the_reactive_tasks_of_a_killed_leader_run_again_without_waiting_for_its_silence(
    monque: CommandLine, db: Db
) -> None:
    (monque.directory / "patient.py").write_text(_PATIENT, encoding="utf-8")

    async with monque.start("worker", "patient:monque", "--reload") as worker:
        (victim,) = await pids(worker, 1)
        await db["orders"].insert_one({"_id": 1, "kills": victim})
        await worker.hear(f"shipping in {victim}")
        await worker.hear("shipped")
        # Somebody leads again, too.
        await db["orders"].insert_one({"_id": 2, "kills": 0})
        await worker.hear("shipped", 2)


async def test_a_second_signal_ends_all_at_once(monque: CommandLine, queue: Monque) -> None:
    await queue.enqueue_many("wait", [str(monque.directory / "never")] * 8)

    async with monque.start("worker", "shop:monque", "--processes", "2") as worker:
        children = await pids(worker)
        await worker.hear("waiting in", 8)
        worker.signal(signal.SIGINT)
        await worker.hear("finishing the jobs", 2)
        worker.signal(signal.SIGINT)

        assert await worker.end() == -signal.SIGINT, worker.output
    await eventually(lambda: not any(map(is_alive, children)))


async def test_signals_to_the_children_too_do_not_cut_the_drain_short(
    monque: CommandLine, queue: Monque, db: Db
) -> None:
    """As systemd does with KillMode=control-group."""
    gate = monque.directory / "gate"
    await queue.enqueue("wait", str(gate))

    async with monque.start("worker", "shop:monque", "--processes", "2") as worker:
        children = await pids(worker)
        await worker.hear("waiting in")
        worker.signal()
        for child in children:
            os.kill(child, signal.SIGTERM)
        await worker.hear("finishing the jobs", 2)
        gate.touch()

        assert await worker.end() == 0, worker.output
    assert await count_by_status(db) == {"completed": 1}


async def test_ctrl_c_in_a_terminal_lets_running_jobs_finish(
    monque: CommandLine, queue: Monque, db: Db, terminal: Callable[..., Terminal]
) -> None:
    gate = monque.directory / "gate"
    await queue.enqueue("wait", str(gate))

    screen = terminal("worker", "shop:monque", "--processes", "2")
    await asyncio.to_thread(screen.read_until, "waiting in")
    screen.type("\x03")
    await asyncio.to_thread(screen.read_until, "finishing the jobs")
    gate.touch()

    assert await asyncio.to_thread(screen.read_to_end) == 0, screen.output
    assert await count_by_status(db) == {"completed": 1}


async def test_children_end_when_their_supervisor_is_killed(monque: CommandLine) -> None:
    async with monque.start("worker", "shop:monque", "--processes", "2") as worker:
        children = await pids(worker)
        worker.signal(signal.SIGKILL)

        assert await worker.end() == -signal.SIGKILL
    await eventually(lambda: not any(map(is_alive, children)))
    assert worker.output.count("finishing the jobs") == 2


async def test_a_mistake_that_no_restart_mends_ends_all(monque: CommandLine) -> None:
    result = await monque.process("worker", "shop:monqeu", "--processes", "2")

    assert result.code == 2
    assert "did you mean 'monque'?" in result.err


class TestRestarts:
    """Of a program that is no worker at all, which is quicker."""

    async def test_pauses_grow_while_it_keeps_crashing(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("monque_core.cli.supervisor._FIRST_PAUSE", 0.01)
        pauses: list[float] = []

        def heard(_message: str, _ended: str, seconds: float) -> None:
            pauses.append(seconds)

        monkeypatch.setattr("monque_core.cli.supervisor.logger.error", heard)
        supervisor = Supervisor(["false"], 1, None)

        running = asyncio.create_task(supervisor.run())
        await eventually(lambda: len(pauses) >= 4)
        os.kill(os.getpid(), signal.SIGTERM)

        assert await running == 0
        assert pauses[:4] == [0.01, 0.02, 0.04, 0.08]

    async def test_a_program_that_cannot_be_started_is_tried_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("monque_core.cli.supervisor._FIRST_PAUSE", 0.01)
        reasons: list[str] = []

        def heard(_message: str, reason: str, _seconds: float) -> None:
            reasons.append(reason)

        monkeypatch.setattr("monque_core.cli.supervisor.logger.error", heard)

        running = asyncio.create_task(Supervisor(["/nowhere/python"], 1, None).run())
        await eventually(lambda: len(reasons) >= 2)
        os.kill(os.getpid(), signal.SIGTERM)

        assert await running == 0
        assert "/nowhere/python" in reasons[0]
