"""The live screen of `monque top`; needs rich."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from monque_core.cli.output import COLOURS
from monque_core.cli.reactive import STATS_HEADINGS, planning_fields
from monque_core.cli.reactive import stats_row as task_row
from monque_core.cli.stats import stats_row
from monque_core.cli.times import shown
from monque_core.cli.top import running_row
from monque_core.jobs.job import JobStatus

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import RenderableType

    from monque_core.cli.top import Look

_LINES_AROUND = 9
"""Headings and gaps."""
_LINES_AROUND_TASKS = 4
_FEWEST_ROWS = 3
_ID_WIDTH = 24


class Screen:
    """A picture that fills the terminal until it is closed."""

    def __init__(self) -> None:
        self._console = Console()
        self._live = Live(console=self._console, screen=True, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.stop()

    def show(self, seen: Look, before: Look | None) -> None:
        """Draw a look at the collection, with rates since the one before."""
        rows = self._console.size.height - _LINES_AROUND
        tasks = min(len(seen.reactive.tasks), max(_FEWEST_ROWS, rows // 3))
        if tasks:
            rows -= tasks + _LINES_AROUND_TASKS
        rows = max(_FEWEST_ROWS * 2, rows)
        running = min(len(seen.running), max(_FEWEST_ROWS, rows // 2))
        queues = max(_FEWEST_ROWS, rows - running)
        drawing: list[RenderableType] = [
            _headline(seen, before),
            "",
            _queues(seen, before, queues),
            "",
            _running(seen, running),
        ]
        if tasks:
            drawing[-1:-1] = [*_tasks(seen, tasks), ""]
        self._live.update(Group(*drawing), refresh=True)


def _headline(seen: Look, before: Look | None) -> Text:
    counts = [
        (f"   {status} {getattr(seen.total, status):,}", COLOURS[status])
        for status in JobStatus.ALL
    ]
    rate = f"{_rate(seen.rate_since(before))} jobs/s"
    heading = f"  {shown(seen.now)}   q ends   "
    return Text.assemble(("monque top", "bold"), heading, (rate, "bold green"), *counts)


def _queues(seen: Look, before: Look | None, most: int) -> Table:
    """Draw the names with the most work first, as many as fit."""
    table = _table("NAME", *(status.upper() for status in JobStatus.ALL), "AVERAGE", "JOBS/S")
    for column in table.columns[1:]:
        column.justify = "right"
    busiest = sorted(
        seen.views, key=lambda view: (-view.stats.processing, -view.stats.pending, view.name)
    )
    for view in busiest[:most]:
        rate = _rate(seen.rate_since(before, view.name))
        table.add_row(*map(str, stats_row(view.name, view.stats)), rate)
    if len(busiest) > most:
        table.add_row(f"… and {len(busiest) - most} more")
    return table


def _tasks(seen: Look, most: int) -> tuple[Table, Text]:
    """Draw the reactive tasks with the most work first, as many as fit, and who plans them."""
    table = _table(*STATS_HEADINGS)
    for column in table.columns[2:-1]:
        column.justify = "right"
    busiest = sorted(
        seen.reactive.tasks,
        key=lambda task: (task.error is None, -task.processing, -task.pending, task.name),
    )
    for task in busiest[:most]:
        table.add_row(*map(str, task_row(task, seen.database)))
    if len(busiest) > most:
        table.add_row(f"… and {len(busiest) - most} more")
    planning = "   ".join(f"{name}: {value}" for name, value in planning_fields(seen.reactive))
    return table, Text(planning)


def _running(seen: Look, most: int) -> Table:
    """Draw the jobs that run, the longest run first."""
    table = _table("RUNNING", "NAME", "FOR", "HEARD", "BY")
    # A narrow terminal cuts the instance, never the id that one wants to copy.
    table.columns[0].min_width = _ID_WIDTH
    for job in seen.running[:most]:
        table.add_row(*running_row(job, seen.now))
    if not seen.running:
        table.add_row("nothing")
    return table


def _table(*headings: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, expand=True)
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    return table


def _rate(rate: float | None) -> str:
    return "–" if rate is None else f"{rate:.1f}"
