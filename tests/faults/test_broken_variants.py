"""The checker finds violations when monque is broken on purpose: real processes, a real MongoDB."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.faults.lab.broken_variants import BROKEN_VARIANTS
from tests.faults.lab.experiments import broken_variant, listeners, lost_listeners

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
    "no fencing": Case("only_claim_owners_write_outcomes", ("freeze",)),
    "lost outcome": Case("published_outcomes_are_written"),
    "double claim": Case("only_silent_claims_are_taken_over"),
    "lost enqueue": Case("acknowledged_jobs_are_stored"),
    "stored twice": Case("each_call_stores_its_jobs_once"),
    "unique keys ignored": Case("unique_keys_are_active_once"),
    "limits ignored": Case("concurrency_limits_hold"),
    "eager recovery": Case("only_silent_claims_are_taken_over"),
    "no recovery": Case("due_jobs_have_run", ("kill",)),
    "claimed early": Case("no_job_is_claimed_early", operations=180),
    "settled before running": Case("only_claim_owners_write_outcomes"),
    "claims kept at stop": Case("clean_stops_leave_no_claims", ("stop",), shutdown_timeout=0.2),
    "given up at first error": Case("no_job_is_given_up_early"),
    "given up at first interruption": Case("no_job_is_given_up_early", ("kill",)),
    "no backoff": Case("retries_wait_for_their_backoff"),
    "handed back while running": Case("only_claim_owners_write_outcomes"),
    "lost event": Case("written_outcomes_are_published"),
    "delay ignored": Case("jobs_are_due_when_requested"),
}


@pytest.mark.parametrize("variant", BROKEN_VARIANTS)
async def test_the_checker_finds_every_broken_variant(mongo: LocalMongo, variant: str) -> None:
    case = CASES[variant]
    found = set[str]()
    for attempt in range(_ATTEMPTS):
        # On a busy machine, a violation may need more operations to show.
        report = await broken_variant(
            mongo,
            variant,
            case.kinds,
            seed=3 + attempt,
            operations=case.operations << attempt,
            shutdown_timeout=case.shutdown_timeout,
        )
        found |= {violation.rule for violation in report.violations}
        if case.rule in found:
            report.delete_records()
            break
    assert case.rule in found, f"{case.rule} reported no violation in {_ATTEMPTS} attempts"


async def test_the_checker_finds_no_violation_in_the_unmodified_monque(mongo: LocalMongo) -> None:
    report = await broken_variant(mongo, None, ("freeze", "stop", "garbage"))
    assert not report.violations, report


@pytest.mark.parametrize(
    ("variant", "kind"), [("no backup", "freeze"), ("standby never woken", "all busy")]
)
async def test_the_checker_finds_jobs_that_wait_for_a_faulty_listener(
    mongo: LocalMongo, variant: str, kind: str
) -> None:
    report = await listeners(mongo, seed=3, kinds=[kind], variant=variant)
    assert "faulty_listeners_are_covered" in {violation.rule for violation in report.violations}
    report.delete_records()


async def test_the_checker_finds_seats_that_dead_listeners_keep(mongo: LocalMongo) -> None:
    report = await lost_listeners(mongo, seed=3, variant="seats kept for ever")
    assert "lost_listeners_are_replaced" in {violation.rule for violation in report.violations}
    report.delete_records()
