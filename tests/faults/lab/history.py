"""The merged history of an experiment, from the records of all processes."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.faults.lab.fault_timeline import Fault, FaultTimeline, ProcessExit
from tests.faults.lab.times import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from tests.faults.lab.document_history import DocumentHistory


@dataclass(frozen=True, slots=True)
class Note:
    """One line that a process recorded."""

    process: str
    at: int
    what: str
    details: dict[str, Any]


@dataclass(slots=True)
class Run:
    """One call of a handler."""

    process: str
    job: str
    token: str
    name: str
    started: int
    ended: float = math.inf
    how: str = "never ended"


@dataclass(slots=True)
class Operation:
    """One call of a producer, and its result."""

    process: str
    id: str
    action: str
    details: dict[str, Any]
    invoked: int
    returned: float = math.inf
    result: str = "none"
    """`succeeded`, `rejected`, `indeterminate`, or `none` if the process ended before it."""
    jobs: list[str] = field(default_factory=list)
    deduplicated: bool = False


@dataclass(frozen=True, slots=True)
class Process:
    """A worker process."""

    name: str
    instance: str
    limits: dict[str, int]
    instance_limit: int | None


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The options that all workers share; durations are nanoseconds."""

    heartbeat: int = SECOND
    max_retries: int = 10
    base_retry_interval: int = SECOND // 10
    max_backoff_delay: int = SECOND
    retention: dict[str, float] = field(default_factory=dict)
    """After how many seconds finished jobs are deleted, by status."""

    def backoff(self, failures: int) -> int:
        """Return the delay after this many failures."""
        return min(self.base_retry_interval << failures, self.max_backoff_delay)


@dataclass(slots=True)
class History:
    """Everything that is known about an experiment."""

    notes: Sequence[Note]
    documents: dict[str, DocumentHistory]
    """The writes to each document, by its id, as MongoDB reports them."""
    options: WorkerOptions
    runs: list[Run] = field(init=False)
    operations: list[Operation] = field(init=False)
    faults: list[Fault] = field(init=False)
    processes: dict[str, Process] = field(init=False)
    exits: dict[str, ProcessExit] = field(init=False)
    fault_timeline: FaultTimeline = field(init=False)
    _names: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.notes = sorted(self.notes, key=lambda note: note.at)
        self.processes = {note.process: _process(note) for note in self.of("up")}
        self._names = {process.instance: name for name, process in self.processes.items()}
        self.runs = list(self._put_runs_together())
        self.operations = list(self._put_operations_together())
        self.faults = [_fault(note) for note in self.of("fault")]
        self.exits = {
            note.details["process"]: ProcessExit(note.at, note.details["code"])
            for note in self.of("exited")
        }
        self.fault_timeline = FaultTimeline(self.faults, self.exits, self.options.heartbeat)

    @property
    def ended(self) -> int:
        """Return the time of the last note."""
        return self.notes[-1].at

    def of(self, what: str) -> Iterator[Note]:
        """Yield the notes of one kind."""
        return (note for note in self.notes if note.what == what)

    def jobs(self) -> Iterator[DocumentHistory]:
        """Yield the histories of all jobs, without foreign documents."""
        return (document for document in self.documents.values() if not document.is_foreign)

    def owner(self, document: dict[str, Any]) -> str:
        """Return the name of the process that claimed a job, or "" if it is unknown."""
        return self._names.get(document.get("claimedBy", ""), "")

    def runs_by_job(self) -> dict[str, list[Run]]:
        """Return the runs of each job in the order in which they began."""
        by_job: defaultdict[str, list[Run]] = defaultdict(list)
        for run in self.runs:
            by_job[run.job].append(run)
        return by_job

    def _put_runs_together(self) -> Iterator[Run]:
        under_way: dict[tuple[str, str, str], Run] = {}
        for note in self.notes:
            if note.what == "run started":
                details = note.details
                run = Run(note.process, details["job"], details["token"], details["name"], note.at)
                under_way[run.process, run.job, run.token] = run
                yield run
            elif note.what == "run ended":
                run = under_way[note.process, note.details["job"], note.details["token"]]
                run.ended, run.how = note.at, note.details["how"]
            elif note.what == "exited":
                # The runs of a process end with it.
                for run in under_way.values():
                    if run.process == note.details["process"] and run.ended == math.inf:
                        run.ended = note.at

    def _put_operations_together(self) -> Iterator[Operation]:
        waiting: dict[str, Operation] = {}
        for note in self.notes:
            if note.what == "invoked":
                details = dict(note.details)
                operation = Operation(
                    note.process, details.pop("op"), details.pop("action"), details, note.at
                )
                waiting[operation.id] = operation
                yield operation
            elif note.what in ("succeeded", "rejected", "indeterminate"):
                operation = waiting[note.details["op"]]
                operation.returned, operation.result = note.at, note.what
                operation.jobs = note.details.get("jobs", [])
                operation.deduplicated = note.details.get("deduplicated", False)


def read_notes(folder: Path) -> list[Note]:
    """Read the files of all processes; each file is named after its process."""
    return [note for path in sorted(folder.glob("*.jsonl")) for note in _notes_in(path)]


def _notes_in(path: Path) -> Iterable[Note]:
    for line in path.read_text(encoding="utf-8").splitlines():
        details = json.loads(line)
        yield Note(path.stem, details.pop("at"), details.pop("what"), details)


def _process(note: Note) -> Process:
    details = note.details
    return Process(note.process, details["instance"], details["limits"], details["instance_limit"])


def _fault(note: Note) -> Fault:
    """Return a fault, which is recorded when it is over, unless its end is known in advance."""
    details = note.details
    ended = math.inf if details.get("for_ever") else note.at + details.get("lasts", 0)
    return Fault(
        details["kind"],
        details.get("target", note.process),
        details.get("began", note.at),
        ended,
        details.get("during", ""),
    )
