"""Stories with a flaw in what processes say, and how they stop, by the rule that must find it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.faults.lab.story import Story, Telling


def an_error_nobody_has_heard_of(story: Story) -> None:
    story.note("w1", "error", kind="AttributeError", text="'NoneType' object")


def a_complaint_of_asyncio(story: Story) -> None:
    story.note("w1", "complaint", text="Task exception was never retrieved")


def an_outage_nobody_made(story: Story) -> None:
    story.note("w1", "error", kind="MonqueConnectionError", text="away", job=None, token=None)


def a_call_that_failed_for_no_reason(story: Story) -> None:
    story.ask("1", "enqueue", "job")
    story.note("producer", "unsure", op="1", kind="MonqueConnectionError", text="away")


def a_lost_claim_that_nobody_took(story: Story) -> None:
    story.enqueue("job")
    story.run("job", "t", "w1")
    story.note("w1", "error", kind="OwnershipLostError", text="lost", job="job", token="t")


def a_claim_called_lost_that_was_settled(story: Story) -> None:
    story.up("w2")
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.release("job")
    story.run("job", "t2", "w2")
    story.note("w1", "error", kind="OwnershipLostError", text="lost", job="job", token="t")


def a_hurried_stop_that_nobody_asked_for(story: Story) -> None:
    story.note("w1", "error", kind="ShutdownTimeoutError", text="late", job=None, token=None)


def a_claim_forgotten_at_stop(story: Story) -> None:
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.note("lab", "fault", kind="stop", target="w1")
    story.note("lab", "gone", process="w1", code=0, allowed=[0])
    story.up("w2")
    story.wait(4)
    story.revive("job")
    story.run("job", "t2", "w2")


def a_claim_forgotten_after_a_fault_of_long_ago(story: Story) -> None:
    story.disturb("*", "kill primary", seconds=2)
    story.note("w1", "error", kind="MonqueConnectionError", text="away", job=None, token=None)
    story.wait(8)
    a_claim_forgotten_at_stop(story)


def a_process_that_does_not_stop(story: Story) -> None:
    story.note("lab", "gone", process="w1", late=30, code=None, allowed=[None])


def a_process_that_crashes(story: Story) -> None:
    story.note("lab", "gone", process="w1", code=1, allowed=[0])


def a_process_that_leaves_tasks(story: Story) -> None:
    story.note("w1", "down", tasks=["monque-stream"], threads=[])


def a_process_that_leaves_threads(story: Story) -> None:
    story.note("w1", "down", tasks=[], threads=["monque-mongo-1"])


FLAWS: dict[str, list[Telling]] = {
    "nothing_unexpected_is_reported": [
        an_error_nobody_has_heard_of,
        a_complaint_of_asyncio,
        an_outage_nobody_made,
        a_call_that_failed_for_no_reason,
        a_lost_claim_that_nobody_took,
        a_claim_called_lost_that_was_settled,
        a_hurried_stop_that_nobody_asked_for,
    ],
    "a_clean_stop_leaves_no_claims": [
        a_claim_forgotten_at_stop,
        a_claim_forgotten_after_a_fault_of_long_ago,
    ],
    "processes_end_as_told": [
        a_process_that_does_not_stop,
        a_process_that_crashes,
        a_process_that_leaves_tasks,
        a_process_that_leaves_threads,
    ],
}
