"""The checker: validates a history against all rules.

Each rule is one guarantee of monque and yields a message for each violation. The records of the
processes are compared with the writes that MongoDB reports, and neither is trusted alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.faults.lab.rules.claims import (
    concurrency_limits_hold,
    every_run_has_its_own_claim,
    explained,
    lost_claims_are_explained_by_faults,
    no_job_is_claimed_early,
    only_silent_claims_are_taken_over,
)
from tests.faults.lab.rules.events import (
    published_outcomes_are_written,
    written_outcomes_are_published,
)
from tests.faults.lab.rules.outcomes import (
    completed_jobs_do_not_run_again,
    due_jobs_have_run,
    no_job_runs_forever,
    only_claim_owners_write_outcomes,
)
from tests.faults.lab.rules.processes import (
    clean_stops_leave_no_claims,
    only_expected_errors_are_reported,
    processes_stop_in_time,
)
from tests.faults.lab.rules.statuses import (
    no_job_is_given_up_early,
    retries_wait_for_their_backoff,
    statuses_change_as_documented,
)
from tests.faults.lab.rules.storage import (
    acknowledged_jobs_are_stored,
    deduplicated_jobs_were_active,
    each_call_stores_its_jobs_once,
    foreign_documents_are_quarantined_once,
    jobs_are_due_when_requested,
    operator_actions_take_effect,
    unique_keys_are_active_once,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.faults.lab.history import History

    Rule = Callable[[History], Iterator[str]]

RULES: tuple[Rule, ...] = (
    acknowledged_jobs_are_stored,
    each_call_stores_its_jobs_once,
    jobs_are_due_when_requested,
    due_jobs_have_run,
    only_claim_owners_write_outcomes,
    published_outcomes_are_written,
    written_outcomes_are_published,
    statuses_change_as_documented,
    no_job_is_given_up_early,
    retries_wait_for_their_backoff,
    every_run_has_its_own_claim,
    no_job_is_claimed_early,
    only_silent_claims_are_taken_over,
    lost_claims_are_explained_by_faults,
    completed_jobs_do_not_run_again,
    unique_keys_are_active_once,
    deduplicated_jobs_were_active,
    concurrency_limits_hold,
    no_job_runs_forever,
    operator_actions_take_effect,
    foreign_documents_are_quarantined_once,
    only_expected_errors_are_reported,
    clean_stops_leave_no_claims,
    processes_stop_in_time,
)


@dataclass(frozen=True, slots=True)
class Violation:
    """One violation of a rule."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


def check(history: History, *extra_rules: Rule) -> list[Violation]:
    """Check a history against every rule and additional ones."""
    rules = (*RULES, *extra_rules)
    return [Violation(rule.__name__, text) for rule in rules for text in rule(history)]


def summary(history: History) -> dict[str, Any]:
    """Return counts of what happened."""
    return {
        "jobs": sum(1 for _ in history.jobs()),
        "runs": len(history.runs),
        "calls": dict(Counter(operation.action for operation in history.operations)),
        "calls without an answer": sum(
            operation.result in ("indeterminate", "none") for operation in history.operations
        ),
        "faults": dict(Counter(fault.kind for fault in history.faults)),
        "claims taken over": dict(explained(history)),
        "processes": len(history.processes),
    }
