"""Promises about what a process says, and how it stops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults.lab.history import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.lab.history import History

_EXPECTED_ERRORS = {
    "MonqueConnectionError",  # MongoDB was away
    "OwnershipLostError",  # a claim was taken over
    "ShutdownTimeoutError",  # stop() was told not to wait
    "InvalidJobError",  # a document is no job
}


def nothing_unexpected_is_reported(history: History) -> Iterator[str]:
    """Errors are of the kinds that are documented for outages, lost claims and garbage."""
    for note in history.notes:
        if note.what == "complaint":
            yield f"{note.process} complained: {note.details['text']}"
        elif note.what in ("error", "unsure") and note.details["kind"] not in _EXPECTED_ERRORS:
            yield f"{note.process} met {note.details['kind']}: {note.details['text']}"


def a_clean_stop_leaves_no_claims(history: History) -> Iterator[str]:
    """A process that stops undisturbed has settled or handed back everything but its threads."""
    in_trouble = {
        note.process
        for note in history.of("error")
        if note.details["kind"] == "MonqueConnectionError"
    }
    gone = {
        note.details["process"]: note
        for note in history.of("gone")
        if note.details["code"] == 0 and note.details["process"] not in in_trouble
    }
    disturbed = {
        name
        for name, note in gone.items()
        for fault in history.faults
        if fault.kind != "stop" and fault.hits(name, note.at - 20 * SECOND, note.at)
    }
    held_by = {
        process.instance: process.name
        for process in history.processes.values()
        if process.name in gone and process.name not in disturbed
    }
    for life in history.jobs():
        if life.name == "thread":
            continue
        for step, following in zip(life.steps, [*life.steps[1:], None], strict=True):
            if step.statuses[1] != "processing" or step.after is None:
                continue
            owner = held_by.get(step.after.get("claimedBy", ""))
            if owner is None or (following is not None and following.at <= gone[owner].at):
                continue
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
            is_hit = any(
                fault.kind != "stop" and fault.hits(note.process, note.at - 10 * SECOND, note.at)
                for fault in history.faults
            )
            left = [name for name in note.details["threads"] if name.startswith("monque-mongo")]
            if left and not is_hit:
                yield f"{note.process} left behind {left}"
