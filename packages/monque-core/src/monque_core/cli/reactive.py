"""`monque reactive`: list, count, retry and reconcile reactive tasks."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

import typer

from monque_core.cli import bulk, options
from monque_core.cli.connection import GlobalOptions, connected, leader_of, run
from monque_core.cli.main import REFUSED
from monque_core.cli.options import examples
from monque_core.cli.output import (
    confirm,
    first_line,
    print_fields,
    print_json,
    print_notice,
    task_record,
    to_json_value,
)
from monque_core.cli.payloads import to_extended_json
from monque_core.cli.tables import Fit, print_table
from monque_core.cli.times import format_duration, format_relative, format_time
from monque_core.display import escape, to_json
from monque_core.errors import InvalidJobError, MonqueConnectionError, MonqueError
from monque_core.tasks.record import TaskRecord, TaskStatus
from monque_core.tasks.views import ReactiveStats, ReactiveTaskStats

STATS_HEADINGS = (
    "TASK",
    "COLLECTION",
    *("PENDING", "PROCESSING", "DIRTY", "COMPLETED", "FAILED"),
    *("LAG", "PARKED", "STATE"),
)
STATS_FIT = Fit(optional=("COLLECTION", "COMPLETED"), elastic={"TASK": 12})
_LIST_FIT = Fit(
    optional=("NEXT RUN", "UPDATED", "COLLECTION", "ATTEMPTS"), elastic={"TASK": 12, "ERROR": 20}
)

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="List, count, retry and reconcile reactive tasks.",
)


@app.command(
    "list",
    epilog=examples(
        "monque reactive list --name invoice --status failed",
        """monque reactive list --source-id '{"$oid": "66f2a1c5e4b0a1b2c3d4e5f6"}'""",
        "monque reactive list --error Timeout --json | jq '.tasks[].source_id'",
    ),
)
def list_records(
    context: typer.Context,
    name: options.TaskName = None,
    collection: options.Source = None,
    status: options.TaskStatuses = None,
    source_id: options.SourceId = None,
    error: options.Error = None,
    limit: options.Limit = 50,
    cursor: options.Cursor = None,
    as_json: options.Json = False,
) -> None:
    """List the records of reactive tasks, newest first.

    There is one record for each task and document.
    """
    chosen = options.task_criteria(name, collection, status, source_id, error)
    run(_list(GlobalOptions.of(context), chosen, limit, cursor, as_json=as_json))


async def _list(
    settings: GlobalOptions,
    chosen: dict[str, Any],
    limit: int,
    cursor: str | None,
    *,
    as_json: bool,
) -> None:
    async with connected(settings) as connection:
        page = await connection.monque.get_reactive_tasks(**chosen, limit=limit, cursor=cursor)
        now = connection.now()
    if as_json:
        tasks = [task_record(task) for task in page.tasks]
        print_json({"tasks": tasks, "cursor": page.cursor, "has_next": page.has_next})
        return
    if not page.tasks:
        print_notice("no matching records")
        return
    print_table(
        ("TASK", "COLLECTION", "DOCUMENT", "STATUS", "NEXT RUN", "UPDATED", "ATTEMPTS", "ERROR"),
        (_row(task, format_time) for task in page.tasks),
        (_row(task, lambda moment: format_relative(moment, now)) for task in page.tasks),
        fit=_LIST_FIT,
    )
    if page.has_next:
        print_notice(f"more records: add --cursor {page.cursor}")


def _row(task: TaskRecord, write: Callable[[datetime], str]) -> tuple[object, ...]:
    return (
        task.name,
        task.collection,
        # In the format of --source-id.
        to_json(to_extended_json(task.source_id)),
        task.status,
        "" if task.next_run_at is None else write(task.next_run_at),
        write(task.updated_at),
        task.attempts,
        first_line(task.last_error),
    )


@app.command(
    epilog=examples("monque reactive stats", "monque reactive stats --json | jq .stream_lag")
)
def stats(context: typer.Context, as_json: options.Json = False) -> None:
    """Count records by task and status.

    Also prints the leader and the lag of the change stream. LAG: how long the oldest pending record
    has been due. PARKED: documents for which the task cannot be planned.
    """
    figures, database = run(_count(GlobalOptions.of(context)))
    if as_json:
        print_json(stats_record(figures))
        return
    if not figures.tasks:
        print_notice("there are no reactive tasks")
        return
    rows = (stats_row(task, database) for task in figures.tasks)
    print_table(STATS_HEADINGS, rows, fit=STATS_FIT)
    typer.echo()
    print_fields(planning_fields(figures))
    for task in figures.tasks:
        if task.error is not None:
            print_notice(f"{task.name} cannot be planned: {task.error}")


async def _count(settings: GlobalOptions) -> tuple[ReactiveStats, str]:
    async with connected(settings) as connection:
        return await connection.monque.get_reactive_stats(), connection.db.name


def stats_record(figures: ReactiveStats) -> dict[str, Any]:
    """Return statistics as a JSON object."""
    tasks = {
        task.name: {
            "database": task.database,
            "collection": task.collection,
            **{status: getattr(task, status) for status in TaskStatus.ALL},
            "total": task.total,
            "lag": to_json_value(task.lag),
            "parked": task.parked,
            "reconciled_at": to_json_value(task.reconciled_at),
            "reconciling": task.reconciling,
            "error": task.error,
        }
        for task in figures.tasks
    }
    return {
        "tasks": tasks,
        "leader": figures.leader,
        "stream_lag": to_json_value(figures.stream_lag),
    }


def stats_row(task: ReactiveTaskStats, database: str) -> tuple[object, ...]:
    """Return the statistics of a task as a table row; other databases are named."""
    place = "" if task.database == database else f"{task.database}."
    return (
        task.name,
        f"{place}{task.collection}",
        *(getattr(task, status) for status in TaskStatus.ALL),
        "" if task.lag is None else format_duration(task.lag),
        task.parked,
        state(task),
    )


def state(task: ReactiveTaskStats) -> str:
    """Return the planning state of a task: broken, reconciling or planned."""
    if task.error is not None:
        return "broken"
    return "reconciling" if task.reconciling else "planned"


def planning_fields(figures: ReactiveStats) -> list[tuple[str, str]]:
    """Return the leader and the stream lag as names and values."""
    lag = "" if figures.stream_lag is None else format_duration(figures.stream_lag)
    return [("leader", figures.leader or "none"), ("stream lag", lag or "unknown")]


@app.command(
    epilog=examples(
        "monque reactive retry --name invoice --status failed",
        "monque reactive retry --collection orders --source-id 17 --yes",
        "monque reactive retry --error Timeout --yes",
    )
)
def retry(
    context: typer.Context,
    name: options.TaskName = None,
    collection: options.Source = None,
    status: options.TaskStatuses = None,
    source_id: options.SourceId = None,
    error: options.Error = None,
    everything: Annotated[bool, typer.Option("--all", help="Select all records.")] = False,
    yes: options.Yes = False,
    as_json: options.Json = False,
) -> None:
    """Retry tasks for the documents that options select.

    They get their full number of attempts. A task that is running now runs again afterwards.
    """
    chosen = options.task_criteria(name, collection, status, source_id, error)
    if not everything and all(criterion is None for criterion in chosen.values()):
        raise typer.BadParameter(
            "select the records to retry: give --name, --collection, --status, --source-id, "
            "--error or --all"
        )
    retried = run(_retry(GlobalOptions.of(context), chosen, yes=yes))
    bulk.report_changes(
        "retry", f"{bulk.counted(retried, 'record')} retried", retried, as_json=as_json
    )


async def _retry(settings: GlobalOptions, chosen: dict[str, Any], *, yes: bool) -> int:
    async with connected(settings) as connection:
        if not yes and (count := await connection.monque.count_reactive_tasks(**chosen)):
            confirm(f"retry {bulk.counted(count, 'record')}?")
        return await connection.monque.retry_reactive_tasks(**chosen, everything=True)


@app.command(epilog=examples("monque reactive reconcile invoice"))
def reconcile(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of a reactive task.")],
) -> None:
    """Make the leader examine all documents of a task.

    The task runs for documents that were missed, and for parked documents that can be planned now.
    Without a leader, the next leader does it.
    """
    leader = run(_reconcile(GlobalOptions.of(context), name))
    if leader is None:
        print_notice(
            "there is no leader now: start a worker of the application that declares the task"
        )
    whoever = "the leader" if leader else "the next leader"
    typer.echo(f"{whoever} will examine all documents of {escape(name)}")


async def _reconcile(settings: GlobalOptions, name: str) -> str | None:
    """Request a reconciliation; return the leader."""
    async with connected(settings) as connection:
        try:
            await connection.monque.reconcile(name)
            return await leader_of(connection.db, settings.collection)
        except (InvalidJobError, MonqueConnectionError):
            raise
        except MonqueError as error:
            print_notice(str(error))
            raise typer.Exit(REFUSED) from None
