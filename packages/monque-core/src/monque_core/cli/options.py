"""Options that several commands share, and the examples below their help."""

from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from monque_core.cli import times
from monque_core.cli.payloads import read_source_id
from monque_core.errors import InvalidJobError
from monque_core.jobs.selector import JobSelector
from monque_core.tasks.selector import TaskSelector


def _optional(flag: str, text: str, **details: Any) -> Any:
    """Return an option whose default, none, is not shown."""
    return typer.Option(flag, show_default=False, help=text, **details)


Name = Annotated[str | None, _optional("--name", "Only jobs with this name.")]
Statuses = Annotated[
    list[str] | None,
    _optional(
        "--status",
        "Only jobs in this status: pending, processing, completed, failed or cancelled; "
        "repeatable.",
        metavar="STATUS",
    ),
]
OlderThan = Annotated[
    times.Age | None,
    _optional(
        "--older-than",
        "Only jobs created longer ago than this (7d, 36h, 90m), or before this time.",
        parser=times.parse_age,
        metavar="AGE",
    ),
]
NewerThan = Annotated[
    times.Age | None,
    _optional(
        "--newer-than",
        "Only jobs created more recently than this, or after this time.",
        parser=times.parse_age,
        metavar="AGE",
    ),
]
TaskName = Annotated[str | None, _optional("--name", "Only records of this task.")]
Source = Annotated[
    str | None, _optional("--collection", "Only records of documents in this collection.")
]
TaskStatuses = Annotated[
    list[str] | None,
    _optional(
        "--status",
        "Only records in this status: pending, processing, processing_dirty, completed or "
        "failed; repeatable.",
        metavar="STATUS",
    ),
]
SourceId = Annotated[
    str | None,
    _optional(
        "--source-id",
        "Only records of the document with this _id, as MongoDB Extended JSON.",
        metavar="JSON",
    ),
]
Error = Annotated[str | None, _optional("--error", "Only records whose last error contains this.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Maximum number of rows.")]
Cursor = Annotated[
    str | None, _optional("--cursor", "Continue after the page that printed this cursor.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")]
RunAt = Annotated[
    datetime | None,
    _optional(
        "--run-at",
        "Due time, for example 2030-01-31T09:00Z.",
        parser=times.parse_time,
        metavar="TIME",
    ),
]
Delay = Annotated[
    timedelta | None,
    _optional(
        "--delay",
        "Due this long from now, for example 15m.",
        parser=times.parse_duration,
        metavar="DURATION",
    ),
]
UniqueKey = Annotated[
    str | None, _optional("--unique-key", "At most one active job can have this key.")
]
Priority = Annotated[
    int,
    typer.Option(
        "--priority", min=0, help="Jobs with a higher priority run first; 0 is the lowest."
    ),
]


def examples(*lines: str, heading: str = "Examples") -> str:
    """Return command lines as a block that Typer does not wrap."""
    return "\b\n" + "\n".join([f"{heading}:", *(f"  $ {line}" for line in lines)])


def selector(
    name: str | None,
    statuses: list[str] | None,
    older_than: times.Age | None,
    newer_than: times.Age | None,
) -> JobSelector:
    """Return the selector of the options."""
    try:
        return JobSelector(
            name,
            statuses or None,  # type: ignore[arg-type]  # validated in JobSelector
            None if older_than is None else older_than.value,
            None if newer_than is None else newer_than.value,
        )
    except InvalidJobError as error:
        raise typer.BadParameter(str(error)) from None


def task_criteria(
    name: str | None,
    collection: str | None,
    statuses: list[str] | None,
    source_id: str | None,
    error: str | None,
) -> dict[str, Any]:
    """Return the options that select task records as arguments of the methods of `Monque`."""
    criteria: dict[str, Any] = {
        "name": name,
        "collection": collection,
        "status": statuses or None,
        "source_id": None if source_id is None else read_source_id(source_id),
        "error": error,
    }
    try:
        TaskSelector(**criteria)
    except ValueError as problem:
        raise typer.BadParameter(str(problem)) from None
    return criteria
