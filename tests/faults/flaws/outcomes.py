"""Stories with a flaw in how jobs end, by the rule that must find it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.faults.lab.story import Story, Telling


def still_waiting(story: Story) -> None:
    story.enqueue("job")


def still_claimed(story: Story) -> None:
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.begin("job", "t", "w1")


def completed_without_a_good_end(story: Story) -> None:
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.begin("job", "t", "w1")
    story.complete("job", "t", "w1")
    story.end("job", "t", "w1", how="cancelled")


def a_queue_that_does_not_come_to_rest(story: Story) -> None:
    story.note("lab", "restless", seconds=90)


def settled_by_a_run_that_lost_its_claim(story: Story) -> None:
    story.up("w2")
    story.enqueue("job")
    story.claim("job", "old", "w1")
    story.begin("job", "old", "w1")
    story.note("lab", "fault", kind="freeze", target="w1")
    story.wait(3)
    story.revive("job")
    story.claim("job", "new", "w2")
    story.begin("job", "new", "w2")
    story.end("job", "old", "w1")
    story.complete("job", "new", "w1")
    story.end("job", "new", "w2")


def settled_by_nobody(story: Story) -> None:
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.change("job", status="completed")


def settled_as_what_it_was_not(story: Story) -> None:
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.begin("job", "t", "w1")
    story.end("job", "t", "w1", how="raised")
    story.complete("job", "t", "w1")


def completed_by_who_took_it_over(story: Story) -> None:
    story.up("w2")
    story.enqueue("job", maxRetries=1)
    story.claim("job", "t", "w1")
    story.begin("job", "t", "w1")
    story.kill("w1")
    story.wait(3)
    story.adopt("job", "t2", "w2")
    story.complete("job", "t2", "w2")


def handed_back_though_done(story: Story) -> None:
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.begin("job", "t", "w1")
    story.end("job", "t", "w1")
    story.change("job", status="pending", claims=0)
    story.run("job", "t2", "w1")


def handed_back_by_a_process_that_goes_on(story: Story) -> None:
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.begin("job", "t", "w1")
    story.end("job", "t", "w1", how="cancelled")
    story.release("job")
    story.run("job", "t2", "w1")


def handed_back_while_it_ran(story: Story) -> None:
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.begin("job", "t", "w1")
    story.tell_to_stop("w1")
    story.release("job")
    story.end("job", "t", "w1", how="cancelled")
    story.end_cleanly("w1")
    story.up("w2")
    story.run("job", "t2", "w2")


def put_back_though_it_went_well(story: Story) -> None:
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.begin("job", "t", "w1")
    story.end("job", "t", "w1")
    story.change("job", status="pending", claimedBy=None)
    story.note("w1", "completed", job="job", token="t", status="pending")
    story.run("job", "t2", "w1")


def run_after_it_had_completed(story: Story) -> None:
    story.enqueue("job")
    story.run("job", "t", "w1")
    story.begin("job", "t2", "w1")


def alive_again_after_it_had_completed(story: Story) -> None:
    story.enqueue("job")
    story.run("job", "t", "w1")
    story.change("job", status="pending")
    story.run("job", "t2", "w1")


def for_ever(story: Story) -> None:
    story.enqueue("job", maxRetries=2)
    for number in range(5):
        story.claim("job", str(number), "w1")
        story.begin("job", str(number), "w1")
        story.end("job", str(number), "w1", how="raised")
        story.change("job", status="pending", failCount=number + 1)
    story.run("job", "last", "w1")


def announced_and_not_written(story: Story) -> None:
    story.enqueue("job")
    story.run("job", "t", "w1")
    story.note("w1", "completed", job="job", token="another", status="completed")


def announced_before_it_was_written(story: Story) -> None:
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.begin("job", "t", "w1")
    story.end("job", "t", "w1")
    story.note("w1", "completed", job="job", token="t", status="completed")
    story.wait(1)
    story.change("job", status="completed", claimedBy=None)


def written_and_not_announced(story: Story) -> None:
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.begin("job", "t", "w1")
    story.end("job", "t", "w1")
    story.change("job", status="completed", claimedBy=None)


def written_and_not_announced_by_a_slow_machine(story: Story) -> None:
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.begin("job", "t", "w1")
    story.end("job", "t", "w1")
    story.disturb("w1", "starved", seconds=1)
    story.change("job", status="completed", claimedBy=None)
    story.disturb("*", "slow database", seconds=1)


def announced_twice(story: Story) -> None:
    story.enqueue("job")
    story.run("job", "t", "w1")
    story.note("w1", "completed", job="job", token="t", status="completed")


FLAWS: dict[str, list[Telling]] = {
    "everything_due_has_run": [
        still_waiting,
        still_claimed,
        completed_without_a_good_end,
        a_queue_that_does_not_come_to_rest,
    ],
    "outcomes_are_those_of_the_run_that_owns_the_claim": [
        settled_by_a_run_that_lost_its_claim,
        settled_by_nobody,
        settled_as_what_it_was_not,
        completed_by_who_took_it_over,
        handed_back_though_done,
        handed_back_by_a_process_that_goes_on,
        handed_back_while_it_ran,
        put_back_though_it_went_well,
    ],
    "a_run_that_is_over_is_not_repeated": [
        run_after_it_had_completed,
        alive_again_after_it_had_completed,
    ],
    "no_job_runs_for_ever": [for_ever],
    "what_is_announced_is_written": [announced_and_not_written, announced_before_it_was_written],
    "what_is_written_is_announced": [
        written_and_not_announced,
        written_and_not_announced_by_a_slow_machine,
        announced_twice,
    ],
}
