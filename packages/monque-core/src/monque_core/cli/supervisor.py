"""Run several worker processes, and replace those that die."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from monque_core.cli.file_watcher import FileWatcher
from monque_core.cli.main import USAGE
from monque_core.cli.worker_channel import SupervisorEnd
from monque_core.process import SIGNALS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from monque_core.scheduler.succession import Instance

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
_STABLE_SECONDS = 10.0
"""A process that lived this long started well, so its end resets the backoff."""

logger = logging.getLogger("monque.supervisor")


async def supervise(command: Sequence[str], processes: int, reload_dirs: Sequence[Path]) -> int:
    """Keep processes of a command running until a signal; return the exit code."""
    return await Supervisor(
        command, processes, FileWatcher(reload_dirs) if reload_dirs else None
    ).run()


class Child:
    """A worker process and the channel to it."""

    def __init__(self, process: asyncio.subprocess.Process, channel: SupervisorEnd) -> None:
        self.process = process
        self.stop_requested = False
        self.instance: Instance | None = None
        """The instance of the ended process; None if it did not report one."""
        self._channel = channel
        self._born = time.monotonic()

    @classmethod
    async def start(cls, command: Sequence[str], dead: Sequence[Instance]) -> Child:
        """Start a process that takes over from dead instances.

        It has its own process group, so that Ctrl-C reaches only the supervisor.
        """
        channel = SupervisorEnd()
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                env={**os.environ, **channel.environment(dead)},
                pass_fds=[channel.descriptor],
                stdin=asyncio.subprocess.DEVNULL,
                process_group=0,
            )
        except BaseException:
            channel.close()
            raise
        channel.close_worker_end()
        return cls(process, channel)

    @property
    def started_well(self) -> bool:
        """Whether the process lived long enough to have started well."""
        return time.monotonic() - self._born >= _STABLE_SECONDS

    def request_stop(self) -> None:
        """Request the process to finish its jobs and exit."""
        self.stop_requested = True
        self._channel.request_stop()

    def kill(self) -> None:
        """Kill the process."""
        with suppress(ProcessLookupError):
            self.process.kill()

    async def wait(self) -> int:
        """Wait for the process to exit; return the exit code, negative for a signal."""
        try:
            code = await self.process.wait()
            self.instance = self._channel.read_report()
            return code
        finally:
            self._channel.close()


class Supervisor:
    """Keeps worker processes running, stops them on a signal, restarts them on source changes."""

    def __init__(self, command: Sequence[str], processes: int, watcher: FileWatcher | None) -> None:
        self._command = command
        self._processes = processes
        self._watcher = watcher
        self._children: set[Child] = set()
        self._stopping = asyncio.Event()
        self._interrupt_pauses = asyncio.Event()
        self._exit_code = 0

    async def run(self) -> int:
        """Run until a signal or a usage error; return the exit code."""
        logger.info("starting %d process(es)", self._processes)
        with self._signals():
            watching = asyncio.create_task(self._watch())
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(self._processes):
                        group.create_task(self._keep_running())
            finally:
                watching.cancel()
        return self._exit_code

    async def _keep_running(self) -> None:
        crashes = 0
        dead: list[Instance] = []
        while not self._stopping.is_set():
            try:
                child = await Child.start(self._command, dead)
            except OSError as error:
                crashes += 1
                await self._pause(f"cannot start a process: {error}", crashes)
                continue
            self._children.add(child)
            logger.info("process %d started", child.process.pid)
            if self._stopping.is_set():
                child.request_stop()
            code = await child.wait()
            self._children.discard(child)
            if self._stopping.is_set():
                return
            if child.instance is not None:
                # It took over from its predecessors. A clean exit leaves no claims.
                dead = [child.instance] if code else []
            if code == 0 or child.stop_requested:
                crashes = 0
            elif code == USAGE:
                # It printed why; a restart would fail in the same way.
                await self._wait_for_correction()
            else:
                crashes = 1 if child.started_well else crashes + 1
                ended = f"process {child.process.pid} ended with {_described(code)}"
                await self._pause(ended, crashes)

    async def _wait_for_correction(self) -> None:
        if self._watcher is None:
            self._stop(USAGE)
        else:
            logger.error("waiting for a source file to change")
            await self._interrupt_pauses.wait()

    async def _pause(self, reason: str, crashes: int) -> None:
        seconds = min(_FIRST_PAUSE * 2.0 ** min(crashes - 1, 10), _LONGEST_PAUSE)
        logger.error("%s; restarting in %.1f s", reason, seconds)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._interrupt_pauses.wait(), seconds)

    async def _watch(self) -> None:
        if self._watcher is None:
            return
        async for changed in self._watcher.changes():
            logger.info("%s changed, restarting", ", ".join(map(str, changed)))
            for child in self._children:
                child.request_stop()
            self._interrupt_pauses.set()
            self._interrupt_pauses = asyncio.Event()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Stop gracefully on the first signal; on the second, kill the children and exit."""
        loop = asyncio.get_running_loop()

        def first(_number: int, _frame: object) -> None:
            for number in SIGNALS:
                signal.signal(number, second)
            loop.call_soon_threadsafe(self._stop, 0)

        def second(number: int, _frame: object) -> None:
            for child in list(self._children):
                child.kill()
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

        before = {number: signal.signal(number, first) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, exit_code: int) -> None:
        if not self._stopping.is_set():
            logger.info("stopping; a second signal kills the processes")
        self._stopping.set()
        self._exit_code = exit_code
        self._interrupt_pauses.set()
        for child in self._children:
            child.request_stop()


def _described(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
