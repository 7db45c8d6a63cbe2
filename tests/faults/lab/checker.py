"""Reading a history for broken promises.

Each rule is one promise of monque and yields a sentence for each time it finds it broken. What the
processes wrote down is held against what MongoDB says was written, and neither is believed alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.faults.lab.history import SECOND
from tests.faults.lab.lives import in_order, nanoseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.faults.lab.history import Fault, History, Run
    from tests.faults.lab.lives import Life, Step

    Rule = Callable[[History], Iterator[str]]

_MILLISECONDS = 5_000_000
"""What the server's time in whole milliseconds may differ from that of a process."""
_CLOCK_READING = SECOND
"""How far off a process on a busy machine may read the server's clock."""
STALE_AFTER_HEARTBEATS = 3
ENQUEUEING = ("enqueue", "enqueue_many", "enqueue_in_transaction")
_EXPECTED_ERRORS = {
    "MonqueConnectionError",  # MongoDB was away
    "OwnershipLostError",  # a claim was taken over
    "ShutdownTimeoutError",  # stop() was told not to wait
    "InvalidJobError",  # a document is no job
}


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


def check(history: History) -> list[Violation]:
    """Hold a history against every rule."""
    return [Violation(rule.__name__, text) for rule in RULES for text in rule(history)]


def what_was_acknowledged_is_stored(history: History) -> Iterator[str]:
    """No acknowledged job is missing, unless it was deleted when it might be."""
    deleted = {
        job
        for operation in history.operations
        if operation.action == "delete"
        for job in [operation.details["job"]]
    }
    for operation in history.operations:
        if operation.action not in (*ENQUEUEING, "schedule") or operation.answer != "told":
            continue
        for job in operation.jobs:
            life = history.lives.get(job)
            if life is None:
                yield f"{operation.id} was told of job {job}, which was never stored"
            elif life.last is None and job not in deleted and not _is_expired(history, life):
                yield f"job {job} of {operation.id} is gone, and nobody deleted it"


def an_operation_stores_its_jobs_once(history: History) -> Iterator[str]:
    """What a caller asked for once is in the queue at most once, retries of the driver included."""
    stored = Counter(
        (data["op"], data.get("i", 0))
        for life in history.lives.values()
        if isinstance(data := life.born.get("data"), dict)
        and "op" in data
        and "repeatInterval" not in life.born
        and life.born["status"] == "pending"
    )
    for (operation, position), count in stored.items():
        if count > 1:
            yield f"{operation} stored {count} jobs for its position {position}"


def everything_due_has_run(history: History) -> Iterator[str]:
    """At the end, with all faults over, nothing that is due waits or hangs."""
    for life in _jobs(history):
        last = life.last
        if last is None:
            continue
        if last["status"] == "processing":
            yield f"{life.name} {life.id} is still claimed by {last.get('claimedBy')}"
        elif last["status"] == "pending" and nanoseconds(last["nextRunAt"]) <= history.ended:
            yield f"{life.name} {life.id} is due since {last['nextRunAt']} and still waits"


def outcomes_are_those_of_the_run_that_owns_the_claim(history: History) -> Iterator[str]:
    """Nothing is settled by a run that has lost its claim, nor before a run has ended."""
    runs = {(run.job, run.token): run for run in history.runs}
    for life in _jobs(history):
        for step in life.steps:
            if not step.is_settling:
                continue
            run = runs.get((life.id, step.token_before))
            if step.is_release:
                if run is not None and run.how in ("ok", "raised") and _ended(run, step):
                    yield f"{_told(life, step)} was handed back, though its run ended {run.how}"
                continue
            if run is None and _is_giving_up(life, step):
                continue
            if run is None:
                yield f"{_told(life, step)} was settled by a claim that never ran"
            elif not _ended(run, step):
                yield f"{_told(life, step)} was settled while its run in {run.process} went on"
            elif run.how != _expected_end(step):
                yield f"{_told(life, step)} was settled, though its run ended {run.how}"


