"""What single experiments demand, beyond the rules that hold for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults.lab.claiming import explained
from tests.faults.lab.disturbances import OF_THE_MACHINE
from tests.faults.lab.vitals import leaks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from tests.faults.lab.history import History


def every_call_is_answered(history: History) -> Iterator[str]:
    """Without a fault, no call is left without an answer."""
    for operation in history.operations:
        if operation.answer in ("unsure", "none"):
            yield f"{operation.id} ({operation.action}) got no answer"


def no_outage_is_told(history: History) -> Iterator[str]:
    """Without a fault, MongoDB is never away for anybody."""
    for note in history.of("error"):
        if note.details["kind"] == "MonqueConnectionError":
            yield f"{note.process} said: {note.details['text']}"


def no_claim_is_lost(history: History) -> Iterator[str]:
    """Where no process dies, no claim is taken over, unless the machine had too much to do."""
    for kind, count in explained(history).items():
        if kind not in OF_THE_MACHINE:
            yield f"{count} claim(s) were taken over because of {kind}"


def nothing_grows(history: History) -> Iterator[str]:
    """A process that lives for long takes up no more at its end than when it had settled down."""
    yield from leaks(history)


def all_are_done(count: int) -> Callable[[History], Iterator[str]]:
    """Demand so many jobs in all, each completed and run again only where its claim was lost."""

    def all_jobs_are_done(history: History) -> Iterator[str]:
        jobs = list(history.jobs())
        if len(jobs) != count:
            yield f"there are {len(jobs)} jobs instead of {count}"
        unfinished = [job.id for job in jobs if (job.last or {}).get("status") != "completed"]
        if unfinished:
            yield f"{len(unfinished)} job(s) did not complete, such as {unfinished[0]}"
        taken_over = explained(history).total()
        if len(history.runs) > count + taken_over:
            again = len(history.runs) - count
            yield f"{again} ran again, though only {taken_over} claims were lost"

    return all_jobs_are_done


def each_is_done(kinds: Collection[str]) -> Callable[[History], Iterator[str]]:
    """Demand that each of these faults was done, and a worker told to stop in its middle."""

    def each_fault_is_done(history: History) -> Iterator[str]:
        done = {fault.kind for fault in history.faults}
        stopped_during = {fault.during for fault in history.faults if fault.is_stop}
        for kind in kinds:
            if kind not in done:
                yield f"{kind} was never done"
            if kind not in stopped_during:
                yield f"nobody was told to stop in the middle of {kind}"

    return each_fault_is_done


def so_many_are_stopped(count: int) -> Callable[[History], Iterator[str]]:
    """Demand that so many processes were told to stop."""

    def all_are_stopped(history: History) -> Iterator[str]:
        stopped = len(history.disturbances.stops)
        if stopped != count:
            yield f"{stopped} processes were told to stop instead of {count}"

    return all_are_stopped
