"""The live screen of `monque top`; needs rich."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

import rich.table
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from monque_core.cli.output import COLORS
from monque_core.cli.reactive import STATS_FIT as TASKS_FIT
from monque_core.cli.reactive import STATS_HEADINGS, planning_fields
from monque_core.cli.reactive import stats_row as task_row
from monque_core.cli.stats import STATS_FIT, stats_row
from monque_core.cli.tables import Table
from monque_core.cli.times import format_time
from monque_core.cli.top import RUNNING_FIT, RUNNING_HEADINGS, running_row
from monque_core.display import escape
from monque_core.jobs.job import JobStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from monque_core.cli.top import QueueSnapshot

_LINES_AROUND = 10
"""Headings and blank lines."""
_LINES_AROUND_TASKS = 4
_FEWEST_ROWS = 3


class LiveScreen:
    """A full-screen display that is redrawn until it is closed."""

    def __init__(self) -> None:
        self._console = Console()
        self._live = Live(console=self._console, screen=True, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, seen: QueueSnapshot, before: QueueSnapshot | None) -> None:
        """Draw a snapshot, with rates since the previous one."""
        width, height = self._console.size
        rows = height - _LINES_AROUND
        tasks = min(len(seen.reactive.tasks), max(_FEWEST_ROWS, rows // 3))
        if tasks:
            rows -= tasks + _LINES_AROUND_TASKS
        rows = max(_FEWEST_ROWS * 2, rows)
        half = max(_FEWEST_ROWS, rows // 2)
        queues = min(len(seen.views), rows - min(len(seen.running), half))
        running = max(half, rows - queues)
        drawing: list[RenderableType] = [
            _headline(seen, before),
            "",
            _queues(seen, before, queues, width),
            "",
            _running(seen, running, width),
        ]
        if tasks:
            drawing[-1:-1] = [*_tasks(seen, tasks, width), ""]
        self._live.update(Group(*drawing), refresh=True)


def _headline(seen: QueueSnapshot, before: QueueSnapshot | None) -> Text:
    rate = f"{_rate(seen.rate_since(before))} jobs/s"
    heading = f"  {format_time(seen.now)}   q quits   "
    first = (("monque top", "bold"), heading, (rate, "bold green"))
    counts = [
        (f"{status} {getattr(seen.total, status):,}   ", COLORS[status]) for status in JobStatus.ALL
    ]
    return Text.assemble(*first, "\n", *counts, overflow="ellipsis")


def _queues(
    seen: QueueSnapshot, before: QueueSnapshot | None, most: int, width: int
) -> rich.table.Table:
    """Return the table of names, busiest first, as many as fit."""
    headings = ("NAME", *(status.upper() for status in JobStatus.ALL), "AVERAGE", "JOBS/S")
    busiest = sorted(
        seen.views, key=lambda view: (-view.stats.processing, -view.stats.pending, view.name)
    )
    rows = [
        (*stats_row(view.name, view.stats), _rate(seen.rate_since(before, view.name)))
        for view in busiest[:most]
    ]
    table = _drawn(Table(headings, rows, STATS_FIT).fitted(width), right=headings[1:])
    _count_hidden(table, len(busiest) - most)
    return table


def _tasks(seen: QueueSnapshot, most: int, width: int) -> tuple[rich.table.Table, Text]:
    """Return the table of reactive tasks, busiest first, and the line about their planning."""
    busiest = sorted(
        seen.reactive.tasks,
        key=lambda task: (task.error is None, -task.processing, -task.pending, task.name),
    )
    rows = [task_row(task, seen.database) for task in busiest[:most]]
    fitted = Table(STATS_HEADINGS, rows, TASKS_FIT).fitted(width)
    table = _drawn(fitted, right=STATS_HEADINGS[2:-1])
    _count_hidden(table, len(busiest) - most)
    planning = "   ".join(f"{name}: {value}" for name, value in planning_fields(seen.reactive))
    return table, Text(escape(planning), no_wrap=True, overflow="ellipsis")


def _running(seen: QueueSnapshot, most: int, width: int) -> rich.table.Table:
    """Return the table of running jobs, longest run first."""
    rows = [running_row(job, seen.now) for job in seen.running[:most]]
    table = _drawn(Table(RUNNING_HEADINGS, rows, RUNNING_FIT).fitted(width))
    if not seen.running:
        table.add_row("none")
    return table


def _drawn(table: Table, right: Sequence[str] = ()) -> rich.table.Table:
    drawn = rich.table.Table(box=None, header_style="bold", pad_edge=False, expand=True)
    for heading in table.headings:
        justify: Literal["left", "right"] = "right" if heading in right else "left"
        drawn.add_column(heading, no_wrap=True, justify=justify)
    for row in table.rows:
        # Use Text, since brackets in a str are markup.
        drawn.add_row(*(Text(str(cell)) for cell in row))
    return drawn


def _count_hidden(table: rich.table.Table, hidden: int) -> None:
    if hidden > 0:
        table.add_row(f"… and {hidden} more")


def _rate(rate: float | None) -> str:
    return "–" if rate is None else f"{rate:.1f}"
