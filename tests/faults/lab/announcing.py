"""Promises about what listeners hear."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults.lab.disturbances import OF_THE_MACHINE
from tests.faults.lab.lives import told
from tests.faults.lab.times import MILLISECONDS, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.lab.history import History
    from tests.faults.lab.lives import Step

_ANNOUNCED_WITHIN_SECONDS = 5
"""How long a process may take from a write to its event, on a machine with too much to do."""
_CONNECTION_LOST_SECONDS = 3
"""After how long without an answer the clients of the lab close their connections."""


def what_is_announced_is_written(history: History) -> Iterator[str]:
    """An outcome that listeners hear of was written before, under the same claim."""
    written = {
        (life.id, step.token_before, step.statuses[1]): step.at
        for life in history.lives.values()
        for step in life.steps
        if step.statuses[0] == "processing"
    }
    for note in history.notes:
        if note.what not in ("completed", "failed"):
            continue
        job, token, status = (note.details[key] for key in ("job", "token", "status"))
        at = written.get((job, token, status))
        if at is None:
            yield f"{note.process} told of job {job} as {status}, which was never written"
        elif at > note.at + MILLISECONDS:
            late = (at - note.at) / SECOND
            yield f"{note.process} told of job {job} as {status} {late:.3f} s before it was"


def what_is_written_is_announced(history: History) -> Iterator[str]:
    """Every outcome is heard of in the process that wrote it, once."""
    announced: dict[tuple[str, str], int] = {}
    for note in history.notes:
        if note.what in ("completed", "failed"):
            claim = (note.details["job"], note.details["token"])
            announced[claim] = announced.get(claim, 0) + 1
    for life in history.jobs():
        for step in life.steps:
            if not step.is_settling or step.is_release:
                continue
            count = announced.get((life.id, step.token_before), 0)
            if count > 1:
                yield f"{told(life, step)} was told {count} times"
            elif count == 0 and not _could_not_tell(history, step):
                yield f"{told(life, step)} was written by {_writer(history, step)}, and never told"


def _could_not_tell(history: History, step: Step) -> bool:
    """Tell whether the writer may have died before its event, or never heard of its own write."""
    writer = _writer(history, step)
    until = step.at + _ANNOUNCED_WITHIN_SECONDS * SECOND
    end = history.ends.get(writer)
    has_died = end is not None and not end.is_clean and end.at <= until
    return has_died or _has_lost_replies(history, writer, step.at - SECOND, until)


def _has_lost_replies(history: History, process: str, since: float, until: float) -> bool:
    """Tell whether a reply may have been lost: to a slow machine it is late, and comes."""
    disturbances = history.disturbances
    if disturbances.stops.get(process, until) < until:
        return disturbances.has_disturbed(process, since, until)
    return any(
        fault.kind not in OF_THE_MACHINE or fault.is_long(_CONNECTION_LOST_SECONDS * SECOND)
        for fault in disturbances.of(process, since, until)
    )


def _writer(history: History, step: Step) -> str:
    return history.owner(step.before or {})
