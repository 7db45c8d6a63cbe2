"""Histories with invalid status changes, by the rule that must find them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.faults.lab.history_builder import HistoryBuilder, Scenario


def pending_to_failed(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.change("job", status="failed", failReason="no reason")


def pending_to_completed(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.change("job", status="completed")


def cancelled_without_a_call(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.change("job", status="cancelled")


def retried_without_a_call(history: HistoryBuilder) -> None:
    history.enqueue("job", maxRetries=1)
    history.claim("job", "t", "w1")
    history.begin("job", "t", "w1")
    history.end("job", "t", "w1", how="raised")
    history.give_up("job", "t", "w1", failures=1)
    history.change("job", status="pending", failCount=0)
    history.run("job", "t2", "w1")


def given_up_with_retries_left(history: HistoryBuilder) -> None:
    history.enqueue("job", maxRetries=3)
    history.claim("job", "t", "w1")
    history.begin("job", "t", "w1")
    history.end("job", "t", "w1", how="raised")
    history.give_up("job", "t", "w1", failures=1)


def given_up_at_first_interruption(history: HistoryBuilder) -> None:
    history.up("w2")
    history.enqueue("job", maxRetries=3)
    history.claim("job", "t", "w1")
    history.begin("job", "t", "w1")
    history.kill("w1")
    history.wait(3)
    history.adopt("job", "t2", "w2")
    history.give_up("job", "t2", "w2", failures=1)


def retried_without_backoff(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.claim("job", "t", "w1")
    history.begin("job", "t", "w1")
    history.end("job", "t", "w1", how="raised")
    history.fail("job", "t", "w1", failures=1, after=0)
    history.run("job", "t2", "w1")


def retried_after_too_long_a_backoff(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.claim("job", "t", "w1")
    history.begin("job", "t", "w1")
    history.end("job", "t", "w1", how="raised")
    history.fail("job", "t", "w1", failures=1, after=5)
    history.run("job", "t2", "w1")


INVALID: dict[str, list[Scenario]] = {
    "statuses_change_as_documented": [
        pending_to_failed,
        pending_to_completed,
        cancelled_without_a_call,
        retried_without_a_call,
    ],
    "no_job_is_given_up_early": [
        given_up_with_retries_left,
        given_up_at_first_interruption,
        pending_to_failed,
    ],
    "retries_wait_for_their_backoff": [retried_without_backoff, retried_after_too_long_a_backoff],
}
