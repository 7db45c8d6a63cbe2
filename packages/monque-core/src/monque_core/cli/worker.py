"""`monque worker`: run the jobs of an application."""

import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import typer

from monque_core import process
from monque_core.cli.connection import GlobalOptions
from monque_core.cli.logs import LogFormat, LogLevel, set_up_logging
from monque_core.cli.options import examples
from monque_core.cli.worker_channel import WorkerEnd
from monque_core.cli.worker_target import AnyMonque, open_target
from monque_core.monque import Monque
from monque_core.process import stop_requests
from monque_core.scheduler.succession import Instance

logger = logging.getLogger("monque.worker")

_CLOSING_SECONDS = 5.0


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples(
            "monque worker shop.jobs:monque",
            "monque worker shop.jobs:make_monque --processes 4 --log-format json",
            "monque worker shop.jobs:monque --reload",
        )
    )(worker)


def worker(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:ATTRIBUTE",
            show_default=False,
            help="A Monque, a SyncMonque, a container, or a function that returns one.",
        ),
    ],
    processes: Annotated[int, typer.Option(min=1, help="Number of worker processes.")] = 1,
    reload: Annotated[
        bool, typer.Option("--reload", help="Restart when a source file changes.")
    ] = False,
    reload_dirs: Annotated[
        list[Path] | None,
        typer.Option(
            "--reload-dir",
            exists=True,
            file_okay=False,
            show_default=False,
            help="Directory to watch; by default the current one. Repeatable.",
        ),
    ] = None,
    log_format: Annotated[LogFormat, typer.Option(help="Log format.")] = LogFormat.TEXT,
    log_level: Annotated[
        LogLevel, typer.Option(help="Log level; debug logs every job.")
    ] = LogLevel.INFO,
) -> None:
    """Run jobs until SIGTERM or SIGINT.

    The first signal finishes the running jobs, a second one exits immediately. With --processes, a
    process that dies is replaced. The current directory is on the import path. The module can read
    --uri, --database and --collection from MONQUE_URI, MONQUE_DATABASE and MONQUE_COLLECTION.
    """
    _export_options(GlobalOptions.of(context))
    set_up_logging(log_format, log_level)
    if processes == 1 and not reload:
        process.run(_serve(target))
        return
    if sys.platform == "win32":
        raise typer.BadParameter("--processes and --reload are not supported on Windows")
    from monque_core.cli.supervisor import supervise  # noqa: PLC0415  # only for several processes

    own = [sys.executable, "-P", "-m", "monque_core.cli", "worker", target]
    command = [*own, "--log-format", log_format, "--log-level", log_level]
    directories = (reload_dirs or [Path.cwd()]) if reload else []
    raise typer.Exit(asyncio.run(supervise(command, processes, directories)))


def _export_options(settings: GlobalOptions) -> None:
    """Set environment variables for the module and for child processes."""
    os.environ["MONQUE_COLLECTION"] = settings.collection
    if settings.uri:
        os.environ["MONQUE_URI"] = settings.uri
    if settings.database:
        os.environ["MONQUE_DATABASE"] = settings.database


async def _serve(target: str) -> None:
    channel = WorkerEnd.inherited()
    with stop_requests(supervised=channel is not None) as stop_requested:
        if channel is not None:
            channel.on_stop_request(stop_requested.set)
        stack = AsyncExitStack()
        try:
            monque = await _open(target, stack, stop_requested)
            if monque is not None:
                await _run_until_stopped(monque, stop_requested, channel)
        finally:
            await _close(stack)


async def _open(
    target: str, stack: AsyncExitStack, stop_requested: asyncio.Event
) -> AnyMonque | None:
    """Open the target, which may wait for MongoDB; return None if a stop is requested first."""
    stop_wait = asyncio.create_task(stop_requested.wait())
    # Open in this task: a context manager must be entered and exited in the same task.
    limit = asyncio.timeout(None)

    def give_up(_: object) -> None:
        limit.reschedule(asyncio.get_running_loop().time())

    try:
        async with limit:
            stop_wait.add_done_callback(give_up)
            try:
                return await open_target(target, stack)
            finally:
                stop_wait.remove_done_callback(give_up)
    except TimeoutError:
        if not limit.expired():
            raise
        logger.info("stopped before it was up")
        return None
    finally:
        stop_wait.cancel()


async def _run_until_stopped(
    monque: AnyMonque, stop_requested: asyncio.Event, channel: WorkerEnd | None
) -> None:
    """Run jobs until a stop is requested."""
    _log_jobs(monque)
    stop_wait = asyncio.create_task(stop_requested.wait())
    starting = asyncio.create_task(_start(monque, channel))
    try:
        await asyncio.wait([starting, stop_wait], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            await stop_wait
    finally:
        stop_wait.cancel()
        await _stop(monque, starting)


async def _close(stack: AsyncExitStack) -> None:
    """Close what the application opened, with a time limit.

    The async client of PyMongo waits more than 20 seconds for a server that does not respond.
    """
    limit = asyncio.timeout(_CLOSING_SECONDS)
    try:
        async with limit:
            await stack.__aexit__(*sys.exc_info())
    except TimeoutError:
        if not limit.expired():
            raise
        logger.warning(
            "the application did not close within %g s; exiting anyway",
            _CLOSING_SECONDS,
        )


async def _start(monque: AnyMonque, channel: WorkerEnd | None) -> None:
    if channel is not None:
        if channel.dead:
            await _take_over(monque, channel.dead)
        # Report before the first claim, which somebody may have to recover.
        channel.report(monque._instance)
    if isinstance(monque, Monque):
        await monque.start()
    else:
        await asyncio.to_thread(monque.start)


async def _take_over(monque: AnyMonque, dead: Sequence[Instance]) -> None:
    if isinstance(monque, Monque):
        await monque._take_over(dead)
    else:
        await asyncio.to_thread(monque._take_over, dead)


async def _stop(monque: AnyMonque, starting: asyncio.Task[None]) -> None:
    if isinstance(monque, Monque):
        # The start may be waiting for the lease of a dead predecessor.
        starting.cancel()
        await asyncio.wait([starting])
        await monque.stop()
    else:
        await asyncio.wait([starting])
        await asyncio.to_thread(monque.stop)


def _log_jobs(monque: AnyMonque) -> None:
    """Log every job at level DEBUG; failures are logged anyway."""
    if logger.isEnabledFor(logging.DEBUG):
        monque.on("job:start", lambda event: logger.debug("%s %s", event.job.name, event.job.id))
        monque.on(
            "job:complete",
            lambda event: logger.debug(
                "%s %s completed in %s", event.job.name, event.job.id, event.duration
            ),
        )
