"""Histories with errors in storing and managing jobs, by the rule that must find them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.faults.lab.history_builder import HistoryBuilder, Scenario


def never_stored(history: HistoryBuilder) -> None:
    history.note("producer", "invoked", op="1", action="enqueue", name="work")
    history.note("producer", "succeeded", op="1", jobs=["lost"])


def deleted_without_a_call(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.delete("job")


def deleted_before_its_retention(history: HistoryBuilder) -> None:
    history.retention = {"completed": 60}
    history.enqueue("job")
    history.run("job", "t", "w1")
    history.wait(30)
    history.delete("job")


def stored_twice(history: HistoryBuilder) -> None:
    for job in ("one", "two"):
        history.store(job, data={"op": "1", "i": 0})
        history.run(job, job, "w1")


def due_before_its_delay(history: HistoryBuilder) -> None:
    history.note("producer", "invoked", op="1", action="enqueue", name="work", delay=2)
    history.store("job", nextRunAt=history.time(), data={"op": "1"})
    history.note("producer", "succeeded", op="1", jobs=["job"])
    history.run("job", "t", "w1")


def due_long_after_its_delay(history: HistoryBuilder) -> None:
    history.note("producer", "invoked", op="1", action="enqueue", name="work", delay=2)
    history.store("job", nextRunAt=history.time(7), data={"op": "1"})
    history.note("producer", "succeeded", op="1", jobs=["job"])
    history.wait(7)
    history.run("job", "t", "w1")


def not_due_at_its_run_at(history: HistoryBuilder) -> None:
    at = history.time(5).timestamp()
    history.note("producer", "invoked", op="1", action="enqueue", name="work", run_at=at)
    history.store("job", nextRunAt=history.time(), data={"op": "1"})
    history.note("producer", "succeeded", op="1", jobs=["job"])
    history.run("job", "t", "w1")


def unique_key_active_twice(history: HistoryBuilder) -> None:
    history.enqueue("one", uniqueKey="k")
    history.enqueue("two", uniqueKey="k")
    history.run("one", "t1", "w1")
    history.run("two", "t2", "w1")


def deduplicated_to_a_completed_job(history: HistoryBuilder) -> None:
    history.enqueue("job", uniqueKey="k")
    history.run("job", "t", "w1")
    history.wait(1)
    history.note("producer", "invoked", op="again", action="enqueue", name="work")
    history.note("producer", "succeeded", op="again", jobs=["job"], deduplicated=True)


def claimed_after_cancellation(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.note("producer", "invoked", op="c", action="cancel", job="job")
    history.change("job", status="cancelled")
    history.note("producer", "succeeded", op="c", jobs=["job"])
    history.change("job", status="pending")
    history.run("job", "t", "w1")


def stored_again_after_deletion(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.note("producer", "invoked", op="d", action="delete", job="job")
    history.delete("job")
    history.note("producer", "succeeded", op="d", jobs=[])
    history.store("job", data={})
    history.run("job", "t", "w1")


def run_after_deletion(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.invoke("d", "delete", "job")
    history.delete("job")
    history.note("producer", "succeeded", op="d", jobs=[])
    history.wait(1)
    history.begin("job", "t", "w1")
    history.end("job", "t", "w1")


def foreign_document_runs(history: HistoryBuilder) -> None:
    history.store("foreign", garbage=True)
    history.run("foreign", "t", "w1")


def foreign_document_is_written_repeatedly(history: HistoryBuilder) -> None:
    history.store("foreign", garbage=True)
    for number in range(5):
        history.change("foreign", claims=number)


def foreign_document_is_not_quarantined(history: HistoryBuilder) -> None:
    history.store("foreign", garbage=True, unreadable=True)


INVALID: dict[str, list[Scenario]] = {
    "acknowledged_jobs_are_stored": [
        never_stored,
        deleted_without_a_call,
        deleted_before_its_retention,
    ],
    "each_call_stores_its_jobs_once": [stored_twice],
    "jobs_are_due_when_requested": [
        due_before_its_delay,
        due_long_after_its_delay,
        not_due_at_its_run_at,
    ],
    "unique_keys_are_active_once": [unique_key_active_twice],
    "deduplicated_jobs_were_active": [deduplicated_to_a_completed_job],
    "operator_actions_take_effect": [
        claimed_after_cancellation,
        stored_again_after_deletion,
        run_after_deletion,
    ],
    "foreign_documents_are_quarantined_once": [
        foreign_document_runs,
        foreign_document_is_written_repeatedly,
        foreign_document_is_not_quarantined,
    ],
}
