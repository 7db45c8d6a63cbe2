"""Adding work: `monque enqueue`, `schedule`, `schedules`, `unschedule`."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from monque_core.cli import options, times
from monque_core.cli.connection import Settings, connected, run
from monque_core.cli.examples import examples
from monque_core.cli.exit_codes import REFUSED
from monque_core.cli.output import ask, job_record, print_json, say
from monque_core.cli.payloads import read_payload
from monque_core.cli.tables import Fit, print_table
from monque_core.display import escape
from monque_core.jobs.job import AnyJob, JobStatus

if TYPE_CHECKING:
    from monque_core.jobs.draft import EnqueueOptions

UNCLAIMED_AFTER = timedelta(minutes=1)
_FIT = Fit(optional=("NEXT RUN", "TIMEZONE"), elastic={"NAME": 12, "KEY": 12})

JobName = Annotated[str, typer.Argument(metavar="NAME", help="The name of the job.")]
Payload = Annotated[
    str,
    typer.Argument(
        metavar="JSON", help="The data, as MongoDB Extended JSON; - reads it from stdin."
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
            min=1, show_default=False, help="Runs in all, the first included; else the worker's."
        ),
    ] = None,
    timeout: Annotated[
        timedelta | None,
        typer.Option(
            parser=times.duration,
            metavar="DURATION",
            show_default=False,
            help="The longest run; else the worker's.",
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Store a job, to be run at once or later."""
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
        async with connected(Settings.of(context), creates_indexes=True) as connection:
            return await connection.monque.enqueue(name, payload, **wanted)

    payload = read_payload(data)
    _tell_stored(run(store()), as_json=as_json)


def schedule(
    context: typer.Context,
    cron: Annotated[
        str, typer.Argument(metavar="CRON", help="Five fields, or @hourly and the like; quote it.")
    ],
    name: JobName,
    data: Payload = "null",
    timezone: Annotated[str, typer.Option(help="The time zone of the expression.")] = "UTC",
    unique_key: options.UniqueKey = None,
    priority: options.Priority = 0,
    as_json: options.Json = False,
) -> None:
    """Store a job that runs at every tick of a cron expression.

    The same call a second time changes nothing. With --unique-key, another expression, time zone
    or payload changes the schedule that has the key.
    """

    async def store() -> AnyJob:
        async with connected(Settings.of(context), creates_indexes=True) as connection:
            return await connection.monque.schedule(
                cron, name, payload, unique_key=unique_key, timezone=timezone, priority=priority
            )

    payload = read_payload(data)
    _tell_stored(run(store()), as_json=as_json)


def _tell_stored(job: AnyJob, *, as_json: bool) -> None:
    if as_json:
        print_json(job_record(job))
        return
    known = " (it was there already)" if job.deduplicated else ""
    typer.echo(f"{job.id} {escape(job.name)} is due at {times.shown(job.next_run_at)}{known}")


def schedules(
    context: typer.Context, name: options.Name = None, as_json: options.Json = False
) -> None:
    """List the schedules, with their next run.

    A schedule is unclaimed if it is overdue by more than a minute: no worker has its name.
    """
    found, now = run(_schedules(Settings.of(context), name))
    if as_json:
        print_json([job_record(job) | {"state": state(job, now)} for job in found])
        return
    if not found:
        say("there is no schedule")
        return
    print_table(
        ("NAME", "CRON", "TIMEZONE", "NEXT RUN", "", "STATE", "KEY"),
        (
            (
                job.name,
                job.repeat_interval,
                job.timezone or "UTC",
                times.shown(job.next_run_at),
                times.away(job.next_run_at, now),
                state(job, now),
                _key(job),
            )
            for job in found
        ),
        fit=_FIT,
    )


def state(job: AnyJob, now: datetime) -> str:
    """Tell what a schedule does: it waits for its time, runs, is due, or nobody claims it."""
    if job.status == JobStatus.PROCESSING:
        return "running"
    if job.next_run_at > now:
        return "waiting"
    return "unclaimed" if now - job.next_run_at > UNCLAIMED_AFTER else "due"


def _key(job: AnyJob) -> str:
    key = job.unique_key or ""
    return "(derived)" if key.startswith("monque:") else key


async def _schedules(settings: Settings, name: str | None) -> tuple[list[AnyJob], datetime]:
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
    """Remove the schedules of a name.

    One that runs finishes its run and does not come back.
    """
    removed = run(_unschedule(Settings.of(context), name, unique_key, yes=yes))
    if as_json:
        print_json({"removed": removed})
    elif removed:
        typer.echo(f"{removed} schedule(s) removed")
    if not removed:
        say("there is no such schedule")
        raise typer.Exit(REFUSED)


async def _unschedule(settings: Settings, name: str, unique_key: str | None, *, yes: bool) -> int:
    async with connected(settings) as connection:
        if unique_key is None and not yes:
            count = len(await connection.monque.get_schedules(name))
            if count > 1:
                ask(f"remove {count} schedules of {name}?")
        return await connection.monque.unschedule(name, unique_key)