def what_is_announced_is_written(history: History) -> Iterator[str]:
    """An outcome that listeners hear of is in the database, under the same claim."""
    written = {
        (life.id, step.token_before, step.statuses[1])
        for life in history.lives.values()
        for step in life.steps
        if step.statuses[0] == "processing"
    }
    for note in history.notes:
        if note.what not in ("completed", "failed"):
            continue
        job, token, status = (note.details[key] for key in ("job", "token", "status"))
        if (job, token, status) not in written:
            yield f"{note.process} told of job {job} as {status}, which was never written"


def every_run_has_a_claim_of_its_own(history: History) -> Iterator[str]:
    """A handler runs once per claim, after it, in the instance that made it."""
    claims = {
        (life.id, step.token_after): step
        for life in history.lives.values()
        for step in life.steps
        if step.is_claim
    }
    seen = Counter((run.job, run.token) for run in history.runs)
    for (job, token), count in seen.items():
        if count > 1:
            yield f"job {job} ran {count} times under its claim {token}"
    for run in history.runs:
        claim = claims.get((run.job, run.token))
        if claim is None:
            yield f"{run.process} ran job {run.job} without a claim"
            continue
        assert claim.after is not None
        if claim.after.get("claimedBy") != history.processes[run.process].instance:
            yield f"{run.process} ran job {run.job}, which {claim.after.get('claimedBy')} claimed"
        if run.started < claim.at - _MILLISECONDS:
            yield f"{run.process} ran job {run.job} before it was claimed"


def nothing_is_claimed_early(history: History) -> Iterator[str]:
    """A job is claimed when it is due, by the server's clock, and only from the queue."""
    for life in _jobs(history):
        for step in life.steps:
            if not step.is_claim:
                continue
            assert step.before is not None
            early = nanoseconds(step.before["nextRunAt"]) - step.at
            if early > _CLOCK_READING:
                yield f"{_told(life, step)} was claimed {early / SECOND:.1f} s before it was due"


def only_silent_claims_are_taken_over(history: History) -> Iterator[str]:
    """A claim is taken from its owner only when its heartbeats have failed to come."""
    for life in _jobs(history):
        for step in life.steps:
            if not step.is_taking_over:
                continue
            assert step.before is not None
            silence = step.at - nanoseconds(step.before["lastHeartbeat"])
            patience = STALE_AFTER_HEARTBEATS * step.before["heartbeatInterval"] * 1_000_000
            if silence < patience - _CLOCK_READING:
                yield f"{_told(life, step)} was taken over after {silence / SECOND:.2f} s"


def a_lost_claim_is_explained_by_a_fault(history: History) -> Iterator[str]:
    """A second run is owed to a fault that hit the first one."""
    owners = {process.instance: process.name for process in history.processes.values()}
    for life in _jobs(history):
        for step in life.steps:
            if not step.is_taking_over:
                continue
            assert step.before is not None
            heard = nanoseconds(step.before["lastHeartbeat"])
            owner = owners.get(step.before.get("claimedBy", ""), "")
            since = heard - 2 * history.heartbeat
            if not any(fault.hits(owner, since, step.at) for fault in history.faults):
                yield f"{_told(life, step)} was lost by {owner or 'nobody'}, and no fault hit it"


def a_run_that_is_over_is_not_repeated(history: History) -> Iterator[str]:
    """A job that has completed runs again only when it recurs or is retried by hand."""
    runs = history.runs_by_job()
    for life in _jobs(history):
        if life.born.get("repeatInterval"):
            continue
        done_at = None
        for step in life.steps:
            if step.statuses[1] == "completed" and done_at is None:
                done_at = step.at
            elif step.statuses[0] == "completed" and step.statuses[1] not in ("completed", None):
                yield f"{_told(life, step)} left the status completed"
        if done_at is None:
            continue
        for run in runs.get(life.id, []):
            if run.started > done_at + _MILLISECONDS and not _lost_before(life, run, done_at):
                yield f"{life.name} {life.id} ran in {run.process} after it had completed"


