"""Histories with unexpected errors or unclean stops, by the rule that must find them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.faults.lab.history_builder import HistoryBuilder, Scenario


def undocumented_error(history: HistoryBuilder) -> None:
    history.note("w1", "error", kind="AttributeError", text="'NoneType' object")


def error_logged_by_asyncio(history: HistoryBuilder) -> None:
    history.note("w1", "logged error", text="Task exception was never retrieved")


def connection_error_without_an_outage(history: HistoryBuilder) -> None:
    history.note("w1", "error", kind="MonqueConnectionError", text="away", job=None, token=None)


def call_failed_without_an_outage(history: HistoryBuilder) -> None:
    history.invoke("1", "enqueue", "job")
    history.note("producer", "indeterminate", op="1", kind="MonqueConnectionError", text="away")


def lost_claim_reported_but_not_taken(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.run("job", "t", "w1")
    history.note("w1", "error", kind="OwnershipLostError", text="lost", job="job", token="t")


def lost_claim_reported_but_released(history: HistoryBuilder) -> None:
    history.up("w2")
    history.enqueue("job")
    history.claim("job", "t", "w1")
    history.release("job")
    history.run("job", "t2", "w2")
    history.note("w1", "error", kind="OwnershipLostError", text="lost", job="job", token="t")


def shutdown_timeout_without_a_stop(history: HistoryBuilder) -> None:
    history.note("w1", "error", kind="ShutdownTimeoutError", text="late", job=None, token=None)


def claim_left_at_a_clean_stop(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.claim("job", "t", "w1")
    history.note("lab", "fault", kind="stop", target="w1")
    history.note("lab", "exited", process="w1", code=0, allowed=[0])
    history.up("w2")
    history.wait(4)
    history.recover("job")
    history.run("job", "t2", "w2")


def claim_left_long_after_a_fault(history: HistoryBuilder) -> None:
    history.fault("*", "kill primary", seconds=2)
    history.note("w1", "error", kind="MonqueConnectionError", text="away", job=None, token=None)
    history.wait(8)
    claim_left_at_a_clean_stop(history)


def process_does_not_stop(history: HistoryBuilder) -> None:
    history.note("lab", "exited", process="w1", late=30, code=None, allowed=[None])


def process_crashes(history: HistoryBuilder) -> None:
    history.note("lab", "exited", process="w1", code=1, allowed=[0])


def process_leaves_tasks(history: HistoryBuilder) -> None:
    history.note("w1", "down", tasks=["monque-stream"], threads=[])


def process_leaves_threads(history: HistoryBuilder) -> None:
    history.note("w1", "down", tasks=[], threads=["monque-mongo-1"])


INVALID: dict[str, list[Scenario]] = {
    "only_expected_errors_are_reported": [
        undocumented_error,
        error_logged_by_asyncio,
        connection_error_without_an_outage,
        call_failed_without_an_outage,
        lost_claim_reported_but_not_taken,
        lost_claim_reported_but_released,
        shutdown_timeout_without_a_stop,
    ],
    "clean_stops_leave_no_claims": [
        claim_left_at_a_clean_stop,
        claim_left_long_after_a_fault,
    ],
    "processes_stop_in_time": [
        process_does_not_stop,
        process_crashes,
        process_leaves_tasks,
        process_leaves_threads,
    ],
}
