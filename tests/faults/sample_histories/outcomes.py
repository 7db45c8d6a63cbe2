"""Histories with invalid outcomes or events, by the rule that must find them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.faults.lab.history_builder import HistoryBuilder, Scenario


def still_pending(history: HistoryBuilder) -> None:
    history.enqueue("job")


def still_claimed(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.claim("job", "t", "w1")
    history.begin("job", "t", "w1")


def completed_without_a_successful_run(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.claim("job", "t", "w1")
    history.begin("job", "t", "w1")
    history.complete("job", "t", "w1")
    history.end("job", "t", "w1", how="cancelled")


def queue_does_not_become_idle(history: HistoryBuilder) -> None:
    history.note("lab", "not idle", seconds=90)


def settled_after_losing_the_claim(history: HistoryBuilder) -> None:
    history.up("w2")
    history.enqueue("job")
    history.claim("job", "old", "w1")
    history.begin("job", "old", "w1")
    history.note("lab", "fault", kind="freeze", target="w1")
    history.wait(3)
    history.recover("job")
    history.claim("job", "new", "w2")
    history.begin("job", "new", "w2")
    history.end("job", "old", "w1")
    history.complete("job", "new", "w1")
    history.end("job", "new", "w2")


def settled_without_a_run(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.claim("job", "t", "w1")
    history.change("job", status="completed")


def completed_after_an_error(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.claim("job", "t", "w1")
    history.begin("job", "t", "w1")
    history.end("job", "t", "w1", how="raised")
    history.complete("job", "t", "w1")


def completed_by_recovery(history: HistoryBuilder) -> None:
    history.up("w2")
    history.enqueue("job", maxRetries=1)
    history.claim("job", "t", "w1")
    history.begin("job", "t", "w1")
    history.kill("w1")
    history.wait(3)
    history.adopt("job", "t2", "w2")
    history.complete("job", "t2", "w2")


def released_after_success(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.claim("job", "t", "w1")
    history.begin("job", "t", "w1")
    history.end("job", "t", "w1")
    history.change("job", status="pending", claims=0)
    history.run("job", "t2", "w1")


def released_without_a_stop(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.claim("job", "t", "w1")
    history.begin("job", "t", "w1")
    history.end("job", "t", "w1", how="cancelled")
    history.release("job")
    history.run("job", "t2", "w1")


def released_during_its_run(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.claim("job", "t", "w1")
    history.begin("job", "t", "w1")
    history.request_stop("w1")
    history.release("job")
    history.end("job", "t", "w1", how="cancelled")
    history.exit_cleanly("w1")
    history.up("w2")
    history.run("job", "t2", "w2")


def pending_after_success(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.claim("job", "t", "w1")
    history.begin("job", "t", "w1")
    history.end("job", "t", "w1")
    history.change("job", status="pending", claimedBy=None)
    history.note("w1", "completed", job="job", token="t", status="pending")
    history.run("job", "t2", "w1")


def run_after_completion(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.run("job", "t", "w1")
    history.begin("job", "t2", "w1")


def pending_after_completion(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.run("job", "t", "w1")
    history.change("job", status="pending")
    history.run("job", "t2", "w1")


def run_without_end(history: HistoryBuilder) -> None:
    history.enqueue("job", maxRetries=2)
    for number in range(5):
        history.claim("job", str(number), "w1")
        history.begin("job", str(number), "w1")
        history.end("job", str(number), "w1", how="raised")
        history.change("job", status="pending", failCount=number + 1)
    history.run("job", "last", "w1")


def published_but_not_written(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.run("job", "t", "w1")
    history.note("w1", "completed", job="job", token="another", status="completed")


def published_before_the_write(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.claim("job", "t", "w1")
    history.begin("job", "t", "w1")
    history.end("job", "t", "w1")
    history.note("w1", "completed", job="job", token="t", status="completed")
    history.wait(1)
    history.change("job", status="completed", claimedBy=None)


def written_but_not_published(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.claim("job", "t", "w1")
    history.begin("job", "t", "w1")
    history.end("job", "t", "w1")
    history.change("job", status="completed", claimedBy=None)


def written_but_not_published_on_a_slow_machine(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.claim("job", "t", "w1")
    history.begin("job", "t", "w1")
    history.end("job", "t", "w1")
    history.fault("w1", "starved", seconds=1)
    history.change("job", status="completed", claimedBy=None)
    history.fault("*", "slow database", seconds=1)


def published_twice(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.run("job", "t", "w1")
    history.note("w1", "completed", job="job", token="t", status="completed")


INVALID: dict[str, list[Scenario]] = {
    "due_jobs_have_run": [
        still_pending,
        still_claimed,
        completed_without_a_successful_run,
        queue_does_not_become_idle,
    ],
    "only_claim_owners_write_outcomes": [
        settled_after_losing_the_claim,
        settled_without_a_run,
        completed_after_an_error,
        completed_by_recovery,
        released_after_success,
        released_without_a_stop,
        released_during_its_run,
        pending_after_success,
    ],
    "completed_jobs_do_not_run_again": [
        run_after_completion,
        pending_after_completion,
    ],
    "no_job_runs_forever": [run_without_end],
    "published_outcomes_are_written": [published_but_not_written, published_before_the_write],
    "written_outcomes_are_published": [
        written_but_not_published,
        written_but_not_published_on_a_slow_machine,
        published_twice,
    ],
}
