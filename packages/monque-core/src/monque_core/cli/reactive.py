"""`monque reactive`: look at reactive tasks, and have them run or examined again."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

import typer

from monque_core.cli import bulk, options
from monque_core.cli.connection import Connection, Settings, connected, leader_of, run
from monque_core.cli.examples import examples
from monque_core.cli.exit_codes import REFUSED
from monque_core.cli.output import (
    ask,
    first_line,
    print_fields,
    print_json,
    say,
    simple,
    task_record,
)
from monque_core.cli.payloads import plain
from monque_core.cli.tables import Fit, print_table
from monque_core.cli.times import away, brief, shown
from monque_core.display import escape, to_json
from monque_core.errors import InvalidJobError, MonqueConnectionError, MonqueError
from monque_core.tasks.record import TaskRecord, TaskStatus
from monque_core.tasks.selector import TaskSelector
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
    help="Look at reactive tasks, and have them run or examined again.",
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
    """List the records of reactive tasks, the newest first.

    There is one for each task and document.
    """
    chosen = options.task_selector(name, collection, status, source_id, error)
    run(_list(Settings.of(context), chosen, limit, cursor, as_json=as_json))


async def _list(
    settings: Settings, chosen: TaskSelector, limit: int, cursor: str | None, *, as_json: bool
) -> None:
    async with connected(settings) as connection:
        page = await connection.monque.get_reactive_tasks(
            **_choice(chosen), limit=limit, cursor=cursor
        )
        now = connection.now()
    if as_json:
        tasks = [task_record(task) for task in page.tasks]
        print_json({"tasks": tasks, "cursor": page.cursor, "has_next": page.has_next})
        return
    if not page.tasks:
        say("no record matches")
        return
    print_table(
        ("TASK", "COLLECTION", "DOCUMENT", "STATUS", "NEXT RUN", "UPDATED", "ATTEMPTS", "ERROR"),
        (_row(task, shown) for task in page.tasks),
        (_row(task, lambda moment: away(moment, now)) for task in page.tasks),
        fit=_LIST_FIT,
    )
    if page.has_next:
        say(f"there are more: add --cursor {page.cursor}")


def _row(task: TaskRecord, write: Callable[[datetime], str]) -> tuple[object, ...]:
    return (
        task.name,
        task.collection,
        # As --source-id reads it.
        to_json(plain(task.source_id)),
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
    """Count the records of each task and status.

    Below them is who plans, and how far that is behind the changes. LAG is for how long the oldest
    pending record has been due, PARKED the number of documents that the task cannot be planned for.
    """
    figures, database = run(_count(Settings.of(context)))
    if as_json:
        print_json(stats_record(figures))
        return
    if not figures.tasks:
        say("there are no reactive tasks")
        return
    rows = (stats_row(task, database) for task in figures.tasks)
    print_table(STATS_HEADINGS, rows, fit=STATS_FIT)
    typer.echo()
    print_fields(planning_fields(figures))
    for task in figures.tasks:
        if task.error is not None:
            say(f"{task.name} cannot be planned: {task.error}")


async def _count(settings: Settings) -> tuple[ReactiveStats, str]:
    async with connected(settings) as connection:
        return await connection.monque.get_reactive_stats(), connection.db.name


def stats_record(figures: ReactiveStats) -> dict[str, Any]:
    """Give figures as JSON."""
    tasks = {
        task.name: {
            "database": task.database,
            "collection": task.collection,
            **{status: getattr(task, status) for status in TaskStatus.ALL},
            "total": task.total,
            "lag": simple(task.lag),
            "parked": task.parked,
            "reconciled_at": simple(task.reconciled_at),
            "reconciling": task.reconciling,
            "error": task.error,
        }
        for task in figures.tasks
    }
    return {"tasks": tasks, "leader": figures.leader, "stream_lag": simple(figures.stream_lag)}


def stats_row(task: ReactiveTaskStats, database: str) -> tuple[object, ...]:
    """Give the figures of a task as a row of a table, seen from a database."""
    place = "" if task.database == database else f"{task.database}."
    return (
        task.name,
        f"{place}{task.collection}",
        *(getattr(task, status) for status in TaskStatus.ALL),
        "" if task.lag is None else brief(task.lag),
        task.parked,
        state(task),
    )


def state(task: ReactiveTaskStats) -> str:
    """Tell how the planning of a task is: broken, at its reconciliation, or as it should be."""
    if task.error is not None:
        return "broken"
    return "reconciling" if task.reconciling else "planned"


def planning_fields(figures: ReactiveStats) -> list[tuple[str, str]]:
    """Give who plans, and how far that is, as names and values."""
    lag = "" if figures.stream_lag is None else brief(figures.stream_lag)
    return [("leader", figures.leader or "nobody"), ("stream lag", lag or "unknown")]


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
    everything: Annotated[bool, typer.Option("--all", help="All records there are.")] = False,
    yes: options.Yes = False,
    as_json: options.Json = False,
) -> None:
    """Run tasks again for the documents that options choose.

    They have all their attempts again. What runs at the moment runs once more afterwards.
    """
    chosen = options.task_selector(name, collection, status, source_id, error)
    if chosen == TaskSelector() and not everything:
        raise typer.BadParameter(
            "say which records to retry: by --name, --collection, --status, --source-id or "
            "--error, or --all"
        )
    retried = run(_retry(Settings.of(context), chosen, yes=yes))
    bulk.tell("retry", f"{bulk.counted(retried, 'record')} retried", retried, as_json=as_json)


async def _retry(settings: Settings, chosen: TaskSelector, *, yes: bool) -> int:
    async with connected(settings) as connection:
        if not yes:
            await _agree(connection, chosen)
        return await connection.monque.retry_reactive_tasks(**_choice(chosen), everything=True)


async def _agree(connection: Connection, chosen: TaskSelector) -> None:
    count = await connection.monque.count_reactive_tasks(**_choice(chosen))
    if count:
        ask(f"retry {bulk.counted(count, 'record')}?")


def _choice(chosen: TaskSelector) -> dict[str, Any]:
    """Give a selector as arguments."""
    return {
        "name": chosen.name,
        "collection": chosen.collection,
        "status": chosen.status,
        "source_id": chosen.source_id,
        "error": chosen.error,
    }


@app.command(epilog=examples("monque reactive reconcile invoice"))
def reconcile(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of a reactive task.")],
) -> None:
    """Have the leader examine all documents of a task again.

    It runs for those that it has missed, and for those that were parked and can be planned by now.
    Without a leader, the next instance that plans reactive tasks does it.
    """
    leader = run(_reconcile(Settings.of(context), name))
    if leader is None:
        say("no instance plans reactive tasks now; start a worker of the application that has them")
    whoever = "the leader" if leader else "the next leader"
    typer.echo(f"{whoever} will examine all documents of {escape(name)}")


async def _reconcile(settings: Settings, name: str) -> str | None:
    """Ask for it, and return the leader."""
    async with connected(settings) as connection:
        try:
            await connection.monque.reconcile(name)
            return await leader_of(connection.db, settings.collection)
        except (InvalidJobError, MonqueConnectionError):
            raise
        except MonqueError as error:
            say(str(error))
            raise typer.Exit(REFUSED) from None
