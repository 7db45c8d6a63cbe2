"""The checker of the fault campaigns accepts valid histories and finds every violation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults.lab.checker import RULES, check
from tests.faults.lab.history_builder import HistoryBuilder
from tests.faults.sample_histories import claims, outcomes, processes, statuses, storage
from tests.faults.sample_histories.valid import VALID, a_normal_day

if TYPE_CHECKING:
    from tests.faults.lab.history_builder import Scenario

INVALID: dict[str, list[Scenario]] = {
    **storage.INVALID,
    **outcomes.INVALID,
    **statuses.INVALID,
    **claims.INVALID,
    **processes.INVALID,
}


@pytest.mark.parametrize("scenario", VALID, ids=lambda scenario: scenario.__name__)
def test_a_valid_history_has_no_violations(scenario: Scenario) -> None:
    history = HistoryBuilder()
    history.up("w1")
    scenario(history)
    assert not check(history.build())


@pytest.mark.parametrize(
    ("rule", "scenario"),
    [(rule, scenario) for rule, scenarios in INVALID.items() for scenario in scenarios],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_violation_is_found_by_its_rule(rule: str, scenario: Scenario) -> None:
    history = HistoryBuilder()
    a_normal_day(history)
    history.wait(60)
    history.up("w1")
    scenario(history)
    assert rule in {violation.rule for violation in check(history.build())}


def test_every_rule_has_an_invalid_history() -> None:
    assert set(INVALID) == {rule.__name__ for rule in RULES}
