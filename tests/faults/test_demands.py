"""What single experiments demand: each is met by a story, and missed by another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults.lab.checker import check
from tests.faults.lab.demands import (
    all_are_done,
    each_is_done,
    every_call_is_answered,
    no_claim_is_lost,
    no_outage_is_told,
    so_many_are_stopped,
)
from tests.faults.lab.story import Story

if TYPE_CHECKING:
    from tests.faults.lab.checker import Rule
    from tests.faults.lab.story import Telling


def one_job(story: Story) -> None:
    story.enqueue("job")
    story.run("job", "t", "w1")


def one_job_twice(story: Story) -> None:
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.begin("job", "t", "w1")
    story.end("job", "t", "w1", how="raised")
    story.fail("job", "t", "w1", failures=1, after=0.2)
    story.run("job", "t2", "w1")


def one_job_given_up(story: Story) -> None:
    story.enqueue("job", maxRetries=1)
    story.claim("job", "t", "w1")
    story.begin("job", "t", "w1")
    story.end("job", "t", "w1", how="raised")
    story.give_up("job", "t", "w1", failures=1)


def unanswered(story: Story) -> None:
    story.ask("1", "enqueue", "job")


def out_of_reach(story: Story) -> None:
    story.disturb("w1", "starved", seconds=1)
    story.note("w1", "error", kind="MonqueConnectionError", text="away", job=None, token=None)


def lost_to(kind: str) -> Telling:
    def lost(story: Story) -> None:
        story.up("w2")
        story.enqueue("job")
        story.claim("job", "t", "w1")
        story.disturb("w1", kind, seconds=4)
        story.revive("job")
        story.run("job", "t2", "w2")

    return lost


def stopped_during(kind: str) -> Telling:
    def stopped(story: Story) -> None:
        story.disturb("w1", "cut", seconds=1)
        story.note("lab", "fault", kind="stop", target="w1", during=kind)
        story.end_cleanly("w1")

    return stopped


def nothing_done(story: Story) -> None:
    story.tell_to_stop("w1")
    story.end_cleanly("w1")


@pytest.mark.parametrize(
    ("demand", "met", "missed"),
    [
        (every_call_is_answered, one_job, unanswered),
        (no_outage_is_told, one_job, out_of_reach),
        (no_claim_is_lost, lost_to("starved"), lost_to("freeze")),
        (all_are_done(1), one_job, nothing_done),
        (all_are_done(1), lost_to("freeze"), one_job_twice),
        (all_are_done(1), one_job, one_job_given_up),
        (each_is_done(["cut"]), stopped_during("cut"), nothing_done),
        (each_is_done(["cut"]), stopped_during("cut"), stopped_during("")),
        (so_many_are_stopped(1), nothing_done, one_job),
    ],
)
def test_a_demand_is_met_or_missed(demand: Rule, met: Telling, missed: Telling) -> None:
    for telling, is_met in ((met, True), (missed, False)):
        story = Story()
        story.up("w1")
        telling(story)
        broken = {violation.rule for violation in check(story.history(), demand)}
        assert broken == (set() if is_met else {demand.__name__}), telling.__name__
