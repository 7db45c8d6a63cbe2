"""Stories with a flaw in how jobs change their status, by the rule that must find it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.faults.lab.story import Story, Telling


def failed_from_the_queue(story: Story) -> None:
    story.enqueue("job")
    story.change("job", status="failed", failReason="no reason")


def completed_from_the_queue(story: Story) -> None:
    story.enqueue("job")
    story.change("job", status="completed")


def cancelled_by_nobody(story: Story) -> None:
    story.enqueue("job")
    story.change("job", status="cancelled")


def retried_by_nobody(story: Story) -> None:
    story.enqueue("job", maxRetries=1)
    story.claim("job", "t", "w1")
    story.begin("job", "t", "w1")
    story.end("job", "t", "w1", how="raised")
    story.give_up("job", "t", "w1", failures=1)
    story.change("job", status="pending", failCount=0)
    story.run("job", "t2", "w1")


def given_up_with_runs_left(story: Story) -> None:
    story.enqueue("job", maxRetries=3)
    story.claim("job", "t", "w1")
    story.begin("job", "t", "w1")
    story.end("job", "t", "w1", how="raised")
    story.give_up("job", "t", "w1", failures=1)


def spent_at_once(story: Story) -> None:
    story.up("w2")
    story.enqueue("job", maxRetries=3)
    story.claim("job", "t", "w1")
    story.begin("job", "t", "w1")
    story.kill("w1")
    story.wait(3)
    story.adopt("job", "t2", "w2")
    story.give_up("job", "t2", "w2", failures=1)


def tried_again_at_once(story: Story) -> None:
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.begin("job", "t", "w1")
    story.end("job", "t", "w1", how="raised")
    story.fail("job", "t", "w1", failures=1, after=0)
    story.run("job", "t2", "w1")


def tried_again_much_later(story: Story) -> None:
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.begin("job", "t", "w1")
    story.end("job", "t", "w1", how="raised")
    story.fail("job", "t", "w1", failures=1, after=5)
    story.run("job", "t2", "w1")


FLAWS: dict[str, list[Telling]] = {
    "statuses_change_as_documented": [
        failed_from_the_queue,
        completed_from_the_queue,
        cancelled_by_nobody,
        retried_by_nobody,
    ],
    "nothing_is_given_up_early": [given_up_with_runs_left, spent_at_once, failed_from_the_queue],
    "retries_wait_for_their_backoff": [tried_again_at_once, tried_again_much_later],
}
