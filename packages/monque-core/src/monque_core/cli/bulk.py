"""Actions on jobs: cancel, retry, delete and reschedule, by id or by selector."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

import typer

from monque_core.cli.connection import connected
from monque_core.cli.main import REFUSED
from monque_core.cli.output import confirm, print_json, print_notice
from monque_core.errors import JobStateError
from monque_core.events import JOB_CANCELLED
from monque_core.jobs.draft import resolve_run_at
from monque_core.jobs.job import JobStatus
from monque_core.validation import check_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
    from datetime import datetime, timedelta

    from monque_core.cli.connection import Connection, GlobalOptions
    from monque_core.jobs.job import StatusName
    from monque_core.jobs.selector import JobSelector

    Progress = Callable[[int], None]

_PROGRESS_BAR_FROM = 1000
"""Show a progress bar from this number of jobs."""
_PAGE_SIZE = 500
UNCHANGED: Final = "unchanged"


@dataclass(frozen=True, slots=True)
class Action:
    """An action on jobs: by id, or in bulk by selector."""

    verb: str
    done: str
    statuses: tuple[StatusName, ...]
    """The statuses that it applies to."""
    to_one: Callable[[Connection, str], Awaitable[object]]
    """Returns a false value if there is no such job, and `UNCHANGED` if there was nothing to do."""
    to_many: Callable[[Connection, JobSelector, Progress], Awaitable[int]]
    schedules: Literal["end", "skip", "keep"] = "keep"
    """The effect of the bulk action on schedules: end them, skip them, or keep them running."""


def cancel(*, schedules: bool) -> Action:
    """Return the cancel action; in bulk it skips schedules unless `schedules` is true."""
    return Action(
        "cancel",
        "cancelled",
        (JobStatus.PENDING,),
        _cancel,
        lambda connection, chosen, progress: connection.monque.cancel_jobs(
            chosen, schedules=schedules, progress=progress
        ),
        schedules="end" if schedules else "skip",
    )


async def _cancel(connection: Connection, job_id: str) -> object:
    cancelled: list[object] = []
    # Only the event distinguishes this cancellation from an earlier one.
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
    """Return the action that reschedules jobs to a time or by a delay from now."""

    async def move(connection: Connection, job_id: str) -> object:
        if delay is None:
            assert run_at is not None
            return await connection.monque.reschedule_job(job_id, run_at)
        # The first reply of the server sets the clock.
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
                    # It was claimed in the meantime.
                    continue
                total += moved is not None
                progress(1)
            cursor, is_more = page.cursor, page.has_next
        return total

    return Action("reschedule", "rescheduled", (JobStatus.PENDING,), move, move_many)


@dataclass(frozen=True, slots=True)
class Selection:
    """The jobs to act on: ids, or a selector."""

    ids: Sequence[str]
    selector: JobSelector

    @classmethod
    def of(
        cls, action: Action, ids: Sequence[str] | None, selector: JobSelector, *, everything: bool
    ) -> Selection:
        """Return the selection, narrowed to the statuses of the action; raise if it is invalid."""
        if ids:
            if everything or not selector.is_empty:
                raise typer.BadParameter("give either ids or options that select jobs, not both")
            for job_id in ids:
                check_id(job_id)
            return cls(ids, selector)
        if selector.is_empty and not everything:
            raise typer.BadParameter(
                f"select the jobs to {action.verb}: give ids, --name, --status, --older-than, "
                "--newer-than or --all"
            )
        if action.statuses == JobStatus.ALL:
            return cls((), selector)
        wanted = selector.statuses or JobStatus.ALL
        possible = tuple(status for status in action.statuses if status in wanted)
        if not possible:
            raise typer.BadParameter(
                f"{' or '.join(wanted)} jobs cannot be {action.done}; only "
                f"{' or '.join(action.statuses)} jobs can"
            )
        return cls((), replace(selector, status=possible))


async def perform(
    settings: GlobalOptions, action: Action, choice: Selection, *, yes: bool, as_json: bool
) -> None:
    """Run an action and print the result; exit with 1 if it failed for any given id."""
    refused: dict[str, str] = {}
    async with connected(settings) as connection:
        if choice.ids:
            changed, refused = await _one_by_one(connection, action, choice.ids)
        else:
            changed = await _in_bulk(connection, action, choice.selector, yes=yes)
    report_changes(
        action.verb, f"{counted(changed, 'job')} {action.done}", changed, refused, as_json=as_json
    )
    if refused:
        raise typer.Exit(REFUSED)


def report_changes(
    verb: str, done: str, changed: int, refused: Mapping[str, str] | None = None, *, as_json: bool
) -> None:
    """Print how many were changed, and why some ids were not."""
    refused = refused or {}
    if as_json:
        reasons = [{"id": job_id, "reason": reason} for job_id, reason in refused.items()]
        print_json({"action": verb, "changed": changed, "refused": reasons})
        return
    for reason in refused.values():
        print_notice(reason)
    typer.echo(done)


async def _one_by_one(
    connection: Connection, action: Action, ids: Sequence[str]
) -> tuple[int, dict[str, str]]:
    """Apply the action to each id; return the number changed, and the reasons for the others."""
    changed, refused = 0, dict[str, str]()
    for job_id in ids:
        try:
            done = await action.to_one(connection, job_id)
        except JobStateError as error:
            refused[job_id] = str(error)
            continue
        if done == UNCHANGED:
            print_notice(f"job {job_id} was already {action.done}")
        elif done:
            changed += 1
        else:
            refused[job_id] = f"job {job_id} does not exist"
    return changed, refused


async def _in_bulk(
    connection: Connection, action: Action, selector: JobSelector, *, yes: bool
) -> int:
    count = await connection.count(selector)
    schedule_note = ""
    if action.schedules != "keep" and (schedules := await connection.count_schedules(selector)):
        if action.schedules == "skip":
            count -= schedules
            print_notice(
                f"{counted(schedules, 'schedule')} skipped; add --schedules to cancel schedules too"
            )
        else:
            schedule_note = f", of which {counted(schedules, 'is a schedule', 'are schedules')}"
            if yes:
                print_notice(f"{counted(schedules, 'schedule')} among the jobs to {action.verb}")
    if not count:
        return 0
    if not yes:
        confirm(f"{action.verb} {counted(count, 'job')}{schedule_note}?")
    with _progress(count, action) as progress:
        return await action.to_many(connection, selector, progress)


@contextmanager
def _progress(count: int, action: Action) -> Iterator[Progress]:
    """Show a progress bar on a terminal for many jobs."""
    if count < _PROGRESS_BAR_FROM:
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415  # slow import, rarely needed
    from rich.progress import Progress as Bar  # noqa: PLC0415

    console = Console(stderr=True)
    with Bar(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(f"{action.verb} jobs", total=count)
        yield lambda changed: bar.advance(task, changed)


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun, such as "3 jobs"."""
    return f"{count} {noun}" if count == 1 else f"{count} {plural or noun + 's'}"
