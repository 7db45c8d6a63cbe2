"""SyncMonque in separate processes: signals, forks, and programs that do not call `stop`."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import contextmanager
from textwrap import dedent
from typing import IO, TYPE_CHECKING, Any

import httpx
import pytest

from tests.support.inventory import stored_jobs
from tests.support.patience import wait_until
from tests.support.quarantine import all_at_once

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo.database import Database

    from monque_core import SyncMonque

_HEAD = """
import asyncio, multiprocessing, os, signal, sys, threading, time
from pymongo import MongoClient
from monque_core import MonqueError, SyncMonque

client = MongoClient(sys.argv[1], connect=False)
db = client[sys.argv[2]]

def say(*words):
    print(*words, flush=True)

monque = SyncMonque(db)

@monque.worker("work")
def work(job):
    say("started")
    time.sleep(job.data)

@monque.worker("on-loop")
async def work_on_the_loop(job):
    say("started")
    await asyncio.sleep(job.data)
"""

_STOP_ALOUD = """
stop = monque._monque.stop

def stop_aloud(timeout=None):
    say("stopping")
    return stop(timeout)

monque._monque.stop = stop_aloud
"""


class Script:
    """A Python program with a SyncMonque `monque` on the test's database."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.stdout = _open(process.stdout)
        self._stderr = _open(process.stderr)

    def hear(self) -> str:
        """Return the next line of its output."""
        return self.stdout.readline().strip()

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def end(self) -> tuple[int, str, str]:
        """Wait for its end; return the exit code and the rest of its output."""
        stdout, stderr = self._process.communicate(timeout=120)
        return self._process.returncode, stdout, stderr


