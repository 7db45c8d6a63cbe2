"""Rules of single experiments, in addition to those that hold for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults.lab.fault_timeline import MACHINE_FAULTS
from tests.faults.lab.resource_usage import leaks
from tests.faults.lab.rules.claims import explained
from tests.faults.lab.takeovers import takeovers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from tests.faults.lab.history import History


def every_call_is_answered(history: History) -> Iterator[str]:
    """Without a fault, every call gets an answer."""
    for operation in history.operations:
        if operation.result in ("indeterminate", "none"):
            yield f"{operation.id} ({operation.action}) got no answer"


def no_outage_is_reported(history: History) -> Iterator[str]:
    """Without a fault, no process reports that MongoDB is away."""
    for note in history.of("error"):
        if note.details["kind"] == "MonqueConnectionError":
            yield f"{note.process} reported: {note.details['text']}"


def no_claim_is_lost(history: History) -> Iterator[str]:
    """If no process dies, no claim is taken over, except on an overloaded machine."""
    for kind, count in explained(history).items():
        if kind not in MACHINE_FAULTS:
            yield f"{count} claim(s) were taken over because of {kind}"


def no_process_leaks(history: History) -> Iterator[str]:
    """A long-lived process uses no more resources at its end than after its warm-up."""
    yield from leaks(history)


def all_jobs_complete(count: int) -> Callable[[History], Iterator[str]]:
    """Return a rule: this many jobs complete, and run again only if their claim was lost."""

    def all_jobs_are_completed(history: History) -> Iterator[str]:
        jobs = list(history.jobs())
        if len(jobs) != count:
            yield f"there are {len(jobs)} jobs instead of {count}"
        unfinished = [job.id for job in jobs if (job.current or {}).get("status") != "completed"]
        if unfinished:
            yield f"{len(unfinished)} job(s) did not complete, such as {unfinished[0]}"
        taken_over = explained(history).total()
        if len(history.runs) > count + taken_over:
            again = len(history.runs) - count
            yield f"{again} jobs ran again, but only {taken_over} claims were lost"

    return all_jobs_are_completed


def every_fault_is_injected(kinds: Collection[str]) -> Callable[[History], Iterator[str]]:
    """Return a rule: each of these faults was injected, and a worker stopped during it."""

    def each_fault_is_injected(history: History) -> Iterator[str]:
        done = {fault.kind for fault in history.faults}
        stopped_during = {fault.during for fault in history.faults if fault.is_stop}
        for kind in kinds:
            if kind not in done:
                yield f"{kind} was never injected"
            if kind not in stopped_during:
                yield f"no worker was stopped during {kind}"

    return each_fault_is_injected


def processes_are_stopped(count: int) -> Callable[[History], Iterator[str]]:
    """Return a rule: this many processes were asked to stop."""

    def all_processes_are_stopped(history: History) -> Iterator[str]:
        stopped = len(history.fault_timeline.stops)
        if stopped != count:
            yield f"{stopped} processes were asked to stop instead of {count}"

    return all_processes_are_stopped


def jobs_are_taken_over(seconds: float) -> Callable[[History], Iterator[str]]:
    """Return a rule: a job whose first listener is faulty is soon started by another instance.

    The time does not count for which the machine kept processes from running.
    """

    def faulty_listeners_are_covered(history: History) -> Iterator[str]:
        for one in takeovers(history):
            if one.seconds > seconds + one.stalled_seconds:
                yield f"{one.job} was started after {one.seconds:.1f} s ({one.kind})"
            elif one.started_by in one.affected:
                yield f"{one.job} was started by {one.started_by} in spite of its fault"

    return faulty_listeners_are_covered


def lost_listeners_are_replaced(history: History) -> Iterator[str]:
    """Other instances take the seats of listeners that are gone."""
    for note in history.of("seats not taken"):
        yield f"seats were free, or those of dead processes, for {note.details['seconds']} s"
