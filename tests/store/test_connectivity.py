"""Whether MongoDB answered recently, and who caused a gap between heartbeats."""

from __future__ import annotations

import math
import time

import pytest

from monque_core.store.connectivity import Connectivity


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the reading of the monotonic clock; tests change it in place."""
    shown = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: shown[0])
    return shown


@pytest.fixture
def contact(clock: list[float]) -> Connectivity:
    """Return a connectivity tracker that has seen one answer."""
    contact = Connectivity()
    contact.made(clock[0])
    return contact


class TestAnswer:
    def test_that_never_came_has_an_infinite_age(self, clock: list[float]) -> None:
        contact = Connectivity()
        assert contact.age == math.inf
        assert not contact.is_lost

    def test_ages(self, clock: list[float], contact: Connectivity) -> None:
        assert contact.age == 0
        clock[0] += 5
        assert contact.age == 5

    def test_ends_an_outage(self, clock: list[float], contact: Connectivity) -> None:
        contact.lost()
        assert contact.is_lost
        clock[0] += 1
        contact.made(clock[0])
        assert not contact.is_lost

    @pytest.mark.parametrize("at_leisure", [False, True])
    def test_that_was_on_its_way_before_the_outage_does_not_end_it(
        self, clock: list[float], contact: Connectivity, at_leisure: bool
    ) -> None:
        asked_at = clock[0]
        clock[0] += 1
        contact.lost()
        clock[0] += 1
        contact.made(asked_at, at_leisure=at_leisure)
        assert contact.is_lost

    @pytest.mark.parametrize("at_leisure", [False, True])
    def test_that_took_long_is_a_gap_unless_it_was_expected(
        self, clock: list[float], contact: Connectivity, at_leisure: bool
    ) -> None:
        asked_at = clock[0]
        clock[0] += 30
        contact.made(asked_at, at_leisure=at_leisure)
        assert contact.could_hear(10) is at_leisure


class TestOutage:
    def test_counts_once_until_the_next_answer(
        self, clock: list[float], contact: Connectivity
    ) -> None:
        contact.lost()
        contact.lost()
        assert contact.outages == 1
        contact.made(clock[0])
        contact.lost()
        assert contact.outages == 2


class TestSilence:
    def test_is_attributed_to_the_owner_while_mongodb_answers_in_time(
        self, clock: list[float], contact: Connectivity
    ) -> None:
        for _ in range(10):
            clock[0] += 1
            contact.made(clock[0] - 0.01)
        assert contact.could_hear(1.0)

    def test_is_unattributed_until_the_first_answer(
        self, clock: list[float], contact: Connectivity
    ) -> None:
        contact.made(clock[0])
        contact.suppress_recovery(2.0)
        clock[0] += 1.9
        contact.made(clock[0])
        assert not contact.could_hear(1.0)
        clock[0] += 0.1
        assert contact.could_hear(1.0)

    def test_may_be_caused_by_an_outage_until_three_heartbeats_later(
        self, clock: list[float], contact: Connectivity
    ) -> None:
        contact.lost()
        clock[0] += 5
        contact.made(clock[0])
        assert not contact.could_hear(1.0)
        clock[0] += 2.9
        assert not contact.could_hear(1.0)
        clock[0] += 0.1
        assert contact.could_hear(1.0)

    def test_may_be_caused_by_a_slow_answer(
        self, clock: list[float], contact: Connectivity
    ) -> None:
        asked_at = clock[0]
        clock[0] += 5
        contact.made(asked_at)
        assert not contact.could_hear(1.0)
        clock[0] += 3
        assert contact.could_hear(1.0)

    def test_is_attributed_to_the_owner_after_an_outage_of_less_than_a_heartbeat(
        self, clock: list[float], contact: Connectivity
    ) -> None:
        asked_at = clock[0]
        clock[0] += 5
        contact.made(asked_at)
        assert contact.could_hear(30.0)

    def test_is_still_caused_by_a_slow_answer_after_quick_ones(
        self, clock: list[float], contact: Connectivity
    ) -> None:
        asked_at = clock[0]
        clock[0] += 5
        contact.made(asked_at)
        for _ in range(10):
            clock[0] += 0.1
            contact.made(clock[0] - 0.01)
        assert not contact.could_hear(1.0)

    @pytest.mark.parametrize("gap", [5.0, 100.0])
    def test_may_be_caused_by_a_second_outage(self, clock: list[float], gap: float) -> None:
        contact = Connectivity()
        contact.lost()
        clock[0] += 5
        contact.made(clock[0])
        clock[0] += 3600
        contact.made(clock[0])
        assert contact.could_hear(1.0)
        contact.lost()
        clock[0] += gap
        contact.made(clock[0])
        assert not contact.could_hear(1.0)

    def test_may_be_caused_by_an_outage_soon_after_a_longer_gap(
        self, clock: list[float], contact: Connectivity
    ) -> None:
        contact.lost()
        clock[0] += 1000
        contact.made(clock[0])
        clock[0] += 100
        contact.made(clock[0])
        assert contact.could_hear(1.0)
        asked_at = clock[0]
        clock[0] += 5
        contact.made(asked_at)
        assert not contact.could_hear(1.0)
