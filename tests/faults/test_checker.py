"""The checker of the campaigns: it believes a good story, and finds every flaw in a bad one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults.flaws import claiming, conduct, outcomes, statuses, storing
from tests.faults.flaws.none import SOUND, good_day
from tests.faults.lab.checker import RULES, check
from tests.faults.lab.story import Story

if TYPE_CHECKING:
    from tests.faults.lab.story import Telling

FLAWS: dict[str, list[Telling]] = {
    **storing.FLAWS,
    **outcomes.FLAWS,
    **statuses.FLAWS,
    **claiming.FLAWS,
    **conduct.FLAWS,
}


@pytest.mark.parametrize("telling", SOUND, ids=lambda telling: telling.__name__)
def test_a_history_in_which_everything_is_explained_breaks_no_promise(telling: Telling) -> None:
    story = Story()
    story.up("w1")
    telling(story)
    assert not check(story.history())


@pytest.mark.parametrize(
    ("rule", "telling"),
    [(rule, telling) for rule, tellings in FLAWS.items() for telling in tellings],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_flaw_is_found_by_its_rule(rule: str, telling: Telling) -> None:
    story = Story()
    good_day(story)
    story.wait(60)
    story.up("w1")
    telling(story)
    assert rule in {violation.rule for violation in check(story.history())}


def test_every_rule_has_a_story_that_breaks_it() -> None:
    assert set(FLAWS) == {rule.__name__ for rule in RULES}
