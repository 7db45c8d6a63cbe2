"""What commands print: tables for people, JSON for programs."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import typer

from monque_core.cli.exit_codes import REFUSED
from monque_core.cli.payloads import plain
from monque_core.display import escape, to_json
from monque_core.jobs.job import JobStatus
from monque_core.tasks.record import TaskStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from monque_core.jobs.job import AnyJob
    from monque_core.jobs.views import QueueStats
    from monque_core.tasks.record import TaskRecord

COLOURS = {
    JobStatus.PENDING: "yellow",
    JobStatus.PROCESSING: "cyan",
    JobStatus.COMPLETED: "green",
    JobStatus.FAILED: "red",
    JobStatus.CANCELLED: "magenta",
    TaskStatus.PROCESSING_DIRTY: "cyan",
    "ok": "green",
    "warning": "yellow",
    "problem": "red",
    "unclaimed": "red",
    "broken": "red",
    "reconciling": "yellow",
    "nobody": "red",
}


def print_json(value: object) -> None:
    """Print one JSON document on one line."""
    typer.echo(to_json(value))


def say(message: str) -> None:
    """Tell a person something that is no result."""
    typer.echo(escape(message), err=True)


def ask(question: str) -> None:
    """Have a question answered with yes, or refuse to go on."""
    try:
        if typer.confirm(question, err=True):
            return
        say("nothing was changed")
    except typer.Abort:
        typer.echo(err=True)
        say("nothing was changed; give --yes where nobody can answer")
    raise typer.Exit(REFUSED)


def job_record(job: AnyJob) -> dict[str, Any]:
    """Give a job as JSON: ids and times as text, durations in seconds; what is unset is absent."""
    return _record(job, payloads=("data",))


def task_record(task: TaskRecord) -> dict[str, Any]:
    """Give the record of a reactive task as JSON, in the manner of a job."""
    return _record(task, payloads=("source_id", "values"))


def stats_record(stats: QueueStats) -> dict[str, Any]:
    """Give figures as JSON."""
    average = stats.average_duration
    return {
        **{status: getattr(stats, status) for status in JobStatus.ALL},
        "total": stats.total,
        "average_duration": None if average is None else average.total_seconds(),
    }


def print_fields(values: Iterable[tuple[str, object]]) -> None:
    """Print one name and value per line, a value that is no text as JSON."""
    pairs = [
        (name, escape(value) if isinstance(value, str) else to_json(value))
        for name, value in values
    ]
    width = max((len(name) for name, _ in pairs), default=0)
    for name, text in pairs:
        typer.echo(f"{name.ljust(width)}  {coloured(text)}")


def first_line(text: str | None) -> str:
    """Return the first line of a text, for a table."""
    return (text or "").strip().partition("\n")[0]


def coloured(word: str, text: str | None = None) -> str:
    """Give a text in the colour of a word that has one."""
    colour = COLOURS.get(word)
    return typer.style(text or word, fg=colour) if colour else text or word


def _record(of: Any, payloads: Sequence[str] = ()) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for field in fields(of):
        value = getattr(of, field.name)
        if field.name in payloads:
            record[field.name] = plain(value)
        elif value is not None:
            record[field.name] = simple(value)
    return record


def simple(value: object) -> object:
    """Give a value as JSON: times as text, durations in seconds, what JSON has not as text."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, tuple):
        return [simple(one) for one in value]
    if is_dataclass(value):
        return _record(value)
    return value if isinstance(value, str | int | float | None) else str(value)
