"""`monque enqueue`, `schedule`, `schedules` and `unschedule`."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from monque_core.cli import options, times
from monque_core.cli.connection import GlobalOptions, connected, run
from monque_core.cli.main import REFUSED
from monque_core.cli.options import examples
from monque_core.cli.output import confirm, job_record, print_json, print_notice
from monque_core.cli.payloads import read_payload
from monque_core.cli.tables import Fit, print_table
from monque_core.display import escape
from monque_core.jobs.job import AnyJob, JobStatus

if TYPE_CHECKING:
    from monque_core.jobs.draft import EnqueueOptions

UNCLAIMED_AFTER = timedelta(minutes=1)
_FIT = Fit(optional=("NEXT RUN", "TIMEZONE"), elastic={"NAME": 12, "KEY": 12})

JobName = Annotated[str, typer.Argument(metavar="NAME", help="Job name.")]
Payload = Annotated[
    str,
    typer.Argument(
        metavar="JSON", help="Job data as MongoDB Extended JSON; - reads standard input."
    ),
]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        epilog=examples(
            """monque enqueue send-email '{"to": "ada@example.com"}'""",
            """monque enqueue remind '{"at": {"$date": "2030-01-31T09:00:00Z"}}' --delay 15m""",
            "monque enqueue import - --unique-key nightly < import.json",
        )
    )(enqueue)
    app.command(
        epilog=examples(
            """monque schedule '0 9 * * 1-5' report '{"kind": "daily"}'""",
            "monque schedule @hourly clean-up --timezone Europe/Berlin --unique-key clean-up",
        )
    )(schedule)
    app.command(epilog=examples("monque schedules", "monque schedules --json"))(schedules)
    app.command(epilog=examples("monque unschedule report --unique-key daily"))(unschedule)


def enqueue(
    context: typer.Context,
    name: JobName,
    data: Payload = "null",
    delay: options.Delay = None,
    run_at: options.RunAt = None,
    unique_key: options.UniqueKey = None,
    priority: options.Priority = 0,
    max_retries: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default=False,
            help="Maximum number of runs, the first included; by default that of the worker.",
        ),
    ] = None,
    timeout: Annotated[
        timedelta | None,
        typer.Option(
            parser=times.parse_duration,
            metavar="DURATION",
            show_default=False,
            help="Maximum duration of a run; by default that of the worker.",
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Enqueue a job."""
    if delay is not None and run_at is not None:
        raise typer.BadParameter("give --delay or --run-at, not both")
    wanted: EnqueueOptions = {
        "delay": delay,
        "run_at": run_at,
        "unique_key": unique_key,
        "priority": priority,
        "max_retries": max_retries,
        "timeout": timeout,
    }

    async def store() -> AnyJob:
        async with connected(GlobalOptions.of(context), creates_indexes=True) as connection:
            return await connection.monque.enqueue(name, payload, **wanted)

    payload = read_payload(data)
    _print_stored(run(store()), as_json=as_json)


def schedule(
    context: typer.Context,
    cron: Annotated[
        str,
        typer.Argument(
            metavar="CRON", help="Five cron fields in quotes, or a nickname such as @hourly."
        ),
    ],
    name: JobName,
    data: Payload = "null",
    timezone: Annotated[str, typer.Option(help="Time zone of the cron expression.")] = "UTC",
    unique_key: options.UniqueKey = None,
    priority: options.Priority = 0,
    as_json: options.Json = False,
) -> None:
    """Create or update a schedule.

    Repeating the same command changes nothing. With --unique-key, a different expression, time zone
    or payload updates the schedule with that key.
    """

    async def store() -> AnyJob:
        async with connected(GlobalOptions.of(context), creates_indexes=True) as connection:
            return await connection.monque.schedule(
                cron, name, payload, unique_key=unique_key, timezone=timezone, priority=priority
            )

    payload = read_payload(data)
    _print_stored(run(store()), as_json=as_json)


def _print_stored(job: AnyJob, *, as_json: bool) -> None:
    if as_json:
        print_json(job_record(job))
        return
    known = " (it already existed)" if job.deduplicated else ""
    typer.echo(f"{job.id} {escape(job.name)} is due at {times.format_time(job.next_run_at)}{known}")


def schedules(
    context: typer.Context, name: options.Name = None, as_json: options.Json = False
) -> None:
    """List schedules and their next run.

    A schedule is "unclaimed" if it is overdue by more than a minute: no worker handles its name.
    """
    found, now = run(_schedules(GlobalOptions.of(context), name))
    if as_json:
        print_json([job_record(job) | {"state": state(job, now)} for job in found])
        return
    if not found:
        print_notice("no schedules")
        return
    print_table(
        ("NAME", "CRON", "TIMEZONE", "NEXT RUN", "", "STATE", "KEY"),
        (
            (
                job.name,
                job.repeat_interval,
                job.timezone or "UTC",
                times.format_time(job.next_run_at),
                times.format_relative(job.next_run_at, now),
                state(job, now),
                _key(job),
            )
            for job in found
        ),
        fit=_FIT,
    )


def state(job: AnyJob, now: datetime) -> str:
    """Return the state of a schedule: waiting, due, running or unclaimed."""
    if job.status == JobStatus.PROCESSING:
        return "running"
    if job.next_run_at > now:
        return "waiting"
    return "unclaimed" if now - job.next_run_at > UNCLAIMED_AFTER else "due"


def _key(job: AnyJob) -> str:
    key = job.unique_key or ""
    return "(derived)" if key.startswith("monque:") else key


async def _schedules(settings: GlobalOptions, name: str | None) -> tuple[list[AnyJob], datetime]:
    async with connected(settings) as connection:
        return await connection.monque.get_schedules(name), connection.now()


def unschedule(
    context: typer.Context,
    name: JobName,
    unique_key: Annotated[
        str | None, typer.Option(show_default=False, help="Only the schedule with this key.")
    ] = None,
    yes: options.Yes = False,
    as_json: options.Json = False,
) -> None:
    """Remove the schedules of a job name.

    A current run finishes, and no further run follows.
    """
    removed = run(_unschedule(GlobalOptions.of(context), name, unique_key, yes=yes))
    if as_json:
        print_json({"removed": removed})
    elif removed:
        typer.echo(f"{removed} schedule(s) removed")
    if not removed:
        print_notice("no matching schedule")
        raise typer.Exit(REFUSED)


async def _unschedule(
    settings: GlobalOptions, name: str, unique_key: str | None, *, yes: bool
) -> int:
    async with connected(settings) as connection:
        if unique_key is None and not yes:
            count = len(await connection.monque.get_schedules(name))
            if count > 1:
                confirm(f"remove {count} schedules of {name}?")
        return await connection.monque.unschedule(name, unique_key)
