"""Rules about the errors that a process reports, and about how it stops."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tests.faults.lab.times import CLOCK_ROUNDING, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.lab.history import History, Note

_WAITING_THREAD_SECONDS = 10
_LONGEST_RETRY_SECONDS = 10
"""How long a call may have retried before it reports that MongoDB is away."""


def only_expected_errors_are_reported(history: History) -> Iterator[str]:
    """Only documented errors are reported, and each has its cause in the history."""
    has_garbage = any(document.is_foreign for document in history.documents.values())
    for note in history.notes:
        if note.what == "logged error":
            yield f"{note.process} logged an error: {note.details['text']}"
        if note.what not in ("error", "indeterminate"):
            continue
        match note.details["kind"]:
            case "MonqueConnectionError":
                since = note.at - _LONGEST_RETRY_SECONDS * SECOND
                is_expected = history.fault_timeline.affected(note.process, since, note.at)
            case "OwnershipLostError":
                is_expected = _was_lost(history, note)
            case "ShutdownTimeoutError":
                is_expected = history.fault_timeline.stops.get(note.process, math.inf) <= note.at
            case "InvalidJobError":
                is_expected = has_garbage
            case "OperationFailure":
                # A query whose index was dropped while it ran; it is repeated.
                is_expected = "query plan killed" in note.details["text"] and any(
                    fault.kind == "drop indexes" for fault in history.faults
                )
            case _:
                is_expected = False
        if not is_expected:
            yield f"{note.process} reported {note.details['kind']}: {note.details['text']}"


def clean_stops_leave_no_claims(history: History) -> Iterator[str]:
    """A process that stops without a fault has settled or handed back all its claims.

    Claims of threads that cannot be stopped are left behind, but no thread handler of the lab is
    slow.
    """
    clean = {
        name: end
        for name, end in history.exits.items()
        if end.is_clean and not history.fault_timeline.affected_the_stop_of(name, end)
    }
    for document in history.jobs():
        for write, following in zip(document.writes, [*document.writes[1:], None], strict=True):
            if write.statuses[1] != "processing" or write.after is None:
                continue
            owner = history.owner(write.after)
            if owner in clean and (following is None or following.at > clean[owner].at):
                yield f"{document.name} {document.id} was left claimed by {owner}"


def processes_stop_in_time(history: History) -> Iterator[str]:
    """A process that is asked to stop does so in time, and leaves nothing behind."""
    for note in history.notes:
        if note.what == "exited" and note.details.get("late"):
            yield f"{note.details['process']} did not stop in {note.details['late']} s"
        elif note.what == "exited" and note.details["code"] not in note.details["allowed"]:
            yield f"{note.details['process']} exited with code {note.details['code']}"
        elif note.what == "down" and note.details["tasks"]:
            yield f"{note.process} left tasks behind: {note.details['tasks']}"
        elif note.what == "down":
            # Threads cannot be stopped: one may wait for a server that does not answer.
            is_affected = history.fault_timeline.affected(
                note.process, note.at - _WAITING_THREAD_SECONDS * SECOND, note.at
            )
            left = [name for name in note.details["threads"] if name.startswith("monque-mongo")]
            if left and not is_affected:
                yield f"{note.process} left threads behind: {left}"


def _was_lost(history: History, note: Note) -> bool:
    """Return whether a claim that was reported as lost had been taken away from its owner."""
    document = history.documents.get(note.details["job"])
    token = note.details["token"]
    until = note.at + CLOCK_ROUNDING
    for write in document.writes if document is not None else ():
        if write.token_before != token or write.token_after == token or write.at > until:
            continue
        if write.statuses[0] == "processing":
            return True
        # The owner itself had ended the claim, and another process has the job since then. If the
        # reply to its write was lost, it cannot know.
        since = write.at - _LONGEST_RETRY_SECONDS * SECOND
        return history.fault_timeline.affected(note.process, since, note.at)
    return False