def unique_keys_are_active_once(history: History) -> Iterator[str]:
    """No two pending or processing jobs have the same name and key at any moment."""
    active: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for life, step in in_order(history.lives.values()):
        key = life.born.get("uniqueKey")
        if life.is_foreign or not key:
            continue
        holders = active[life.name, key]
        if step.statuses[1] in ("pending", "processing"):
            holders.add(life.id)
            if len(holders) > 1:
                yield f"{life.name} has the key {key!r} active {len(holders)} times: {holders}"
        else:
            holders.discard(life.id)


def a_deduplicated_job_was_there(history: History) -> Iterator[str]:
    """Who is given another's job is given one that was active while it asked."""
    for operation in history.operations:
        if not operation.deduplicated or operation.answer != "told":
            continue
        for job in operation.jobs:
            life = history.lives.get(job)
            if life is None or not _was_active(life, operation.asked, operation.told):
                yield f"{operation.id} was given job {job}, which was not active then"


def limits_hold(history: History) -> Iterator[str]:
    """No more runs overlap than a worker and its instance allow."""
    changes: list[tuple[float, int, Run]] = []
    for run in history.runs:
        changes += [(run.started, 1, run), (run.ended, -1, run)]
    changes.sort(key=lambda change: change[:2])
    by_name: Counter[tuple[str, str]] = Counter()
    in_all: Counter[str] = Counter()
    for _, change, run in changes:
        by_name[run.process, run.name] += change
        in_all[run.process] += change
        process = history.processes[run.process]
        if change > 0 and by_name[run.process, run.name] > process.limits[run.name]:
            yield f"{run.process} runs {by_name[run.process, run.name]} of {run.name} at once"
        limit = process.instance_limit
        if change > 0 and limit is not None and in_all[run.process] > limit:
            yield f"{run.process} runs {in_all[run.process]} jobs at once"


def no_job_runs_for_ever(history: History) -> Iterator[str]:
    """A job that fails or kills its process every time is given up."""
    resets: Counter[str] = Counter()
    for life in _jobs(history):
        resets[life.id] += sum(
            step.statuses[0] in ("failed", "cancelled") and step.statuses[1] == "pending"
            for step in life.steps
        )
    for job, runs in history.runs_by_job().items():
        born = history.lives[job].born if job in history.lives else {}
        limit = int(born.get("maxRetries") or 10)
        if len(runs) > 2 * limit * (1 + resets[job]) and not born.get("repeatInterval"):
            yield f"{born.get('name')} {job} ran {len(runs)} times, and may {limit} times"


def an_operator_s_word_holds(history: History) -> Iterator[str]:
    """What was cancelled is not claimed again, and what was deleted does not come back."""
    for operation in history.operations:
        if operation.answer != "told" or operation.action not in ("cancel", "delete"):
            continue
        life = history.lives.get(operation.details["job"])
        if life is None:
            continue
        if operation.action == "delete":
            if life.last is not None:
                yield f"{operation.id} deleted {life.id}, which is there"
            continue
        retried = any(
            other.action == "retry" and other.details["job"] == life.id
            for other in history.operations
        )
        if not retried and any(
            step.is_claim and step.at > operation.told + _MILLISECONDS for step in life.steps
        ):
            yield f"{operation.id} cancelled {life.id}, which was claimed afterwards"


def foreign_documents_are_set_aside_once(history: History) -> Iterator[str]:
    """Garbage in the queue is met once: it never runs, and nobody trips over it again."""
    ran = {run.job for run in history.runs}
    for life in history.lives.values():
        if not life.is_foreign:
            continue
        if life.id in ran:
            yield f"the foreign document {life.id} was run"
        if len(life.steps) > 4:
            yield f"the foreign document {life.id} was written {len(life.steps)} times"
        if life.born.get("unreadable") and (life.last or {}).get("status") != "failed":
            yield f"the foreign document {life.id} still waits in the queue"


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
    for life in _jobs(history):
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


