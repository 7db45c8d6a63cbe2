"""Several worker processes, each replaced when it dies."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from monque_core.cli.exit_codes import USAGE
from monque_core.cli.reload import SourceFiles
from monque_core.cli.stopping import SIGNALS
from monque_core.cli.supervision import Line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from monque_core.scheduler.succession import Instance

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
_SOUND_AFTER = 10.0
"""Seconds after which the end of a process is no longer blamed on its start."""

logger = logging.getLogger("monque.supervisor")


async def supervise(command: Sequence[str], processes: int, reload_dirs: Sequence[Path]) -> int:
    """Keep so many processes of a command running until a signal comes; give the exit code."""
    return await Supervisor(
        command, processes, SourceFiles(reload_dirs) if reload_dirs else None
    ).run()


class Child:
    """A worker process, and the line to it."""

    def __init__(self, process: asyncio.subprocess.Process, line: Line) -> None:
        self.process = process
        self.is_asked = False
        self.instance: Instance | None = None
        """Which instance it was, once it has ended; None if it did not come that far."""
        self._line = line
        self._born = time.monotonic()

    @classmethod
    async def start(cls, command: Sequence[str], dead: Sequence[Instance]) -> Child:
        """Start a process in a group of its own, so that Ctrl-C reaches the supervisor alone.

        It takes over from instances that have ended.
        """
        line = Line()
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                env={**os.environ, **line.environment(dead)},
                pass_fds=[line.descriptor],
                stdin=asyncio.subprocess.DEVNULL,
                process_group=0,
            )
        except BaseException:
            line.close()
            raise
        line.handed_over()
        return cls(process, line)

    @property
    def was_sound(self) -> bool:
        """Tell whether it has lived long enough to have started well."""
        return time.monotonic() - self._born >= _SOUND_AFTER

    def finish(self) -> None:
        """Ask it to finish its jobs and end."""
        self.is_asked = True
        self._line.ask_to_finish()

    def kill(self) -> None:
        """End it at once."""
        with suppress(ProcessLookupError):
            self.process.kill()

    async def wait(self) -> int:
        """Wait for its end and give the exit code, negative for a signal."""
        try:
            code = await self.process.wait()
            self.instance = self._line.reported()
            return code
        finally:
            self._line.close()


class Supervisor:
    """Keeps processes running, drains them when asked, starts them anew when sources change."""

    def __init__(self, command: Sequence[str], processes: int, sources: SourceFiles | None) -> None:
        self._command = command
        self._processes = processes
        self._sources = sources
        self._children: set[Child] = set()
        self._ending = asyncio.Event()
        self._interrupt_pauses = asyncio.Event()
        self._exit_code = 0

    async def run(self) -> int:
        """Run until a signal comes or no process can be started; give the exit code."""
        logger.info("starting %d process(es)", self._processes)
        with self._signals():
            watching = asyncio.create_task(self._watch())
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(self._processes):
                        group.create_task(self._keep_one())
            finally:
                watching.cancel()
        return self._exit_code

    async def _keep_one(self) -> None:
        crashes = 0
        dead: list[Instance] = []
        while not self._ending.is_set():
            try:
                child = await Child.start(self._command, dead)
            except OSError as error:
                crashes += 1
                await self._pause(f"no process can be started: {error}", crashes)
                continue
            self._children.add(child)
            logger.info("process %d started", child.process.pid)
            if self._ending.is_set():
                child.finish()
            code = await child.wait()
            self._children.discard(child)
            if self._ending.is_set():
                return
            if child.instance is not None:
                # It has taken over from those before it. One that ends well leaves nothing.
                dead = [child.instance] if code else []
            if code == 0 or child.is_asked:
                crashes = 0
            elif code == USAGE:
                # It told why, and another one would tell the same.
                await self._mistake_made()
            else:
                crashes = 1 if child.was_sound else crashes + 1
                ended = f"process {child.process.pid} ended with {_described(code)}"
                await self._pause(ended, crashes)

    async def _mistake_made(self) -> None:
        if self._sources is None:
            self._end(USAGE)
        else:
            logger.error("waiting for a change of the sources")
            await self._interrupt_pauses.wait()

    async def _pause(self, reason: str, crashes: int) -> None:
        seconds = min(_FIRST_PAUSE * 2.0 ** min(crashes - 1, 10), _LONGEST_PAUSE)
        logger.error("%s; another starts in %.1f s", reason, seconds)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._interrupt_pauses.wait(), seconds)

    async def _watch(self) -> None:
        if self._sources is None:
            return
        async for changed in self._sources.changes():
            logger.info("%s changed, starting anew", ", ".join(map(str, changed)))
            for child in self._children:
                child.finish()
            self._interrupt_pauses.set()
            self._interrupt_pauses = asyncio.Event()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Drain on the first signal, and die of the second together with the children."""
        loop = asyncio.get_running_loop()

        def first(_number: int, _frame: object) -> None:
            for number in SIGNALS:
                signal.signal(number, second)
            loop.call_soon_threadsafe(self._end, 0)

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

    def _end(self, exit_code: int) -> None:
        if not self._ending.is_set():
            logger.info("finishing; a second signal ends at once")
        self._ending.set()
        self._exit_code = exit_code
        self._interrupt_pauses.set()
        for child in self._children:
            child.finish()


def _described(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
