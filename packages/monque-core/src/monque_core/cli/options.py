"""Options that several commands share, and the examples below their help."""

from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from monque_core.cli import times
from monque_core.cli.payloads import read_source_id
from monque_core.errors import InvalidJobError
from monque_core.jobs.selector import JobSelector
from monque_core.tasks.selector import TaskSelector

Name = Annotated[
    str | None, typer.Option("--name", show_default=False, help="Only jobs with this name.")
]
Statuses = Annotated[
    list[str] | None,
    typer.Option(
        "--status",
        metavar="STATUS",
        show_default=False,
        help="Only jobs in this status: pending, processing, completed, failed or cancelled; "
        "repeatable.",
    ),
]
OlderThan = Annotated[
    times.Age | None,
    typer.Option(
        "--older-than",
        parser=times.parse_age,
        metavar="AGE",
        show_default=False,
        help="Only jobs created longer ago than this (7d, 36h, 90m), or before this time.",
    ),
]
NewerThan = Annotated[
    times.Age | None,
    typer.Option(
        "--newer-than",
        parser=times.parse_age,
        metavar="AGE",
        show_default=False,
        help="Only jobs created more recently than this, or after this time.",
    ),
]
TaskName = Annotated[
    str | None, typer.Option("--name", show_default=False, help="Only records of this task.")
]
Source = Annotated[
    str | None,
    typer.Option(
        "--collection",
        show_default=False,
        help="Only records of documents in this collection.",
    ),
]
TaskStatuses = Annotated[
    list[str] | None,
    typer.Option(
        "--status",
        metavar="STATUS",
        show_default=False,
        help="Only records in this status: pending, processing, processing_dirty, completed or "
        "failed; repeatable.",
    ),
]
SourceId = Annotated[
    str | None,
    typer.Option(
        "--source-id",
        metavar="JSON",
        show_default=False,
        help="Only records of the document with this _id, as MongoDB Extended JSON.",
    ),
]
Error = Annotated[
    str | None,
    typer.Option(
        "--error", show_default=False, help=("Only records whose last error contains this.")
    ),
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Maximum number of rows.")]
Cursor = Annotated[
    str | None,
    typer.Option(
        "--cursor", show_default=False, help="Continue after the page that printed this cursor."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")]
RunAt = Annotated[
    datetime | None,
    typer.Option(
        "--run-at",
        parser=times.parse_time,
        metavar="TIME",
        show_default=False,
        help="Due time, for example 2030-01-31T09:00Z.",
    ),
]
Delay = Annotated[
    timedelta | None,
    typer.Option(
        "--delay",
        parser=times.parse_duration,
        metavar="DURATION",
        show_default=False,
        help="Due this long from now, for example 15m.",
    ),
]
UniqueKey = Annotated[
    str | None,
    typer.Option(
        "--unique-key", show_default=False, help=("At most one active job can have this key.")
    ),
]
Priority = Annotated[
    int,
    typer.Option(
        "--priority", min=0, help=("Jobs with a higher priority run first; 0 is the lowest.")
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


def task_selector(
    name: str | None,
    collection: str | None,
    statuses: list[str] | None,
    source_id: str | None,
    error: str | None,
) -> TaskSelector:
    """Return the selector of the options for task records."""
    chosen: Any = statuses or None
    document = None if source_id is None else read_source_id(source_id)
    try:
        return TaskSelector(
            name=name, collection=collection, status=chosen, source_id=document, error=error
        )
    except ValueError as problem:
        raise typer.BadParameter(str(problem)) from None
