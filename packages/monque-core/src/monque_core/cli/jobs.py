"""`monque jobs`: list, show, cancel, retry, reschedule and delete jobs."""

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import Annotated

import typer

from monque_core.cli import bulk, options
from monque_core.cli.connection import GlobalOptions, connected, run
from monque_core.cli.main import REFUSED
from monque_core.cli.options import examples
from monque_core.cli.output import first_line, job_record, print_fields, print_json, print_notice
from monque_core.cli.tables import Fit, print_table
from monque_core.cli.times import format_relative, format_time
from monque_core.display import to_json
from monque_core.jobs.job import AnyJob
from monque_core.jobs.selector import JobSelector

_FIT = Fit(optional=("CREATED", "DUE"), elastic={"NAME": 12, "ERROR": 20})

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="List, show, cancel, retry, reschedule and delete jobs.",
)

Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", show_default=False, help="Job ids."),
]
Everything = Annotated[bool, typer.Option("--all", help="Select all jobs.")]


class Sort(StrEnum):
    """The sort orders of a list."""

    NEWEST = "-created_at"
    OLDEST = "created_at"
    UPDATED_LAST = "-updated_at"
    UPDATED_FIRST = "updated_at"
    DUE_LAST = "-next_run_at"
    DUE_FIRST = "next_run_at"


@app.command(
    "list",
    epilog=examples(
        "monque jobs list --status failed --newer-than 1d",
        "monque jobs list --name send-email --sort next_run_at --limit 10",
        "monque jobs list --status failed --json | jq -r '.jobs[].id'",
    ),
)
def list_jobs(
    context: typer.Context,
    name: options.Name = None,
    status: options.Statuses = None,
    older_than: options.OlderThan = None,
    newer_than: options.NewerThan = None,
    limit: options.Limit = 50,
    sort: Annotated[
        Sort,
        typer.Option(
            metavar="ORDER",
            help="created_at, updated_at or next_run_at; a leading minus sorts latest first. "
            "created_at is fast for any number of jobs.",
        ),
    ] = Sort.NEWEST,
    cursor: options.Cursor = None,
    as_json: options.Json = False,
) -> None:
    """List jobs, newest first."""
    chosen = options.selector(name, status, older_than, newer_than)
    run(_list(GlobalOptions.of(context), chosen, limit, sort, cursor, as_json=as_json))


async def _list(
    settings: GlobalOptions,
    chosen: JobSelector,
    limit: int,
    sort: Sort,
    cursor: str | None,
    *,
    as_json: bool,
) -> None:
    async with connected(settings) as connection:
        page = await connection.monque.get_jobs_with_cursor(
            cursor=cursor, limit=limit, filter=chosen, sort=sort.value
        )
        now = connection.now()
    if as_json:
        jobs = [job_record(job) for job in page.jobs]
        print_json({"jobs": jobs, "cursor": page.cursor, "has_next": page.has_next})
        return
    if not page.jobs:
        print_notice("no matching jobs")
        return
    print_table(
        ("ID", "NAME", "STATUS", "DUE", "CREATED", "FAILS", "ERROR"),
        (_row(job, format_time) for job in page.jobs),
        (_row(job, lambda moment: format_relative(moment, now)) for job in page.jobs),
        fit=_FIT,
    )
    if page.has_next:
        print_notice(f"more jobs: add --cursor {page.cursor}")


def _row(job: AnyJob, write: Callable[[datetime], str]) -> tuple[object, ...]:
    times = (write(job.next_run_at), write(job.created_at))
    return (job.id, job.name, job.status, *times, job.fail_count, first_line(job.fail_reason))


@app.command(epilog=examples("monque jobs show 66f2a1c5e4b0a1b2c3d4e5f6"))
def show(
    context: typer.Context,
    job_id: Annotated[str, typer.Argument(metavar="ID", help="Job id.")],
    as_json: options.Json = False,
) -> None:
    """Show all fields of a job."""
    job = run(_get(GlobalOptions.of(context), job_id))
    if job is None:
        print_notice(f"job {job_id} does not exist")
        raise typer.Exit(REFUSED)
    record = job_record(job)
    if as_json:
        print_json(record)
        return
    del record["deduplicated"]
    record["data"] = to_json(record["data"])
    print_fields(record.items())


