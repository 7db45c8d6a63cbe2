"""Reading a history for broken promises.

Each rule is one promise of monque and yields a sentence for each time it finds it broken. What the
processes wrote down is held against what MongoDB says was written, and neither is believed alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.faults.lab.announcing import (
    what_is_announced_is_written,
    what_is_written_is_announced,
)
from tests.faults.lab.claiming import (
    a_lost_claim_is_explained_by_a_fault,
    every_run_has_a_claim_of_its_own,
    explained,
    limits_hold,
    nothing_is_claimed_early,
    only_silent_claims_are_taken_over,
)
from tests.faults.lab.conduct import (
    a_clean_stop_leaves_no_claims,
    nothing_unexpected_is_reported,
    processes_end_as_told,
)
from tests.faults.lab.outcomes import (
    a_run_that_is_over_is_not_repeated,
    everything_due_has_run,
    no_job_runs_for_ever,
    outcomes_are_those_of_the_run_that_owns_the_claim,
)
from tests.faults.lab.statuses import (
    nothing_is_given_up_early,
    retries_wait_for_their_backoff,
    statuses_change_as_documented,
)
from tests.faults.lab.storing import (
    a_deduplicated_job_was_there,
    an_operation_stores_its_jobs_once,
    an_operator_s_word_holds,
    foreign_documents_are_set_aside_once,
    jobs_are_due_when_asked_for,
    unique_keys_are_active_once,
    what_was_acknowledged_is_stored,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.faults.lab.history import History

    Rule = Callable[[History], Iterator[str]]

RULES: tuple[Rule, ...] = (
    what_was_acknowledged_is_stored,
    an_operation_stores_its_jobs_once,
    jobs_are_due_when_asked_for,
    everything_due_has_run,
    outcomes_are_those_of_the_run_that_owns_the_claim,
    what_is_announced_is_written,
    what_is_written_is_announced,
    statuses_change_as_documented,
    nothing_is_given_up_early,
    retries_wait_for_their_backoff,
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


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


def check(history: History, *demands: Rule) -> list[Violation]:
    """Hold a history against every rule, and what else is demanded of it."""
    rules = (*RULES, *demands)
    return [Violation(rule.__name__, text) for rule in rules for text in rule(history)]


def summary(history: History) -> dict[str, Any]:
    """Count what happened."""
    return {
        "jobs": sum(1 for _ in history.jobs()),
        "runs": len(history.runs),
        "operations": dict(Counter(operation.action for operation in history.operations)),
        "unanswered": sum(
            operation.answer in ("unsure", "none") for operation in history.operations
        ),
        "faults": dict(Counter(fault.kind for fault in history.faults)),
        "claims taken over": dict(explained(history)),
        "processes": len(history.processes),
    }
