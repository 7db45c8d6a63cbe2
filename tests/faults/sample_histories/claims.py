"""Histories with invalid claims or runs, by the rule that must find them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.faults.lab.history_builder import HistoryBuilder, Scenario


def run_without_a_claim(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.begin("job", "t", "w1")
    history.end("job", "t", "w1")
    history.run("job", "t2", "w1")


def run_twice_under_one_claim(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.claim("job", "t", "w1")
    for _ in range(2):
        history.begin("job", "t", "w1")
        history.end("job", "t", "w1")
    history.complete("job", "t", "w1")


def run_by_another_instance(history: HistoryBuilder) -> None:
    history.up("w2")
    history.enqueue("job")
    history.claim("job", "t", "w1")
    history.begin("job", "t", "w2")
    history.end("job", "t", "w2")
    history.complete("job", "t", "w2")


def run_before_its_claim(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.begin("job", "t", "w1")
    history.claim("job", "t", "w1")
    history.end("job", "t", "w1")
    history.complete("job", "t", "w1")


def claimed_early(history: HistoryBuilder) -> None:
    history.enqueue("job", nextRunAt=history.time(10))
    history.run("job", "t", "w1")
    history.wait(20)


def taken_over_too_soon(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.claim("job", "t", "w1")
    history.note("lab", "fault", kind="freeze", target="w1")
    history.recover("job")
    history.run("job", "t2", "w1")


def claimed_twice(history: HistoryBuilder) -> None:
    history.up("w2")
    history.enqueue("job")
    history.claim("job", "t", "w1")
    history.note("lab", "fault", kind="freeze", target="w1")
    history.run("job", "t2", "w2")


def lost_without_a_fault(history: HistoryBuilder) -> None:
    history.up("w2")
    history.enqueue("job")
    history.claim("job", "t", "w1")
    history.note("lab", "fault", kind="kill", target="w2", run_without_end=True)
    history.wait(4)
    history.recover("job")
    history.run("job", "t2", "w1")


def lost_to_a_short_fault(history: HistoryBuilder) -> None:
    history.up("w2")
    history.enqueue("job")
    history.claim("job", "t", "w1")
    history.fault("w1", "starved", seconds=0.3)
    history.wait(3)
    history.recover("job")
    history.run("job", "t2", "w2")


def lost_to_an_earlier_fault(history: HistoryBuilder) -> None:
    history.up("w2")
    history.fault("w1", "freeze", seconds=5)
    history.wait(3)
    history.enqueue("job")
    history.claim("job", "t", "w1")
    history.wait(4)
    history.recover("job")
    history.run("job", "t2", "w2")


def lost_to_a_clean_stop(history: HistoryBuilder) -> None:
    history.up("w2")
    history.enqueue("job")
    history.claim("job", "t", "w1")
    history.request_stop("w1")
    history.exit_cleanly("w1")
    history.wait(4)
    history.recover("job")
    history.run("job", "t2", "w2")


def worker_limit_exceeded(history: HistoryBuilder) -> None:
    for job in ("one", "two", "three"):
        history.enqueue(job)
        history.claim(job, job, "w1")
        history.begin(job, job, "w1")
    for job in ("one", "two", "three"):
        history.end(job, job, "w1")
        history.complete(job, job, "w1")


def instance_limit_exceeded(history: HistoryBuilder) -> None:
    history.up("narrow", instance_limit=1)
    for job, name in (("one", "work"), ("two", "more")):
        history.enqueue(job, name=name)
        history.claim(job, job, "narrow")
        history.begin(job, job, "narrow", name=name)
    for job in ("one", "two"):
        history.end(job, job, "narrow")
        history.complete(job, job, "narrow")


INVALID: dict[str, list[Scenario]] = {
    "every_run_has_its_own_claim": [
        run_without_a_claim,
        run_twice_under_one_claim,
        run_by_another_instance,
        run_before_its_claim,
    ],
    "no_job_is_claimed_early": [claimed_early],
    "only_silent_claims_are_taken_over": [taken_over_too_soon, claimed_twice],
    "lost_claims_are_explained_by_faults": [
        lost_without_a_fault,
        lost_to_a_short_fault,
        lost_to_an_earlier_fault,
        lost_to_a_clean_stop,
    ],
    "concurrency_limits_hold": [worker_limit_exceeded, instance_limit_exceeded],
}
