"""Promises about what a process says, and how it stops."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tests.faults.lab.times import MILLISECONDS, SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.lab.history import History, Note

_WAITING_THREAD_SECONDS = 10
_OUTAGE_FELT_SECONDS = 10
"""How long a call may have tried before it says that MongoDB is away."""


def nothing_unexpected_is_reported(history: History) -> Iterator[str]:
    """Errors are of the kinds that are documented, and each has its reason in the history."""
    is_garbage_about = any(life.is_foreign for life in history.lives.values())
    for note in history.notes:
        if note.what == "complaint":
            yield f"{note.process} complained: {note.details['text']}"
        if note.what not in ("error", "unsure"):
            continue
        match note.details["kind"]:
            case "MonqueConnectionError":
                since = note.at - _OUTAGE_FELT_SECONDS * SECOND
                is_owed = history.disturbances.has_disturbed(note.process, since, note.at)
            case "OwnershipLostError":
                is_owed = _is_lost(history, note)
            case "ShutdownTimeoutError":
                is_owed = history.disturbances.stops.get(note.process, math.inf) <= note.at
            case "InvalidJobError":
                is_owed = is_garbage_about
            case "OperationFailure":
                # A look that used an index which was dropped under it; it is made again.
                is_owed = "query plan killed" in note.details["text"] and any(
                    fault.kind == "drop indexes" for fault in history.faults
                )
            case _:
                is_owed = False
        if not is_owed:
            yield f"{note.process} met {note.details['kind']}: {note.details['text']}"


def a_clean_stop_leaves_no_claims(history: History) -> Iterator[str]:
    """A process that stops undisturbed has settled or handed back all that it had claimed.

    Threads that cannot be stopped are left to others; no handler of the lab takes long in one.
    """
    clean = {
        name: end
        for name, end in history.ends.items()
        if end.is_clean and not history.disturbances.has_disturbed_the_stop_of(name, end)
    }
    for life in history.jobs():
        for step, following in zip(life.steps, [*life.steps[1:], None], strict=True):
            if step.statuses[1] != "processing" or step.after is None:
                continue
            owner = history.owner(step.after)
            if owner in clean and (following is None or following.at > clean[owner].at):
                yield f"{life.name} {life.id} was left claimed by {owner}, which was not disturbed"


def processes_end_as_told(history: History) -> Iterator[str]:
    """A process that is told to stop does so in time, and leaves nothing behind."""
    for note in history.notes:
        if note.what == "gone" and note.details.get("late"):
            yield f"{note.details['process']} did not stop in {note.details['late']} s"
        elif note.what == "gone" and note.details["code"] not in note.details["allowed"]:
            yield f"{note.details['process']} ended with code {note.details['code']}"
        elif note.what == "down" and note.details["tasks"]:
            yield f"{note.process} left behind {note.details['tasks']}"
        elif note.what == "down":
            # Threads cannot be stopped: one may wait for a server that does not answer.
            is_hit = history.disturbances.has_disturbed(
                note.process, note.at - _WAITING_THREAD_SECONDS * SECOND, note.at
            )
            left = [name for name in note.details["threads"] if name.startswith("monque-mongo")]
            if left and not is_hit:
                yield f"{note.process} left behind {left}"


def _is_lost(history: History, note: Note) -> bool:
    """Tell whether a claim was no more when its owner said so, through no doing of its own."""
    life = history.lives.get(note.details["job"])
    token = note.details["token"]
    until = note.at + MILLISECONDS
    for step in life.steps if life is not None else ():
        if step.token_before != token or step.token_after == token or step.at > until:
            continue
        if step.statuses[0] == "processing":
            return True
        # It had ended the claim itself, and another has the job since. Where the reply to that
        # was lost, it cannot know.
        since = step.at - _OUTAGE_FELT_SECONDS * SECOND
        return history.disturbances.has_disturbed(note.process, since, note.at)
    return False
