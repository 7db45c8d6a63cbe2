"""Options that several commands share."""

from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from monque_core.cli import times
from monque_core.cli.payloads import read_source_id
from monque_core.errors import InvalidJobError
from monque_core.jobs.selector import JobSelector
from monque_core.tasks.selector import TaskSelector

Name = Annotated[
    str | None, typer.Option("--name", show_default=False, help="Only jobs of this name.")
]
Statuses = Annotated[
    list[str] | None,
    typer.Option(
        "--status",
        metavar="STATUS",
        show_default=False,
        help="Only jobs in this status: pending, processing, completed, failed or cancelled; "
        "may be given again.",
    ),
]
OlderThan = Annotated[
    times.Age | None,
    typer.Option(
        "--older-than",
        parser=times.age,
        metavar="AGE",
        show_default=False,
        help="Only jobs created longer ago than 7d, 36h, 90m, or before a time.",
    ),
]
NewerThan = Annotated[
    times.Age | None,
    typer.Option(
        "--newer-than",
        parser=times.age,
        metavar="AGE",
        show_default=False,
        help="Only jobs created less long ago, or after a time.",
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
        help="Only records of the documents in this collection.",
    ),
]
TaskStatuses = Annotated[
    list[str] | None,
    typer.Option(
        "--status",
        metavar="STATUS",
        show_default=False,
        help="Only records in this status: pending, processing, processing_dirty, completed or "
        "failed; may be given again.",
    ),
]
SourceId = Annotated[
    str | None,
    typer.Option(
        "--source-id",
        metavar="JSON",
        show_default=False,
        help="Only records of the documents with this _id, as MongoDB Extended JSON.",
    ),
]
Error = Annotated[
    str | None,
    typer.Option("--error", show_default=False, help="Only records with this in the last error."),
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many at most.")]
Cursor = Annotated[
    str | None,
    typer.Option(
        "--cursor", show_default=False, help="Go on after the page that gave this cursor."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before a bulk change.")]
RunAt = Annotated[
    datetime | None,
    typer.Option(
        "--run-at",
        parser=times.instant,
        metavar="TIME",
        show_default=False,
        help="When it is due, for example 2030-01-31T09:00Z.",
    ),
]
Delay = Annotated[
    timedelta | None,
    typer.Option(
        "--delay",
        parser=times.duration,
        metavar="DURATION",
        show_default=False,
        help="How long from now it is due, for example 15m.",
    ),
]
UniqueKey = Annotated[
    str | None,
    typer.Option("--unique-key", show_default=False, help="At most one active job has it."),
]
Priority = Annotated[
    int, typer.Option("--priority", min=0, help="A higher one runs first; 0 is the lowest.")
]


def selector(
    name: str | None,
    statuses: list[str] | None,
    older_than: times.Age | None,
    newer_than: times.Age | None,
) -> JobSelector:
    """Give the jobs that the options choose."""
    try:
        return JobSelector(
            name,
            statuses or None,  # type: ignore[arg-type]  # it checks them, and suggests for a typo
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
    """Give the records of reactive tasks that the options choose."""
    chosen: Any = statuses or None
    document = None if source_id is None else read_source_id(source_id)
    try:
        return TaskSelector(
            name=name, collection=collection, status=chosen, source_id=document, error=error
        )
    except ValueError as problem:
        raise typer.BadParameter(str(problem)) from None
