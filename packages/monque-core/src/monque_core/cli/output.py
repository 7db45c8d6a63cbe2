"""Output of commands: text for people, JSON for programs."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import typer

from monque_core.cli.main import REFUSED
from monque_core.cli.payloads import to_extended_json
from monque_core.display import escape, to_json
from monque_core.jobs.job import JobStatus
from monque_core.tasks.record import TaskStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from monque_core.jobs.job import AnyJob
    from monque_core.jobs.views import QueueStats
    from monque_core.tasks.record import TaskRecord

COLORS = {
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
}


def print_json(value: object) -> None:
    """Print one JSON document on one line."""
    typer.echo(to_json(value))


def print_notice(message: str) -> None:
    """Print a message to standard error, apart from the results."""
    typer.echo(escape(message), err=True)


def confirm(question: str) -> None:
    """Ask for confirmation; exit if the answer is not yes."""
    try:
        if typer.confirm(question, err=True):
            return
        print_notice("nothing was changed")
    except typer.Abort:
        typer.echo(err=True)
        print_notice("nothing was changed; without a terminal, confirm with --yes")
    raise typer.Exit(REFUSED)


def job_record(job: AnyJob) -> dict[str, Any]:
    """Return a job as a JSON object: ids and times as text, durations in seconds, no nulls."""
    return _record(job, payloads=("data",))


def task_record(task: TaskRecord) -> dict[str, Any]:
    """Return the record of a reactive task as a JSON object, like `job_record`."""
    return _record(task, payloads=("source_id", "values"))


def stats_record(stats: QueueStats) -> dict[str, Any]:
    """Return statistics as a JSON object."""
    average = stats.average_duration
    return {
        **{status: getattr(stats, status) for status in JobStatus.ALL},
        "total": stats.total,
        "average_duration": None if average is None else average.total_seconds(),
    }


def print_fields(values: Iterable[tuple[str, object]]) -> None:
    """Print one name and value per line; values other than text as JSON."""
    pairs = [
        (name, escape(value) if isinstance(value, str) else to_json(value))
        for name, value in values
    ]
    width = max((len(name) for name, _ in pairs), default=0)
    for name, text in pairs:
        typer.echo(f"{name.ljust(width)}  {colored(text)}")


def first_line(text: str | None) -> str:
    """Return the first line of a text, for a table."""
    return (text or "").strip().partition("\n")[0]


def colored(word: str, text: str | None = None) -> str:
    """Return a text in the color of a known word, such as a status."""
    color = COLORS.get(word)
    return typer.style(text or word, fg=color) if color else text or word


def _record(of: Any, payloads: Sequence[str] = ()) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for field in fields(of):
        value = getattr(of, field.name)
        if field.name in payloads:
            record[field.name] = to_extended_json(value)
        elif value is not None:
            record[field.name] = to_json_value(value)
    return record


def to_json_value(value: object) -> object:
    """Return a value for JSON: times and unknown types as text, durations in seconds."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, tuple):
        return [to_json_value(one) for one in value]
    if is_dataclass(value):
        return _record(value)
    return value if isinstance(value, str | int | float | None) else str(value)
