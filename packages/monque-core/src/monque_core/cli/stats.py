"""`monque stats`: how many jobs there are."""

import typer

from monque_core.cli import options
from monque_core.cli.connection import Settings, connected, run
from monque_core.cli.examples import examples
from monque_core.cli.output import print_json, say, stats_record
from monque_core.cli.tables import Fit, print_table
from monque_core.cli.times import brief
from monque_core.jobs.job import JobStatus
from monque_core.jobs.views import QueueStats

STATS_FIT = Fit(optional=("CANCELLED",), elastic={"NAME": 12})


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples("monque stats", "monque stats --json | jq .total.failed"),
    )(stats)


def stats(context: typer.Context, name: options.Name = None, as_json: options.Json = False) -> None:
    """Count the jobs of each name and status.

    AVERAGE is the time from claim to completion, over all completed jobs that are still stored.
    """
    by_name, total = run(_count(Settings.of(context), name))
    if as_json:
        queues = {queue: stats_record(figures) for queue, figures in by_name.items()}
        print_json({"queues": queues, "total": stats_record(total)})
        return
    if not by_name:
        say("there are no jobs")
        return
    print_table(
        ("NAME", *(status.upper() for status in JobStatus.ALL), "AVERAGE"),
        [
            *(stats_row(queue, figures) for queue, figures in by_name.items()),
            *([stats_row("total", total)] if len(by_name) > 1 else []),
        ],
        fit=STATS_FIT,
    )


def stats_row(name: str, figures: QueueStats) -> tuple[object, ...]:
    """Give figures as a row of a table."""
    average = figures.average_duration
    counts = (getattr(figures, status) for status in JobStatus.ALL)
    return (name, *counts, "" if average is None else brief(average))


async def _count(settings: Settings, name: str | None) -> tuple[dict[str, QueueStats], QueueStats]:
    async with connected(settings) as connection:
        total = await connection.monque.get_queue_stats(name)
        if name is not None:
            return ({name: total} if total.total else {}), total
        views = await connection.monque.get_queue_view_summaries()
        return {view.name: view.stats for view in views}, total
