"""Stories without a flaw: what may happen, each thing well explained."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.faults.lab.story import Story, Telling


def good_day(story: Story) -> None:
    """Everything that may happen, each well explained."""
    story.up("a1")
    story.up("a2")
    story.enqueue("plain")
    story.run("plain", "t1", "a1")

    story.enqueue("fails once")
    story.claim("fails once", "t2", "a1")
    story.begin("fails once", "t2", "a1")
    story.end("fails once", "t2", "a1", how="raised")
    story.fail("fails once", "t2", "a1", failures=1, after=0.2)
    story.run("fails once", "t3", "a2")

    story.enqueue("interrupted")
    story.claim("interrupted", "t4", "a1")
    story.begin("interrupted", "t4", "a1")
    story.kill("a1")
    story.wait(3)
    story.revive("interrupted")
    story.run("interrupted", "t5", "a2")

    story.enqueue("keyed", uniqueKey="k")
    story.note("producer", "asks", op="again", action="enqueue", name="work")
    story.note("producer", "told", op="again", jobs=["keyed"], deduplicated=True)
    story.run("keyed", "t6", "a2")
    story.enqueue("keyed anew", uniqueKey="k")
    story.run("keyed anew", "t7", "a2")

    story.enqueue("handed back")
    story.claim("handed back", "t8", "a2")
    story.release("handed back")
    story.run("handed back", "t9", "a2")

    story.store("foreign", garbage=True, unreadable=True)
    story.change("foreign", status="failed")
    story.note("a2", "error", kind="InvalidJobError", text="no job", job=None, token=None)
    story.enqueue("cancelled")
    story.ask("c", "cancel", "cancelled")
    story.change("cancelled", status="cancelled")
    story.note("producer", "told", op="c", jobs=["cancelled"])
    story.enqueue("deleted")
    story.ask("d", "delete", "deleted")
    story.delete("deleted")
    story.note("producer", "told", op="d", jobs=[])
    story.tell_to_stop("a2")
    story.end_cleanly("a2")


def given_up_after_its_last_run(story: Story) -> None:
    story.enqueue("job", maxRetries=2)
    for failures in (1, 2):
        token = f"t{failures}"
        story.claim("job", token, "w1")
        story.begin("job", token, "w1")
        story.end("job", token, "w1", how="raised")
        if failures == 1:
            story.fail("job", token, "w1", failures=1, after=0.2)
        else:
            story.give_up("job", token, "w1", failures=2)
    story.ask("r", "retry", "job")
    story.change("job", status="pending", failCount=0, claims=None, claimToken=None)
    story.note("producer", "told", op="r", jobs=["job"])
    story.run("job", "t3", "w1")


def given_up_after_its_process_died(story: Story) -> None:
    story.enqueue("job", maxRetries=1)
    story.claim("job", "t", "w1")
    story.begin("job", "t", "w1")
    story.note("w1", "fault", kind="poison", for_ever=True)
    story.note("lab", "gone", process="w1", code=-9, allowed=[0, -9])
    story.up("w2")
    story.wait(3)
    story.adopt("job", "t2", "w2")
    story.give_up("job", "t2", "w2", failures=1)


def tried_again_late_for_it_was_written_late(story: Story) -> None:
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.begin("job", "t", "w1")
    story.end("job", "t", "w1", how="raised")
    due = story.time(0.2)
    story.disturb("*", "all down", seconds=2)
    story.change("job", status="pending", failCount=1, nextRunAt=due, claimedBy=None)
    story.note("w1", "failed", job="job", token="t", status="pending")
    story.run("job", "t2", "w1")


def handed_back_at_a_stop(story: Story) -> None:
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.begin("job", "t", "w1")
    story.tell_to_stop("w1")
    story.wait(3)
    story.note("w1", "error", kind="ShutdownTimeoutError", text="late", job=None, token=None)
    story.end("job", "t", "w1", how="cancelled")
    story.release("job")
    story.end_cleanly("w1")
    story.up("w2")
    story.run("job", "t2", "w2")


def lost_to_a_freeze(story: Story) -> None:
    story.up("w2")
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.begin("job", "t", "w1")
    story.wait(0.9)
    story.disturb("w1", "freeze", seconds=2.3)
    story.revive("job")
    story.run("job", "t2", "w2")
    story.note("w1", "error", kind="OwnershipLostError", text="lost", job="job", token="t")
    story.end("job", "t", "w1", how="cancelled")


def lost_by_a_process_that_died_of_its_troubles(story: Story) -> None:
    story.up("w2")
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.wait(2.5)
    story.kill("w1")
    story.wait(1)
    story.revive("job")
    story.run("job", "t2", "w2")


def lost_to_several_faults_together(story: Story) -> None:
    story.up("w2")
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.disturb("w1", "starved", seconds=1)
    story.disturb("w1", "starved", seconds=1)
    story.wait(1)
    story.revive("job")
    story.run("job", "t2", "w2")


def left_behind_by_a_stop_in_an_outage(story: Story) -> None:
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.tell_to_stop("w1")
    story.disturb("*", "all down", seconds=8)
    story.note("w1", "error", kind="MonqueConnectionError", text="away", job=None, token=None)
    story.end_cleanly("w1")
    story.up("w2")
    story.wait(4)
    story.revive("job")
    story.run("job", "t2", "w2")


def deleted_while_it_was_claimed(story: Story) -> None:
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.ask("d", "delete", "job")
    story.delete("job")
    story.note("producer", "told", op="d", jobs=[])
    story.begin("job", "t", "w1")
    story.note("w1", "error", kind="OwnershipLostError", text="lost", job="job", token="t")
    story.end("job", "t", "w1", how="cancelled")


def written_in_its_last_moment(story: Story) -> None:
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.begin("job", "t", "w1")
    story.end("job", "t", "w1")
    story.change("job", status="completed", claimedBy=None)
    story.kill("w1")


def unsure_in_an_outage(story: Story) -> None:
    story.ask("1", "enqueue", "job")
    story.disturb("*", "kill primary", seconds=3)
    story.note("producer", "unsure", op="1", kind="MonqueConnectionError", text="away")


def due_after_its_delay(story: Story) -> None:
    story.note("producer", "asks", op="1", action="enqueue", name="work", delay=2)
    story.store("job", nextRunAt=story.time(2), data={"op": "1"})
    story.note("producer", "told", op="1", jobs=["job"])
    story.wait(2)
    story.run("job", "t", "w1")


def due_at_its_time(story: Story) -> None:
    at = story.time(2)
    story.note(
        "producer", "asks", op="1", action="enqueue", name="work", delay=0, run_at=at.timestamp()
    )
    story.store("job", nextRunAt=at, data={"op": "1"})
    story.note("producer", "told", op="1", jobs=["job"])
    story.wait(2)
    story.run("job", "t", "w1")


def handed_back_by_a_write_whose_reply_was_lost(story: Story) -> None:
    story.up("w2")
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.release("job")
    story.disturb("*", "freeze primary", seconds=3)
    story.run("job", "t2", "w2")
    story.note("w1", "error", kind="OwnershipLostError", text="lost", job="job", token="t")


SOUND: list[Telling] = [
    good_day,
    given_up_after_its_last_run,
    given_up_after_its_process_died,
    tried_again_late_for_it_was_written_late,
    handed_back_at_a_stop,
    lost_to_a_freeze,
    lost_by_a_process_that_died_of_its_troubles,
    lost_to_several_faults_together,
    left_behind_by_a_stop_in_an_outage,
    deleted_while_it_was_claimed,
    written_in_its_last_moment,
    unsure_in_an_outage,
    due_after_its_delay,
    due_at_its_time,
    handed_back_by_a_write_whose_reply_was_lost,
]
