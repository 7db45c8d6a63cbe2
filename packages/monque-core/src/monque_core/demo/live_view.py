"""The live view in a terminal; needs rich."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from monque_core.demo.workload import REPORT, WORKERS
from monque_core.jobs.job import JobStatus

if TYPE_CHECKING:
    from rich.console import Console

    from monque_core.demo.view import DemoSnapshot

_COLORS = {
    JobStatus.PENDING: "yellow",
    JobStatus.PROCESSING: "cyan",
    JobStatus.COMPLETED: "green",
    JobStatus.FAILED: "red",
    JobStatus.CANCELLED: "magenta",
}


class LiveView:
    """A live display."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False)
        self._live.start()

    def show(self, snapshot: DemoSnapshot) -> None:
        """Draw a snapshot over the previous one."""
        drawing = Group(
            _headline(snapshot), _counts(snapshot), _workers(snapshot), _events(snapshot)
        )
        self._live.update(drawing, refresh=True)

    def close(self) -> None:
        """Keep the last snapshot on screen and release the terminal."""
        self._live.stop()


def _headline(snapshot: DemoSnapshot) -> Text:
    metrics = snapshot.metrics
    return Text.assemble(
        ("Monque ", "bold"),
        f"{snapshot.phase}, {metrics.elapsed:.1f} s   ",
        (f"{metrics.rate:.0f} jobs/s", "bold green"),
        f"   due to running: {metrics.recent_latency() or 'not measured yet'}",
    )


def _counts(snapshot: DemoSnapshot) -> Text:
    parts = [
        (f"{status} {snapshot.counts.get(status, 0):,}   ", _COLORS[status])
        for status in JobStatus.ALL
    ]
    return Text.assemble(*parts)


def _workers(snapshot: DemoSnapshot) -> Table:
    metrics = snapshot.metrics
    table = Table(expand=True)
    table.add_column("worker", style="bold")
    table.add_column("description")
    for column in ("slots", "running", "done", "retried"):
        table.add_column(column, justify="right")
    for worker in WORKERS:
        description = worker.description
        if worker.name == REPORT:
            description += f", next in {snapshot.next_run_in:.0f} s"
        table.add_row(
            worker.name,
            description,
            str(worker.concurrency),
            str(metrics.running[worker.name]),
            f"{metrics.completed[worker.name]:,}",
            f"{metrics.retried[worker.name]:,}",
        )
    return table


def _events(snapshot: DemoSnapshot) -> Panel:
    recent = snapshot.metrics.recent
    # A fixed number of lines keeps the display from jumping.
    lines = [*recent, *[""] * ((recent.maxlen or 0) - len(recent))]
    text = Text("\n".join(lines), no_wrap=True, overflow="ellipsis")
    return Panel(text, title="recent events", title_align="left")