def _open(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


@pytest.fixture
def run(uri: str, database_name: str) -> Any:
    """Yield a function that runs a program after a common preamble, and ends it with the block."""

    @contextmanager
    def run(program: str) -> Iterator[Script]:
        with subprocess.Popen(
            [
                *(sys.executable, "-W", "error", "-W", "ignore::ResourceWarning"),
                # Python 3.12 and later warn about what TestForks does on purpose.
                *("-W", "ignore:This process:DeprecationWarning"),
                *("-c", _HEAD + dedent(program), uri, database_name),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield Script(process)
            finally:
                process.kill()

    return run


def only_keyboard_interrupt(stderr: str) -> bool:
    """Return whether exactly one traceback was written, that of Ctrl-C."""
    return (
        stderr.count("Traceback (most recent call last)") == 1
        and stderr.strip().splitlines()[-1] == "KeyboardInterrupt"
    )


class TestRun:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    @pytest.mark.parametrize("kind", ["work", "on-loop"])
    def test_a_signal_lets_running_jobs_finish(
        self,
        run: Any,
        monque: SyncMonque,
        blocking_db: Database[dict[str, Any]],
        number: signal.Signals,
        kind: str,
    ) -> None:
        monque.enqueue(kind, 0.3)
        with run('monque.run(); say("stopped", threading.active_count())') as script:
            assert script.hear() == "started"
            script.send(number)
            assert script.hear().startswith("stopped")
            assert script.end() == (0, "", "")

        assert [job.status for job in stored_jobs(blocking_db)] == ["completed"]

    def test_a_second_sigterm_ends_the_process_at_once(self, run: Any, monque: SyncMonque) -> None:
        monque.enqueue("work", 3600)
        with run(_STOP_ALOUD + "monque.run()") as script:
            assert script.hear() == "started"
            script.send(signal.SIGTERM)
            assert script.hear() == "stopping"
            script.send(signal.SIGTERM)
            exit_code, _, _ = script.end()

        assert exit_code == -signal.SIGTERM

    def test_a_second_ctrl_c_hands_back_running_jobs(
        self, run: Any, monque: SyncMonque, blocking_db: Database[dict[str, Any]]
    ) -> None:
        monque.enqueue("on-loop", 3600)
        with run(_STOP_ALOUD + "monque.run()") as script:
            assert script.hear() == "started"
            script.send(signal.SIGINT)
            assert script.hear() == "stopping"
            script.send(signal.SIGINT)
            exit_code, _, stderr = script.end()

        assert exit_code == -signal.SIGINT
        assert only_keyboard_interrupt(stderr), stderr
        (job,) = stored_jobs(blocking_db)
        assert (job.status, job.claimed_by) == ("pending", None)

    def test_a_signal_before_the_start_is_over_ends_it(
        self, run: Any, blocking_db: Database[dict[str, Any]]
    ) -> None:
        with run(
            """
            initialize = monque._monque.initialize

            async def initialize_slowly():
                say("starting")
                await asyncio.sleep(3600)

            monque._monque.initialize = initialize_slowly
            monque.run()
            say("stopped")
            """
        ) as script:
            assert script.hear() == "starting"
            script.send(signal.SIGTERM)
            assert script.hear() == "stopped"
            assert script.end() == (0, "", "")


class TestCtrlC:
    def test_while_enqueueing_ends_the_script(
        self, run: Any, blocking_db: Database[dict[str, Any]]
    ) -> None:
        with run(
            """
            say("first", monque.enqueue("other", 0).data)
            count = 0
            while True:
                count += 1
                monque.enqueue("other", count)
            """
        ) as script:
            assert script.hear() == "first 0"
            wait_until(lambda: blocking_db["monque_jobs"].count_documents({}) > 5)
            script.send(signal.SIGINT)
            exit_code, _, stderr = script.end()

        assert exit_code == -signal.SIGINT
        assert only_keyboard_interrupt(stderr), stderr
        data = [job.data for job in stored_jobs(blocking_db)]
        assert data == list(range(len(data)))

    @pytest.mark.parametrize("kind", ["work", "on-loop"])
    def test_in_a_with_block_lets_what_runs_finish(
        self, run: Any, blocking_db: Database[dict[str, Any]], kind: str
    ) -> None:
        # A signal that another thread receives does not end a long sleep of the main thread.
        with run(
            f"""
            with monque:
                monque.enqueue("{kind}", 0.3)
                while True:
                    time.sleep(0.05)
            """
        ) as script:
            assert script.hear() == "started"
            script.send(signal.SIGINT)
            exit_code, _, stderr = script.end()

        assert exit_code == -signal.SIGINT
        assert only_keyboard_interrupt(stderr), stderr
        assert [job.status for job in stored_jobs(blocking_db)] == ["completed"]

    def test_while_enqueueing_in_a_with_block_stops_in_order(
        self, run: Any, blocking_db: Database[dict[str, Any]]
    ) -> None:
        with run(
            """
            try:
                with monque:
                    monque.enqueue("work", 0)
                    while True:
                        monque.enqueue("other", 1)
            except KeyboardInterrupt:
                say("interrupted", monque.is_running)
            """
        ) as script:
            assert script.hear() == "started"
            script.send(signal.SIGINT)
            assert script.hear() == "interrupted False"
            assert script.end() == (0, "", "")

        assert not stored_jobs(blocking_db, status="processing")


class TestForgetting:
    def test_to_stop_does_not_keep_a_script_from_ending(self, run: Any, monque: SyncMonque) -> None:
        monque.enqueue("work", 3600)
        monque.enqueue("on-loop", 3600)
        with run(
            """
            monque.start()
            started = [False, False]
            while len(monque.get_jobs(status="processing")) < 2:
                time.sleep(0.01)
            say("leaving")
            """
        ) as script:
            exit_code, stdout, stderr = script.end()

        assert (exit_code, stderr) == (0, "")
        assert "leaving" in stdout

    def test_the_script_of_an_error_ends_with_that_error(self, run: Any) -> None:
        with run('monque.start()\nraise ValueError("bad")') as script:
            exit_code, _, stderr = script.end()

        assert exit_code == 1
        assert stderr.strip().splitlines()[-1] == "ValueError: bad"


class TestForks:
    """Servers that load the application and then fork, like gunicorn with --preload."""

    def test_of_a_process_that_has_not_used_it_work(
        self, run: Any, blocking_db: Database[dict[str, Any]]
    ) -> None:
        with run(
            """
            def serve(number):
                threads = [threading.Thread(target=monque.enqueue, args=("other", number))
                           for _ in range(5)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                monque.enqueue("work", 0)
                monque.run_until_idle()
                say("served", monque.is_connected)

            children = []
            for number in range(3):
                child = os.fork()
                if child == 0:
                    serve(number)
                    os._exit(0)
                children.append(child)
            assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
            monque.enqueue("other", "parent")
            say("parent", monque.is_connected)
            """
        ) as script:
            exit_code, stdout, stderr = script.end()

        assert (exit_code, stderr) == (0, "")
        assert stdout.count("served True") == 3
        assert stdout.endswith("parent True\n")
        assert len(stored_jobs(blocking_db, name="other")) == 16
        assert len(stored_jobs(blocking_db, name="work", status="completed")) == 3

    def test_give_each_child_an_id_of_its_own(self, run: Any) -> None:
        with run(
            """
            children = []
            for number in range(2):
                child = os.fork()
                if child == 0:
                    with monque:
                        say(monque.scheduler_instance_id)
                    os._exit(0)
                children.append(child)
            assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
            with monque:
                say(monque.scheduler_instance_id)
            """
        ) as script:
            exit_code, stdout, stderr = script.end()

        assert (exit_code, stderr) == (0, "")
        assert len(set(stdout.split())) == 3

    def test_with_a_given_id_are_one_instance_too_many(self, run: Any) -> None:
        with run(
            """
            monque = SyncMonque(db, scheduler_instance_id="one", heartbeat_interval=0.2)
            started, said = os.pipe()
            first = os.fork()
            if first == 0:
                with monque:
                    os.write(said, b"started")
                    time.sleep(20)
                os._exit(0)
            os.read(started, 7)
            second = os.fork()
            if second == 0:
                try:
                    monque.start()
                except MonqueError as error:
                    say(error)
                os._exit(0)
            os.waitpid(second, 0)
            os.kill(first, signal.SIGKILL)
            os.waitpid(first, 0)
            """
        ) as script:
            exit_code, stdout, stderr = script.end()

        assert (exit_code, stderr) == (0, "")
        assert "another live instance has the id 'one'" in stdout

    def test_of_a_web_server_serve_from_all_their_threads(
        self, run: Any, blocking_db: Database[dict[str, Any]]
    ) -> None:
        with run(
            """
            import socket
            from werkzeug.serving import make_server

            def app(environ, start_response):
                job = monque.enqueue("other", environ["PATH_INFO"])
                start_response("202 Accepted", [("Content-Type", "text/plain")])
                return [f"{os.getpid()} {job.id}".encode()]

            listener = socket.create_server(("127.0.0.1", 0), backlog=64)
            alive, parent = os.pipe()
            for _ in range(2):
                if os.fork() == 0:
                    os.close(parent)
                    server = make_server("", 0, app, threaded=True, fd=listener.fileno())
                    threading.Thread(target=server.serve_forever, daemon=True).start()
                    os.read(alive, 1)
                    os._exit(0)
            say(listener.getsockname()[1])
            signal.pause()
            """
        ) as script:
            url = f"http://127.0.0.1:{script.hear()}"
            answers = all_at_once(30, lambda number: httpx.post(f"{url}/{number}", timeout=30))
            script.send(signal.SIGTERM)
            script.end()

        assert {answer.status_code for answer in answers} == {202}
        ids = {answer.text.split()[1] for answer in answers}
        jobs = stored_jobs(blocking_db, name="other")
        assert {str(job.id) for job in jobs} == ids
        assert sorted(job.data for job in jobs) == sorted(f"/{number}" for number in range(30))

    def test_by_multiprocessing_work(self, run: Any, blocking_db: Database[dict[str, Any]]) -> None:
        with run(
            """
            def serve(number):
                with monque:
                    return monque.enqueue("other", number).data

            with multiprocessing.get_context("fork").Pool(3) as pool:
                say(sorted(pool.map(serve, range(6))))
            """
        ) as script:
            assert script.hear() == "[0, 1, 2, 3, 4, 5]"
            exit_code, _, _ = script.end()

        assert exit_code == 0
        assert len(stored_jobs(blocking_db)) == 6

    @pytest.mark.parametrize("use", ['monque.enqueue("other", 1)', "monque.start()"])
    def test_of_a_process_that_has_used_it_are_told_so(self, run: Any, use: str) -> None:
        with run(
            f"""
            {use}
            calls = [
                monque.initialize,
                monque.start,
                monque.stop,
                monque.run,
                monque.run_until_idle,
                monque.get_jobs,
                lambda: monque.enqueue("other", 1),
                lambda: monque.worker("new", work),
            ]
            child = os.fork()
            if child == 0:
                say(monque.is_running, monque.is_healthy)
                for call in calls:
                    try:
                        call()
                    except MonqueError as error:
                        assert "used before the process was forked" in str(error)
                        say("refused")
                os._exit(0)
            say("child", os.waitpid(child, 0)[1])
            monque.enqueue("other", 2)
            monque.stop()
            """
        ) as script:
            exit_code, stdout, stderr = script.end()

        assert (exit_code, stderr) == (0, "")
        assert stdout.splitlines() == ["False False", *["refused"] * 8, "child 0"]

    def test_while_another_thread_stops_it_do_not_hang(self, run: Any, monque: SyncMonque) -> None:
        monque.enqueue("work", 2)
        with run(
            """
            monque.start()
            while monque.get_queue_view_summaries()[0].worker is None:
                pass
            while not monque._monque._running("work"):
                time.sleep(0.01)
            stopping = threading.Thread(target=monque.stop)
            stopping.start()
            while monque._monque._stopping is None:
                time.sleep(0.01)
            child = os.fork()
            if child == 0:
                for call in (monque.start, monque.stop, lambda: monque.enqueue("other", 1)):
                    try:
                        call()
                    except MonqueError:
                        say("refused")
                os._exit(0)
            say("child", os.waitpid(child, 0)[1])
            stopping.join()
            """
        ) as script:
            exit_code, stdout, stderr = script.end()

        assert (exit_code, stderr) == (0, "")
        assert stdout.splitlines() == ["started", *["refused"] * 3, "child 0"]
