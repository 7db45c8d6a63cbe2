"""Rules about events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults.lab.document_history import describe
from tests.faults.lab.fault_timeline import MACHINE_FAULTS
from tests.faults.lab.times import CLOCK_ROUNDING, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.lab.document_history import Write
    from tests.faults.lab.history import History

_PUBLISHED_WITHIN_SECONDS = 5
"""The longest delay between a write and its event, on an overloaded machine."""
_CONNECTION_LOST_SECONDS = 3
"""The time without an answer after which the clients of the lab close their connections."""


def published_outcomes_are_written(history: History) -> Iterator[str]:
    """The outcome in an event was written before, under the same claim."""
    written = {
        (document.id, write.token_before, write.statuses[1]): write.at
        for document in history.documents.values()
        for write in document.writes
        if write.statuses[0] == "processing"
    }
    for note in history.notes:
        if note.what not in ("completed", "failed"):
            continue
        job, token, status = (note.details[key] for key in ("job", "token", "status"))
        at = written.get((job, token, status))
        if at is None:
            yield f"{note.process} published job {job} as {status}, which was never written"
        elif at > note.at + CLOCK_ROUNDING:
            late = (at - note.at) / SECOND
            yield f"{note.process} published job {job} as {status} {late:.3f} s before its write"


def written_outcomes_are_published(history: History) -> Iterator[str]:
    """Every outcome is published once, in the process that wrote it."""
    published: dict[tuple[str, str], int] = {}
    for note in history.notes:
        if note.what in ("completed", "failed"):
            claim = (note.details["job"], note.details["token"])
            published[claim] = published.get(claim, 0) + 1
    for document in history.jobs():
        for write in document.writes:
            if not write.is_outcome or write.is_release:
                continue
            count = published.get((document.id, write.token_before), 0)
            if count > 1:
                yield f"{describe(document, write)} was published {count} times"
            elif count == 0 and not _could_not_publish(history, write):
                writer = _writer(history, write)
                yield f"{describe(document, write)} was written by {writer} but never published"


def _could_not_publish(history: History, write: Write) -> bool:
    """Return whether the writer may have died before its event, or never got the reply."""
    writer = _writer(history, write)
    until = write.at + _PUBLISHED_WITHIN_SECONDS * SECOND
    end = history.exits.get(writer)
    has_died = end is not None and not end.is_clean and end.at <= until
    return has_died or _has_lost_replies(history, writer, write.at - SECOND, until)


def _has_lost_replies(history: History, process: str, since: float, until: float) -> bool:
    """Return whether a reply may have been lost; on a slow machine it is late, but arrives."""
    fault_timeline = history.fault_timeline
    if fault_timeline.stops.get(process, until) < until:
        return fault_timeline.affected(process, since, until)
    return any(
        fault.kind not in MACHINE_FAULTS or fault.is_long(_CONNECTION_LOST_SECONDS * SECOND)
        for fault in fault_timeline.of(process, since, until)
    )


def _writer(history: History, write: Write) -> str:
    return history.owner(write.before or {})
