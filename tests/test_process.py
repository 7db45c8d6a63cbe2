"""The event loop of a worker process, and the signals that stop it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from monque_core import Monque, MonqueError, process
from monque_core.process import on_first_signal
from tests.support.quarantine import Quarantine
from tests.support.stored import count_by_status, stored
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job


async def kind() -> str:
    return type(asyncio.get_running_loop()).__module__.split(".")[0]


def test_is_uvloop_if_it_is_installed() -> None:
    pytest.importorskip("uvloop")
    assert process.run(kind()) == "uvloop"


def test_is_asyncio_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert process.run(kind()) == "asyncio"


def test_an_error_of_the_program_has_nothing_to_do_with_a_missing_uvloop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail() -> None:
        raise ValueError("of the program")

    monkeypatch.setitem(sys.modules, "uvloop", None)
    with pytest.raises(ValueError, match="of the program") as raised:
        process.run(fail())

    assert raised.value.__context__ is None


NUMBERS = [signal.SIGINT, signal.SIGTERM]

PROGRAM = """
import asyncio, sys
from pymongo import AsyncMongoClient
from monque_core import Monque

async def main():
    async with AsyncMongoClient(sys.argv[1]) as client:
        monque = Monque(client[sys.argv[2]])

        @monque.worker("work")
        async def work(job):
            print("started", flush=True)
            await asyncio.sleep(job.data)

        await monque.run()
    print("stopped", flush=True)

asyncio.run(main())
"""


async def run_program(uri: str, database_name: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        uri,
        database_name,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def hear(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), 120)).decode().strip()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_running_jobs_finish_and_ends_the_process(
    uri: str, database_name: str, db: AsyncDatabase[dict[str, Any]], number: signal.Signals
) -> None:
    monque = Monque(db)
    job = await monque.enqueue("work", 0.5)
    process = await run_program(uri, database_name)
    try:
        assert await hear(process) == "started"
        process.send_signal(number)
        assert await hear(process) == "stopped"
        assert await asyncio.wait_for(process.wait(), 120) == 0
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()

    assert (await stored(db, job)).status == "completed"


async def test_a_second_signal_ends_the_process_at_once(
    uri: str, database_name: str, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(db)
    await monque.enqueue("work", 3600)
    process = await run_program(uri, database_name)
    try:
        assert await hear(process) == "started"
        process.send_signal(signal.SIGTERM)

        async def claims_nothing_more() -> bool:
            await monque.enqueue("work", 0)
            await asyncio.sleep(0.1)
            return (await count_by_status(db)).get("pending", 0) > 0

        await eventually(claims_nothing_more)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 120) == -signal.SIGTERM
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_run_takes_signals_only_while_it_runs(db: AsyncDatabase[dict[str, Any]]) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    monque = Monque(db)
    running = asyncio.create_task(monque.run())
    await eventually(lambda: monque.is_running)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(running, 120)

    assert not monque.is_running
    after = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert after == before


async def test_a_cancelled_run_stops_the_instance(db: AsyncDatabase[dict[str, Any]]) -> None:
    monque = Monque(db)
    started, may_end = asyncio.Event(), asyncio.Event()

    @monque.worker("work")
    async def work(job: Job[None]) -> None:
        started.set()
        await may_end.wait()

    job = await monque.enqueue("work", None)
    running = asyncio.create_task(monque.run())
    await asyncio.wait_for(started.wait(), 120)
    running.cancel()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert not monque.is_running
    assert (await stored(db, job)).status == "completed"


class TestOnFirstSignal:
    @pytest.mark.parametrize("number", NUMBERS)
    def test_the_first_signal_calls_back_and_the_second_does_what_it_did(
        self, number: signal.Signals
    ) -> None:
        heard: list[str] = []
        before = signal.signal(number, lambda *_: heard.append("outside"))
        try:
            with on_first_signal(lambda: heard.append("inside")):
                assert heard == []
                signal.raise_signal(number)
                assert heard == ["inside"]
                signal.raise_signal(number)
                assert heard == ["inside", "outside"]
        finally:
            signal.signal(number, before)

    def test_one_signal_restores_both_handlers(self) -> None:
        before = [signal.getsignal(number) for number in NUMBERS]
        with on_first_signal(lambda: None):
            assert [signal.getsignal(number) for number in NUMBERS] != before
            signal.raise_signal(signal.SIGTERM)
            assert [signal.getsignal(number) for number in NUMBERS] == before

    def test_signal_handlers_are_restored_after_an_error(self) -> None:
        before = [signal.getsignal(number) for number in NUMBERS]
        with pytest.raises(ValueError, match="bad"), on_first_signal(lambda: None):
            raise ValueError("bad")

        assert [signal.getsignal(number) for number in NUMBERS] == before

    def test_only_the_main_thread_can_wait_for_signals(self) -> None:
        before = [signal.getsignal(number) for number in NUMBERS]
        entered = threading.Event()

        def enter() -> None:
            with on_first_signal(lambda: None):
                entered.set()

        with pytest.raises(MonqueError, match=r"use start\(\) and stop\(\)"):
            Quarantine(enter).result()
        assert not entered.is_set()
        assert [signal.getsignal(number) for number in NUMBERS] == before