async def _get(settings: GlobalOptions, job_id: str) -> AnyJob | None:
    async with connected(settings) as connection:
        return await connection.monque.get_job(job_id)


@app.command(
    epilog=examples(
        "monque jobs cancel 66f2a1c5e4b0a1b2c3d4e5f6",
        "monque jobs cancel --name send-email --older-than 2d",
    )
)
def cancel(
    context: typer.Context,
    ids: Ids = None,
    name: options.Name = None,
    status: options.Statuses = None,
    older_than: options.OlderThan = None,
    newer_than: options.NewerThan = None,
    everything: Everything = False,
    schedules: Annotated[
        bool, typer.Option("--schedules", help="Also cancel schedules, which ends them.")
    ] = False,
    yes: options.Yes = False,
    as_json: options.Json = False,
) -> None:
    """Cancel pending jobs.

    Select jobs by id or by options. Options skip schedules, unless --schedules is given.
    """
    action = bulk.cancel(schedules=schedules)
    chosen = options.selector(name, status, older_than, newer_than)
    choice = bulk.Selection.of(action, ids, chosen, everything=everything)
    run(bulk.perform(GlobalOptions.of(context), action, choice, yes=yes, as_json=as_json))


def _add_bulk_action(action: bulk.Action, description: str, *lines: str) -> None:
    """Add a command for an action that needs nothing but the jobs."""

    @app.command(action.verb, help=description, epilog=examples(*lines))
    def _(
        context: typer.Context,
        ids: Ids = None,
        name: options.Name = None,
        status: options.Statuses = None,
        older_than: options.OlderThan = None,
        newer_than: options.NewerThan = None,
        everything: Everything = False,
        yes: options.Yes = False,
        as_json: options.Json = False,
    ) -> None:
        chosen = options.selector(name, status, older_than, newer_than)
        choice = bulk.Selection.of(action, ids, chosen, everything=everything)
        run(bulk.perform(GlobalOptions.of(context), action, choice, yes=yes, as_json=as_json))


_add_bulk_action(
    bulk.RETRY,
    """Retry failed or cancelled jobs.

    They become pending with their full number of runs. A job that was cancelled before its due time
    keeps that time; every other job is due now. A retry of many jobs spreads them over some
    seconds, and skips jobs whose unique key is in use again.
    """,
    "monque jobs retry 66f2a1c5e4b0a1b2c3d4e5f6",
    "monque jobs retry --status failed --newer-than 1h --yes",
)


@app.command(
    epilog=examples(
        "monque jobs reschedule 66f2a1c5e4b0a1b2c3d4e5f6 --run-at 2030-01-31T09:00Z",
        "monque jobs reschedule --name send-email --delay 2h",
    )
)
def reschedule(
    context: typer.Context,
    ids: Ids = None,
    run_at: options.RunAt = None,
    delay: options.Delay = None,
    name: options.Name = None,
    status: options.Statuses = None,
    older_than: options.OlderThan = None,
    newer_than: options.NewerThan = None,
    everything: Everything = False,
    yes: options.Yes = False,
    as_json: options.Json = False,
) -> None:
    """Change when pending jobs are due, by --run-at or --delay."""
    if (run_at is None) == (delay is None):
        raise typer.BadParameter("give one of --run-at and --delay")
    action = bulk.reschedule_to(run_at, delay)
    chosen = options.selector(name, status, older_than, newer_than)
    choice = bulk.Selection.of(action, ids, chosen, everything=everything)
    run(bulk.perform(GlobalOptions.of(context), action, choice, yes=yes, as_json=as_json))


_add_bulk_action(
    bulk.DELETE,
    """Delete jobs in any status.

    Deleting a running job cancels its run.
    """,
    "monque jobs delete 66f2a1c5e4b0a1b2c3d4e5f6",
    "monque jobs delete --status completed --older-than 30d",
)