RULES: tuple[Rule, ...] = (
    what_was_acknowledged_is_stored,
    an_operation_stores_its_jobs_once,
    everything_due_has_run,
    outcomes_are_those_of_the_run_that_owns_the_claim,
    what_is_announced_is_written,
    every_run_has_a_claim_of_its_own,
    nothing_is_claimed_early,
    only_silent_claims_are_taken_over,
    a_lost_claim_is_explained_by_a_fault,
    a_run_that_is_over_is_not_repeated,
    unique_keys_are_active_once,
    a_deduplicated_job_was_there,
    limits_hold,
    no_job_runs_for_ever,
    an_operator_s_word_holds,
    foreign_documents_are_set_aside_once,
    nothing_unexpected_is_reported,
    a_clean_stop_leaves_no_claims,
    processes_end_as_told,
)


def explained(history: History) -> Counter[str]:
    """Count the second runs by the kind of fault that explains them."""
    owners = {process.instance: process.name for process in history.processes.values()}
    kinds: Counter[str] = Counter()
    for life in _jobs(history):
        for step in life.steps:
            if step.is_taking_over and step.before is not None:
                owner = owners.get(step.before.get("claimedBy", ""), "")
                since = nanoseconds(step.before["lastHeartbeat"]) - 2 * history.heartbeat
                kinds.update({_kind(history.faults, owner, since, step.at)})
    return kinds


def _kind(faults: list[Fault], owner: str, since: int, until: int) -> str:
    hits = [fault for fault in faults if fault.hits(owner, since, until)]
    # Its own faults explain more than those of everybody.
    hits.sort(key=lambda fault: (fault.kind == "starved", fault.target == "*"))
    return hits[0].kind if hits else "nothing"


def _jobs(history: History) -> Iterator[Life]:
    return (life for life in history.lives.values() if not life.is_foreign)


def _ended(run: Run, step: Step) -> bool:
    return run.ended <= step.at + _MILLISECONDS


def _expected_end(step: Step) -> str:
    if step.statuses[1] == "completed":
        return "ok"
    if step.statuses[1] == "failed":
        return "raised"
    assert step.before is not None
    assert step.after is not None
    grew = (step.after.get("failCount") or 0) > (step.before.get("failCount") or 0)
    failed = grew or "failReason" in step.after
    return "raised" if failed else "ok"


def _is_giving_up(life: Life, step: Step) -> bool:
    """Tell whether recovery settled a claim that it had adopted for that."""
    return any(
        other.statuses == ("processing", "processing")
        and other.is_taking_over
        and other.token_after == step.token_before
        for other in life.steps
    )


def _is_expired(history: History, life: Life) -> bool:
    """Tell whether retention might delete a job: it was finished, and for long enough."""
    last = life.steps[-1]
    ages = history.retention or {}
    if last.before is None or last.statuses[0] not in ages:
        return False
    age = last.at - nanoseconds(last.before["updatedAt"])
    return age >= ages[last.statuses[0]] * SECOND - _CLOCK_READING


def _lost_before(life: Life, run: Run, time: int) -> bool:
    """Tell whether the claim of a run was taken over before that time."""
    return any(
        step.is_taking_over and step.token_before == run.token and step.at <= time
        for step in life.steps
    )


def _was_active(life: Life, since: float, until: float) -> bool:
    began: int | None = None
    for step in life.steps:
        is_active = step.statuses[1] in ("pending", "processing")
        if is_active and began is None:
            began = step.at
        elif not is_active and began is not None:
            if began <= until + _MILLISECONDS and step.at >= since - _MILLISECONDS:
                return True
            began = None
    return began is not None and began <= until + _MILLISECONDS


def _told(life: Life, step: Step) -> str:
    before, after = step.statuses
    return f"{life.name} {life.id} ({before} → {after})"


def summary(history: History) -> dict[str, Any]:
    """Count what happened."""
    return {
        "jobs": sum(1 for _ in _jobs(history)),
        "runs": len(history.runs),
        "operations": dict(Counter(operation.action for operation in history.operations)),
        "unanswered": sum(
            operation.answer in ("unsure", "none") for operation in history.operations
        ),
        "faults": dict(Counter(fault.kind for fault in history.faults)),
        "claims taken over": dict(explained(history)),
        "processes": len(history.processes),
    }
