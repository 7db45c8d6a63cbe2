"""`monque top`: a live view of queues and running jobs."""

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import typer

from monque_core.cli.connection import Connection, GlobalOptions, connected, run
from monque_core.cli.options import examples
from monque_core.cli.output import print_fields
from monque_core.cli.reactive import STATS_FIT as TASKS_FIT
from monque_core.cli.reactive import STATS_HEADINGS, planning_fields
from monque_core.cli.reactive import stats_row as task_row
from monque_core.cli.stats import STATS_FIT, stats_row
from monque_core.cli.tables import Fit, print_table
from monque_core.cli.times import format_duration
from monque_core.jobs.job import AnyJob, JobStatus
from monque_core.jobs.views import QueueStats, QueueView
from monque_core.process import SIGNALS
from monque_core.tasks.views import ReactiveStats

RUNNING_HEADINGS = ("RUNNING", "NAME", "FOR", "HEARD", "BY")
# A narrow terminal cuts the instance, never the id, which users copy.
RUNNING_FIT = Fit(elastic={"NAME": 12, "BY": 8})
_MOST_RUNNING = 100


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=examples("monque top", "monque top --interval 5", "monque top --once"))(top)


def top(
    context: typer.Context,
    interval: Annotated[
        float, typer.Option(min=0.1, max=3600, help="Seconds between updates.")
    ] = 2.0,
    once: Annotated[
        bool, typer.Option("--once", help="Print once and exit; the default without a terminal.")
    ] = False,
) -> None:
    """Watch queues, reactive tasks and running jobs.

    Press q or Ctrl-C to quit.
    """
    is_live = not once and sys.stdin.isatty() and sys.stdout.isatty()
    run(
        _watch(GlobalOptions.of(context), interval)
        if is_live
        else _print_once(GlobalOptions.of(context))
    )


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """The state of a collection at one moment."""

    views: list[QueueView]
    total: QueueStats
    running: list[AnyJob]
    reactive: ReactiveStats
    database: str
    now: datetime
    at: float
    """Monotonic time in seconds."""

    def rate_since(self, before: "QueueSnapshot | None", name: str | None = None) -> float | None:
        """Return the completed jobs per second since another snapshot, for a name or all."""
        if before is None:
            return None
        # Retention may delete more jobs than are completed.
        done = max(0, self._completed(name) - before._completed(name))
        return done / (self.at - before.at)

    def _completed(self, name: str | None) -> int:
        if name is None:
            return self.total.completed
        return sum(view.stats.completed for view in self.views if view.name == name)


async def take_snapshot(connection: Connection) -> QueueSnapshot:
    """Return the current state of the collection."""
    monque = connection.monque
    views = await monque.get_queue_view_summaries()
    total = await monque.get_queue_stats()
    running = await monque.get_jobs(status=JobStatus.PROCESSING, limit=_MOST_RUNNING)
    running.sort(key=_claimed)
    reactive = await monque.get_reactive_stats()
    database, now = connection.db.name, connection.now()
    return QueueSnapshot(views, total, running, reactive, database, now, time.monotonic())


async def _print_once(settings: GlobalOptions) -> None:
    async with connected(settings) as connection:
        seen = await take_snapshot(connection)
    print_table(
        ("NAME", *(status.upper() for status in JobStatus.ALL), "AVERAGE"),
        [
            *(stats_row(view.name, view.stats) for view in seen.views),
            stats_row("total", seen.total),
        ],
        fit=STATS_FIT,
    )
    if seen.reactive.tasks:
        typer.echo()
        rows = (task_row(task, seen.database) for task in seen.reactive.tasks)
        print_table(STATS_HEADINGS, rows, fit=TASKS_FIT)
        print_fields(planning_fields(seen.reactive))
    if seen.running:
        typer.echo()
        print_table(
            RUNNING_HEADINGS,
            (running_row(job, seen.now) for job in seen.running),
            fit=RUNNING_FIT,
        )


def running_row(job: AnyJob, now: datetime) -> tuple[str, ...]:
    """Return a running job as a table row: run time, last heartbeat, instance."""
    heard = "" if job.last_heartbeat is None else f"{format_duration(now - job.last_heartbeat)} ago"
    return (
        str(job.id),
        job.name,
        format_duration(now - _claimed(job)),
        heard,
        job.claimed_by or "",
    )


def _claimed(job: AnyJob) -> datetime:
    return job.claimed_at or job.locked_at or job.updated_at


async def _watch(settings: GlobalOptions, interval: float) -> None:
    from monque_core.cli.live_screen import LiveScreen  # noqa: PLC0415  # slow import

    before: QueueSnapshot | None = None
    async with connected(settings) as connection:
        seen = await take_snapshot(connection)
        with _quit_requests() as quit_requested, LiveScreen() as screen:
            while True:
                screen.show(seen, before)
                with suppress(TimeoutError):
                    await asyncio.wait_for(quit_requested.wait(), interval)
                    return
                before, seen = seen, await take_snapshot(connection)


@contextmanager
def _quit_requests() -> Iterator[asyncio.Event]:
    """Yield an event that is set by q, Ctrl-C or SIGTERM; read keys without echo."""
    requested = asyncio.Event()
    loop = asyncio.get_running_loop()
    if sys.platform == "win32":
        # Ctrl-C raises KeyboardInterrupt there.
        yield requested
        return
    import termios  # noqa: PLC0415  # not on Windows
    import tty  # noqa: PLC0415  # not on Windows

    def read_key() -> None:
        keys = os.read(keyboard, 64)
        if not keys or b"q" in keys.lower():
            requested.set()

    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    tty.setcbreak(keyboard)
    loop.add_reader(keyboard, read_key)
    for number in SIGNALS:
        loop.add_signal_handler(number, requested.set)
    try:
        yield requested
    finally:
        loop.remove_reader(keyboard)
        for number in SIGNALS:
            loop.remove_signal_handler(number)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
