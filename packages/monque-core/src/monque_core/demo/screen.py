"""The same in a terminal, redrawn several times per second; needs rich."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from monque_core.demo.work import PARTS, REPORT
from monque_core.jobs.job import JobStatus

if TYPE_CHECKING:
    from rich.console import Console

    from monque_core.demo.view import Picture

_COLOURS = {
    JobStatus.PENDING: "yellow",
    JobStatus.PROCESSING: "cyan",
    JobStatus.COMPLETED: "green",
    JobStatus.FAILED: "red",
    JobStatus.CANCELLED: "magenta",
}


class Screen:
    """A live display."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False)
        self._live.start()

    def show(self, picture: Picture) -> None:
        """Draw the picture over the last one."""
        drawing = Group(_headline(picture), _counts(picture), _workers(picture), _events(picture))
        self._live.update(drawing, refresh=True)

    def close(self) -> None:
        """Leave the last picture and give the terminal back."""
        self._live.stop()


def _headline(picture: Picture) -> Text:
    meter = picture.meter
    return Text.assemble(
        ("Monque ", "bold"),
        f"{picture.phase}, {meter.elapsed:.1f} s   ",
        (f"{meter.rate:.0f} jobs/s", "bold green"),
        f"   due to running: {meter.recent_latency() or 'not measured yet'}",
    )


def _counts(picture: Picture) -> Text:
    parts = [
        (f"{status} {picture.counts.get(status, 0):,}   ", _COLOURS[status])
        for status in JobStatus.ALL
    ]
    return Text.assemble(*parts)


def _workers(picture: Picture) -> Table:
    meter = picture.meter
    table = Table(expand=True)
    table.add_column("worker", style="bold")
    table.add_column("shows")
    for column in ("slots", "running", "done", "retried"):
        table.add_column(column, justify="right")
    for part in PARTS:
        shows = part.shows
        if part.name == REPORT:
            shows += f", next in {picture.next_tick_in:.0f} s"
        table.add_row(
            part.name,
            shows,
            str(part.concurrency),
            str(meter.running[part.name]),
            f"{meter.completed[part.name]:,}",
            f"{meter.retried[part.name]:,}",
        )
    return table


def _events(picture: Picture) -> Panel:
    recent = picture.meter.recent
    # Always as many lines as fit, so that the picture does not jump.
    lines = [*recent, *[""] * ((recent.maxlen or 0) - len(recent))]
    text = Text("\n".join(lines), no_wrap=True, overflow="ellipsis")
    return Panel(text, title="recent events", title_align="left")
