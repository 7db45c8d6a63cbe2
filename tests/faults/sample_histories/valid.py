"""Valid histories: unusual events, each with its cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.faults.lab.history_builder import HistoryBuilder, Scenario


def a_normal_day(history: HistoryBuilder) -> None:
    """A history with everything that may normally happen."""
    history.up("a1")
    history.up("a2")
    history.enqueue("plain")
    history.run("plain", "t1", "a1")

    history.enqueue("fails once")
    history.claim("fails once", "t2", "a1")
    history.begin("fails once", "t2", "a1")
    history.end("fails once", "t2", "a1", how="raised")
    history.fail("fails once", "t2", "a1", failures=1, after=0.2)
    history.run("fails once", "t3", "a2")

    history.enqueue("interrupted")
    history.claim("interrupted", "t4", "a1")
    history.begin("interrupted", "t4", "a1")
    history.kill("a1")
    history.wait(3)
    history.recover("interrupted")
    history.run("interrupted", "t5", "a2")

    history.enqueue("keyed", uniqueKey="k")
    history.note("producer", "invoked", op="again", action="enqueue", name="work")
    history.note("producer", "succeeded", op="again", jobs=["keyed"], deduplicated=True)
    history.run("keyed", "t6", "a2")
    history.enqueue("keyed anew", uniqueKey="k")
    history.run("keyed anew", "t7", "a2")

    history.enqueue("handed back")
    history.claim("handed back", "t8", "a2")
    history.release("handed back")
    history.run("handed back", "t9", "a2")

    history.store("foreign", garbage=True, unreadable=True)
    history.change("foreign", status="failed")
    history.note("a2", "error", kind="InvalidJobError", text="no job", job=None, token=None)
    history.enqueue("cancelled")
    history.invoke("c", "cancel", "cancelled")
    history.change("cancelled", status="cancelled")
    history.note("producer", "succeeded", op="c", jobs=["cancelled"])
    history.enqueue("deleted")
    history.invoke("d", "delete", "deleted")
    history.delete("deleted")
    history.note("producer", "succeeded", op="d", jobs=[])
    history.request_stop("a2")
    history.exit_cleanly("a2")


def given_up_after_its_last_run(history: HistoryBuilder) -> None:
    history.enqueue("job", maxRetries=2)
    for failures in (1, 2):
        token = f"t{failures}"
        history.claim("job", token, "w1")
        history.begin("job", token, "w1")
        history.end("job", token, "w1", how="raised")
        if failures == 1:
            history.fail("job", token, "w1", failures=1, after=0.2)
        else:
            history.give_up("job", token, "w1", failures=2)
    history.invoke("r", "retry", "job")
    history.change("job", status="pending", failCount=0, claims=None, claimToken=None)
    history.note("producer", "succeeded", op="r", jobs=["job"])
    history.run("job", "t3", "w1")


def given_up_after_its_process_died(history: HistoryBuilder) -> None:
    history.enqueue("job", maxRetries=1)
    history.claim("job", "t", "w1")
    history.begin("job", "t", "w1")
    history.note("w1", "fault", kind="poison", run_without_end=True)
    history.note("lab", "exited", process="w1", code=-9, allowed=[0, -9])
    history.up("w2")
    history.wait(3)
    history.adopt("job", "t2", "w2")
    history.give_up("job", "t2", "w2", failures=1)


def retried_late_after_a_late_write(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.claim("job", "t", "w1")
    history.begin("job", "t", "w1")
    history.end("job", "t", "w1", how="raised")
    due = history.time(0.2)
    history.fault("*", "all down", seconds=2)
    history.change("job", status="pending", failCount=1, nextRunAt=due, claimedBy=None)
    history.note("w1", "failed", job="job", token="t", status="pending")
    history.run("job", "t2", "w1")


def released_at_a_stop(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.claim("job", "t", "w1")
    history.begin("job", "t", "w1")
    history.request_stop("w1")
    history.wait(3)
    history.note("w1", "error", kind="ShutdownTimeoutError", text="late", job=None, token=None)
    history.end("job", "t", "w1", how="cancelled")
    history.release("job")
    history.exit_cleanly("w1")
    history.up("w2")
    history.run("job", "t2", "w2")


def lost_to_a_freeze(history: HistoryBuilder) -> None:
    history.up("w2")
    history.enqueue("job")
    history.claim("job", "t", "w1")
    history.begin("job", "t", "w1")
    history.wait(0.9)
    history.fault("w1", "freeze", seconds=2.3)
    history.recover("job")
    history.run("job", "t2", "w2")
    history.note("w1", "error", kind="OwnershipLostError", text="lost", job="job", token="t")
    history.end("job", "t", "w1", how="cancelled")


def lost_by_a_silent_process_that_died(history: HistoryBuilder) -> None:
    history.up("w2")
    history.enqueue("job")
    history.claim("job", "t", "w1")
    history.wait(2.5)
    history.kill("w1")
    history.wait(1)
    history.recover("job")
    history.run("job", "t2", "w2")


def lost_to_several_faults(history: HistoryBuilder) -> None:
    history.up("w2")
    history.enqueue("job")
    history.claim("job", "t", "w1")
    history.fault("w1", "starved", seconds=1)
    history.fault("w1", "starved", seconds=1)
    history.wait(1)
    history.recover("job")
    history.run("job", "t2", "w2")


def claim_left_by_a_stop_during_an_outage(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.claim("job", "t", "w1")
    history.request_stop("w1")
    history.fault("*", "all down", seconds=8)
    history.note("w1", "error", kind="MonqueConnectionError", text="away", job=None, token=None)
    history.exit_cleanly("w1")
    history.up("w2")
    history.wait(4)
    history.recover("job")
    history.run("job", "t2", "w2")


def deleted_while_claimed(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.claim("job", "t", "w1")
    history.invoke("d", "delete", "job")
    history.delete("job")
    history.note("producer", "succeeded", op="d", jobs=[])
    history.begin("job", "t", "w1")
    history.note("w1", "error", kind="OwnershipLostError", text="lost", job="job", token="t")
    history.end("job", "t", "w1", how="cancelled")


def settled_just_before_a_kill(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.claim("job", "t", "w1")
    history.begin("job", "t", "w1")
    history.end("job", "t", "w1")
    history.change("job", status="completed", claimedBy=None)
    history.kill("w1")


def indeterminate_call_during_an_outage(history: HistoryBuilder) -> None:
    history.invoke("1", "enqueue", "job")
    history.fault("*", "kill primary", seconds=3)
    history.note("producer", "indeterminate", op="1", kind="MonqueConnectionError", text="away")


def due_after_its_delay(history: HistoryBuilder) -> None:
    history.note("producer", "invoked", op="1", action="enqueue", name="work", delay=2)
    history.store("job", nextRunAt=history.time(2), data={"op": "1"})
    history.note("producer", "succeeded", op="1", jobs=["job"])
    history.wait(2)
    history.run("job", "t", "w1")


def due_at_its_run_at(history: HistoryBuilder) -> None:
    at = history.time(2)
    history.note(
        "producer", "invoked", op="1", action="enqueue", name="work", delay=0, run_at=at.timestamp()
    )
    history.store("job", nextRunAt=at, data={"op": "1"})
    history.note("producer", "succeeded", op="1", jobs=["job"])
    history.wait(2)
    history.run("job", "t", "w1")


def release_with_a_lost_reply(history: HistoryBuilder) -> None:
    history.up("w2")
    history.enqueue("job")
    history.claim("job", "t", "w1")
    history.release("job")
    history.fault("*", "freeze primary", seconds=3)
    history.run("job", "t2", "w2")
    history.note("w1", "error", kind="OwnershipLostError", text="lost", job="job", token="t")


VALID: list[Scenario] = [
    a_normal_day,
    given_up_after_its_last_run,
    given_up_after_its_process_died,
    retried_late_after_a_late_write,
    released_at_a_stop,
    lost_to_a_freeze,
    lost_by_a_silent_process_that_died,
    lost_to_several_faults,
    claim_left_by_a_stop_during_an_outage,
    deleted_while_claimed,
    settled_just_before_a_kill,
    indeterminate_call_during_an_outage,
    due_after_its_delay,
    due_at_its_run_at,
    release_with_a_lost_reply,
]
