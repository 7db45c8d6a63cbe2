"""Changing jobs, a few by their ids or many by a selector, and what bulk changes share."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

import typer

from monque_core.cli.connection import connected
from monque_core.cli.exit_codes import REFUSED
from monque_core.cli.output import ask, print_json, say
from monque_core.errors import JobStateError
from monque_core.events import JOB_CANCELLED
from monque_core.jobs.draft import resolve_run_at
from monque_core.jobs.job import JobStatus
from monque_core.validation import check_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
    from datetime import datetime, timedelta

    from monque_core.cli.connection import Connection, Settings
    from monque_core.jobs.job import StatusName
    from monque_core.jobs.selector import JobSelector

    Progress = Callable[[int], None]

_LONG_WORK = 1000
"""From so many jobs on, a progress bar is worth it."""
_PAGE_SIZE = 500
UNCHANGED: Final = "unchanged"


@dataclass(frozen=True, slots=True)
class Action:
    """Something that is done to jobs."""

    verb: str
    done: str
    statuses: tuple[StatusName, ...]
    """It applies to jobs in one of these."""
    to_one: Callable[[Connection, str], Awaitable[object]]
    """Returns what is false if there is no such job, and `UNCHANGED` if nothing was to be done."""
    to_many: Callable[[Connection, JobSelector, Progress], Awaitable[int]]
    schedules: Literal["end", "stay", "go on"] = "go on"
    """What it means in bulk for the schedules among the jobs: `stay` leaves them out."""


def cancel(*, schedules: bool) -> Action:
    """Return the action that cancels jobs; in bulk it leaves schedules alone unless told."""
    return Action(
        "cancel",
        "cancelled",
        (JobStatus.PENDING,),
        _cancel,
        lambda connection, chosen, progress: connection.monque.cancel_jobs(
            chosen, schedules=schedules, progress=progress
        ),
        schedules="end" if schedules else "stay",
    )


async def _cancel(connection: Connection, job_id: str) -> object:
    cancelled: list[object] = []
    # The event is what tells a job that was cancelled now from one that was cancelled before.
    connection.monque.on(JOB_CANCELLED, cancelled.append)
    try:
        job = await connection.monque.cancel_job(job_id)
    finally:
        connection.monque.off(JOB_CANCELLED, cancelled.append)
    return UNCHANGED if job and not cancelled else job


RETRY: Final = Action(
    "retry",
    "retried",
    (JobStatus.FAILED, JobStatus.CANCELLED),
    lambda connection, job_id: connection.monque.retry_job(job_id),
    lambda connection, chosen, progress: connection.monque.retry_jobs(chosen, progress=progress),
)
DELETE: Final = Action(
    "delete",
    "deleted",
    JobStatus.ALL,
    lambda connection, job_id: connection.monque.delete_job(job_id),
    lambda connection, chosen, progress: connection.monque.delete_jobs(
        chosen, everything=True, progress=progress
    ),
    schedules="end",
)


def reschedule_to(run_at: datetime | None, delay: timedelta | None) -> Action:
    """Give the action that moves jobs to a time, or away from now."""

    async def move(connection: Connection, job_id: str) -> object:
        if delay is None:
            assert run_at is not None
            return await connection.monque.reschedule_job(job_id, run_at)
        # The first answer sets the clock.
        await connection.monque.initialize()
        later = resolve_run_at(connection.now(), None, delay)
        return await connection.monque.reschedule_job(job_id, later)

    async def move_many(connection: Connection, chosen: JobSelector, progress: Progress) -> int:
        total, cursor, is_more = 0, None, True
        while is_more:
            page = await connection.monque.get_jobs_with_cursor(
                cursor=cursor, limit=_PAGE_SIZE, filter=chosen
            )
            for job in page.jobs:
                try:
                    moved = await move(connection, str(job.id))
                except JobStateError:
                    # It was claimed meanwhile.
                    continue
                total += moved is not None
                progress(1)
            cursor, is_more = page.cursor, page.has_next
        return total

    return Action("reschedule", "rescheduled", (JobStatus.PENDING,), move, move_many)


@dataclass(frozen=True, slots=True)
class Choice:
    """The jobs that are meant: these ids, or else what a selector chooses."""

    ids: Sequence[str]
    selector: JobSelector

    @classmethod
    def of(
        cls, action: Action, ids: Sequence[str] | None, selector: JobSelector, *, everything: bool
    ) -> Choice:
        """Refuse a choice that cannot be meant; narrow it to what the action applies to."""
        if ids:
            if everything or not selector.is_empty:
                raise typer.BadParameter("give ids, or options that choose jobs, not both")
            for job_id in ids:
                check_id(job_id)
            return cls(ids, selector)
        if selector.is_empty and not everything:
            raise typer.BadParameter(
                f"say which jobs to {action.verb}: by ids, by --name, --status, --older-than or "
                "--newer-than, or --all"
            )
        if action.statuses == JobStatus.ALL:
            return cls((), selector)
        wanted = selector.statuses or JobStatus.ALL
        possible = tuple(status for status in action.statuses if status in wanted)
        if not possible:
            raise typer.BadParameter(
                f"jobs that are {' or '.join(wanted)} cannot be {action.done}, only those that "
                f"are {' or '.join(action.statuses)}"
            )
        return cls((), replace(selector, status=possible))


async def perform(
    settings: Settings, action: Action, choice: Choice, *, yes: bool, as_json: bool
) -> None:
    """Do it, tell what was done, and exit with 1 if not all that was named could be."""
    refused: dict[str, str] = {}
    async with connected(settings) as connection:
        if choice.ids:
            changed, refused = await _one_by_one(connection, action, choice.ids)
        else:
            changed = await _in_bulk(connection, action, choice.selector, yes=yes)
    tell(action.verb, f"{counted(changed, 'job')} {action.done}", changed, refused, as_json=as_json)
    if refused:
        raise typer.Exit(REFUSED)


def tell(
    verb: str, done: str, changed: int, refused: Mapping[str, str] | None = None, *, as_json: bool
) -> None:
    """Tell what was done, and what of the ids could not be."""
    refused = refused or {}
    if as_json:
        reasons = [{"id": job_id, "reason": reason} for job_id, reason in refused.items()]
        print_json({"action": verb, "changed": changed, "refused": reasons})
        return
    for reason in refused.values():
        say(reason)
    typer.echo(done)


async def _one_by_one(
    connection: Connection, action: Action, ids: Sequence[str]
) -> tuple[int, dict[str, str]]:
    """Act on each id; return how many were changed, and why some could not be."""
    changed, refused = 0, dict[str, str]()
    for job_id in ids:
        try:
            done = await action.to_one(connection, job_id)
        except JobStateError as error:
            refused[job_id] = str(error)
            continue
        if done == UNCHANGED:
            say(f"job {job_id} was {action.done} already")
        elif done:
            changed += 1
        else:
            refused[job_id] = f"there is no job {job_id}"
    return changed, refused


async def _in_bulk(
    connection: Connection, action: Action, selector: JobSelector, *, yes: bool
) -> int:
    count = await connection.count(selector)
    among = ""
    if action.schedules != "go on" and (schedules := await connection.count_schedules(selector)):
        if action.schedules == "stay":
            count -= schedules
            say(f"{counted(schedules, 'schedule')} left alone; --schedules cancels schedules too")
        else:
            among = f", of which {counted(schedules, 'is a schedule', 'are schedules')}"
            if yes:
                say(f"{counted(schedules, 'schedule')} among the jobs to {action.verb}")
    if not count:
        return 0
    if not yes:
        ask(f"{action.verb} {counted(count, 'job')}{among}?")
    with _progress(count, action) as progress:
        return await action.to_many(connection, selector, progress)


@contextmanager
def _progress(count: int, action: Action) -> Iterator[Progress]:
    """Show a bar on a terminal if the work is long."""
    if count < _LONG_WORK:
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415  # only long work pays for it
    from rich.progress import Progress as Bar  # noqa: PLC0415

    console = Console(stderr=True)
    with Bar(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(f"{action.verb} jobs", total=count)
        yield lambda changed: bar.advance(task, changed)


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Give a number of things in words."""
    return f"{count} {noun}" if count == 1 else f"{count} {plural or noun + 's'}"
