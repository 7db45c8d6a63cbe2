"""Stories with a flaw in who runs a job, and when, by the rule that must find it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.faults.lab.story import Story, Telling


def run_without_a_claim(story: Story) -> None:
    story.enqueue("job")
    story.begin("job", "t", "w1")
    story.end("job", "t", "w1")
    story.run("job", "t2", "w1")


def run_twice_under_one_claim(story: Story) -> None:
    story.enqueue("job")
    story.claim("job", "t", "w1")
    for _ in range(2):
        story.begin("job", "t", "w1")
        story.end("job", "t", "w1")
    story.complete("job", "t", "w1")


def run_by_another(story: Story) -> None:
    story.up("w2")
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.begin("job", "t", "w2")
    story.end("job", "t", "w2")
    story.complete("job", "t", "w2")


def run_before_its_claim(story: Story) -> None:
    story.enqueue("job")
    story.begin("job", "t", "w1")
    story.claim("job", "t", "w1")
    story.end("job", "t", "w1")
    story.complete("job", "t", "w1")


def claimed_early(story: Story) -> None:
    story.enqueue("job", nextRunAt=story.time(10))
    story.run("job", "t", "w1")
    story.wait(20)


def taken_over_too_soon(story: Story) -> None:
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.note("lab", "fault", kind="freeze", target="w1")
    story.revive("job")
    story.run("job", "t2", "w1")


def claimed_while_claimed(story: Story) -> None:
    story.up("w2")
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.note("lab", "fault", kind="freeze", target="w1")
    story.run("job", "t2", "w2")


def lost_for_no_reason(story: Story) -> None:
    story.up("w2")
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.note("lab", "fault", kind="kill", target="w2", for_ever=True)
    story.wait(4)
    story.revive("job")
    story.run("job", "t2", "w1")


def lost_to_a_hitch(story: Story) -> None:
    story.up("w2")
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.disturb("w1", "starved", seconds=0.3)
    story.wait(3)
    story.revive("job")
    story.run("job", "t2", "w2")


def lost_to_a_fault_of_long_ago(story: Story) -> None:
    story.up("w2")
    story.disturb("w1", "freeze", seconds=5)
    story.wait(3)
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.wait(4)
    story.revive("job")
    story.run("job", "t2", "w2")


def lost_to_a_stop(story: Story) -> None:
    story.up("w2")
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.tell_to_stop("w1")
    story.end_cleanly("w1")
    story.wait(4)
    story.revive("job")
    story.run("job", "t2", "w2")


def three_where_two_may(story: Story) -> None:
    for job in ("one", "two", "three"):
        story.enqueue(job)
        story.claim(job, job, "w1")
        story.begin(job, job, "w1")
    for job in ("one", "two", "three"):
        story.end(job, job, "w1")
        story.complete(job, job, "w1")


def more_than_the_instance_may(story: Story) -> None:
    story.up("narrow", instance_limit=1)
    for job, name in (("one", "work"), ("two", "more")):
        story.enqueue(job, name=name)
        story.claim(job, job, "narrow")
        story.begin(job, job, "narrow", name=name)
    for job in ("one", "two"):
        story.end(job, job, "narrow")
        story.complete(job, job, "narrow")


FLAWS: dict[str, list[Telling]] = {
    "every_run_has_a_claim_of_its_own": [
        run_without_a_claim,
        run_twice_under_one_claim,
        run_by_another,
        run_before_its_claim,
    ],
    "nothing_is_claimed_early": [claimed_early],
    "only_silent_claims_are_taken_over": [taken_over_too_soon, claimed_while_claimed],
    "a_lost_claim_is_explained_by_a_fault": [
        lost_for_no_reason,
        lost_to_a_hitch,
        lost_to_a_fault_of_long_ago,
        lost_to_a_stop,
    ],
    "limits_hold": [three_where_two_may, more_than_the_instance_may],
}
