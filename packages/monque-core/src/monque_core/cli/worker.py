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

from monque_core import event_loop
from monque_core.cli.connection import Settings
from monque_core.cli.examples import examples
from monque_core.cli.logs import LogFormat, LogLevel, set_up_logging
from monque_core.cli.stopping import stop_requests
from monque_core.cli.supervision import Supervision
from monque_core.cli.target import AnyMonque, open_target
from monque_core.monque import Monque
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
            help="A Monque, a SyncMonque, a container, or a function that gives one.",
        ),
    ],
    processes: Annotated[
        int, typer.Option(min=1, help="How many processes, each with its own event loop.")
    ] = 1,
    reload: Annotated[
        bool, typer.Option("--reload", help="Start anew when a source file changes.")
    ] = False,
    reload_dirs: Annotated[
        list[Path] | None,
        typer.Option(
            "--reload-dir",
            exists=True,
            file_okay=False,
            show_default=False,
            help="Where to look for changes; by default the current directory.",
        ),
    ] = None,
    log_format: Annotated[LogFormat, typer.Option(help="How the log is written.")] = LogFormat.TEXT,
    log_level: Annotated[
        LogLevel, typer.Option(help="What is logged; debug tells of every job.")
    ] = LogLevel.INFO,
) -> None:
    """Run jobs until SIGTERM or SIGINT, then finish those that run.

    A second signal ends it at once. With --processes, a process that dies is replaced. The module
    is looked for in the current directory too, and finds --uri, --database and --collection in the
    environment, as MONQUE_URI, MONQUE_DATABASE and MONQUE_COLLECTION.
    """
    _hand_on(Settings.of(context))
    set_up_logging(log_format, log_level)
    if processes == 1 and not reload:
        event_loop.run(_serve(target))
        return
    if sys.platform == "win32":
        raise typer.BadParameter("--processes and --reload need a POSIX system")
    from monque_core.cli.supervisor import supervise  # noqa: PLC0415  # not for a single process

    own = [sys.executable, "-P", "-m", "monque_core.cli", "worker", target]
    command = [*own, "--log-format", log_format, "--log-level", log_level]
    directories = (reload_dirs or [Path.cwd()]) if reload else []
    raise typer.Exit(asyncio.run(supervise(command, processes, directories)))


def _hand_on(settings: Settings) -> None:
    """Let the module and child processes see the global options."""
    os.environ["MONQUE_COLLECTION"] = settings.collection
    if settings.uri:
        os.environ["MONQUE_URI"] = settings.uri
    if settings.database:
        os.environ["MONQUE_DATABASE"] = settings.database


async def _serve(target: str) -> None:
    supervision = Supervision.inherited()
    with stop_requests(supervision) as stop_requested:
        stack = AsyncExitStack()
        try:
            monque = await _opened(target, stack, stop_requested)
            if monque is not None:
                await _work(monque, stop_requested, supervision)
        finally:
            await _close(stack)


async def _opened(
    target: str, stack: AsyncExitStack, stop_requested: asyncio.Event
) -> AnyMonque | None:
    """Open the target, whose start may wait for MongoDB; None if a stop is requested first."""
    asking = asyncio.create_task(stop_requested.wait())
    # Opened in this very task: what an application enters in one task it must leave in the same.
    limit = asyncio.timeout(None)

    def give_up(_: object) -> None:
        limit.reschedule(asyncio.get_running_loop().time())

    try:
        async with limit:
            asking.add_done_callback(give_up)
            try:
                return await open_target(target, stack)
            finally:
                asking.remove_done_callback(give_up)
    except TimeoutError:
        if not limit.expired():
            raise
        logger.info("stopped before it was up")
        return None
    finally:
        asking.cancel()


async def _work(
    monque: AnyMonque, stop_requested: asyncio.Event, supervision: Supervision | None
) -> None:
    """Run jobs until it is requested to stop."""
    _log_jobs(monque)
    asking = asyncio.create_task(stop_requested.wait())
    starting = asyncio.create_task(_start(monque, supervision))
    try:
        await asyncio.wait([starting, asking], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            await asking
    finally:
        asking.cancel()
        await _stop(monque, starting)


async def _close(stack: AsyncExitStack) -> None:
    """Leave what the application opened, but not for long.

    PyMongo's async client waits 20 seconds and more for a server that does not answer.
    """
    limit = asyncio.timeout(_CLOSING_SECONDS)
    try:
        async with limit:
            await stack.__aexit__(*sys.exc_info())
    except TimeoutError:
        if not limit.expired():
            raise
        logger.warning(
            "what the application opened is not closed after %g s; exiting without",
            _CLOSING_SECONDS,
        )


async def _start(monque: AnyMonque, supervision: Supervision | None) -> None:
    if supervision is not None:
        if supervision.dead:
            await _take_over(monque, supervision.dead)
        # Before it claims anything that somebody might have to recover.
        supervision.report(monque._instance)
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
        # It may be waiting out the lease of a predecessor that died.
        starting.cancel()
        await asyncio.wait([starting])
        await monque.stop()
    else:
        await asyncio.wait([starting])
        await asyncio.to_thread(monque.stop)


def _log_jobs(monque: AnyMonque) -> None:
    """Tell of every job, if that is wanted: failures are logged anyway."""
    if logger.isEnabledFor(logging.DEBUG):
        monque.on("job:start", lambda event: logger.debug("%s %s", event.job.name, event.job.id))
        monque.on(
            "job:complete",
            lambda event: logger.debug(
                "%s %s completed in %s", event.job.name, event.job.id, event.duration
            ),
        )
