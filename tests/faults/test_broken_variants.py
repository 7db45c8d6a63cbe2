"""The checker finds violations when monque is broken on purpose: real processes, a real MongoDB."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.faults.lab.experiments import sabotaged
from tests.faults.lab.sabotage import SABOTAGE

if TYPE_CHECKING:
    from monque_core import LocalMongo


pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]
_ATTEMPTS = 5


class Case(NamedTuple):
    """The faults that expose a broken variant, and the rule that must find it."""

    rule: str
    kinds: tuple[str, ...] = ("garbage",)
    operations: int = 120
    """How many operations the producer performs before the faults, on the first attempt."""
    shutdown_timeout: float = 3


CASES = {
    "no fencing": Case("outcomes_are_those_of_the_run_that_owns_the_claim", ("freeze",)),
    "lost settle": Case("what_is_announced_is_written"),
    "double claim": Case("only_silent_claims_are_taken_over"),
    "lost enqueue": Case("what_was_acknowledged_is_stored"),
    "stored twice": Case("an_operation_stores_its_jobs_once"),
    "keys ignored": Case("unique_keys_are_active_once"),
    "limits ignored": Case("limits_hold"),
    "eager recovery": Case("only_silent_claims_are_taken_over"),
    "no recovery": Case("everything_due_has_run", ("kill",)),
    "claimed early": Case("nothing_is_claimed_early", operations=180),
    "settled before running": Case("outcomes_are_those_of_the_run_that_owns_the_claim"),
    "forgotten at stop": Case("a_clean_stop_leaves_no_claims", ("stop",), shutdown_timeout=0.2),
    "given up too early": Case("nothing_is_given_up_early"),
    "spent at once": Case("nothing_is_given_up_early", ("kill",)),
    "no backoff": Case("retries_wait_for_their_backoff"),
    "handed back while running": Case("outcomes_are_those_of_the_run_that_owns_the_claim"),
    "silent": Case("what_is_written_is_announced"),
    "delay ignored": Case("jobs_are_due_when_asked_for"),
}


@pytest.mark.parametrize("sabotage", SABOTAGE)
async def test_a_broken_monque_is_found_out(mongo: LocalMongo, sabotage: str) -> None:
    case = CASES[sabotage]
    found = set[str]()
    for attempt in range(_ATTEMPTS):
        # On a busy machine, a violation may need more operations to show.
        report = await sabotaged(
            mongo,
            sabotage,
            case.kinds,
            seed=3 + attempt,
            operations=case.operations << attempt,
            shutdown_timeout=case.shutdown_timeout,
        )
        found |= {violation.rule for violation in report.violations}
        if case.rule in found:
            report.forget()
            break
    assert case.rule in found, f"not found in {_ATTEMPTS} attempts"


async def test_the_same_campaign_finds_nothing_in_monque_as_it_is(mongo: LocalMongo) -> None:
    report = await sabotaged(mongo, None, ("freeze", "stop", "garbage"))
    assert not report.violations, report
