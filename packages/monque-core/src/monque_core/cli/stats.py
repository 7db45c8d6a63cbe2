"""`monque stats`: the number of jobs by name and status."""

import typer

from monque_core.cli import options
from monque_core.cli.connection import GlobalOptions, connected, run
from monque_core.cli.options import examples
from monque_core.cli.output import print_json, print_notice, stats_record
from monque_core.cli.tables import Fit, print_table
from monque_core.cli.times import format_duration
from monque_core.jobs.job import JobStatus
from monque_core.jobs.views import QueueStats

STATS_FIT = Fit(optional=("CANCELLED",), elastic={"NAME": 12})


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples("monque stats", "monque stats --json | jq .total.failed"),
    )(stats)


def stats(context: typer.Context, name: options.Name = None, as_json: options.Json = False) -> None:
    """Count jobs by name and status.

    AVERAGE: mean time from claim to completion of the completed jobs that are still stored.
    """
    by_name, total = run(_count(GlobalOptions.of(context), name))
    if as_json:
        queues = {queue: stats_record(figures) for queue, figures in by_name.items()}
        print_json({"queues": queues, "total": stats_record(total)})
        return
    if not by_name:
        print_notice("no jobs")
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
    """Return statistics as a table row."""
    average = figures.average_duration
    counts = (getattr(figures, status) for status in JobStatus.ALL)
    return (name, *counts, "" if average is None else format_duration(average))


async def _count(
    settings: GlobalOptions, name: str | None
) -> tuple[dict[str, QueueStats], QueueStats]:
    async with connected(settings) as connection:
        total = await connection.monque.get_queue_stats(name)
        if name is not None:
            return ({name: total} if total.total else {}), total
        views = await connection.monque.get_queue_view_summaries()
        return {view.name: view.stats for view in views}, total
