"""The rules of single experiments: each accepts one history and rejects another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults.lab.checker import check
from tests.faults.lab.history_builder import HistoryBuilder
from tests.faults.lab.rules.experiments import (
    all_jobs_complete,
    every_call_is_answered,
    every_fault_is_injected,
    jobs_are_taken_over,
    lost_listeners_are_replaced,
    no_claim_is_lost,
    no_outage_is_reported,
    processes_are_stopped,
)

if TYPE_CHECKING:
    from tests.faults.lab.checker import Rule
    from tests.faults.lab.history_builder import Scenario


def one_job(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.run("job", "t", "w1")


def one_job_twice(history: HistoryBuilder) -> None:
    history.enqueue("job")
    history.claim("job", "t", "w1")
    history.begin("job", "t", "w1")
    history.end("job", "t", "w1", how="raised")
    history.fail("job", "t", "w1", failures=1, after=0.2)
    history.run("job", "t2", "w1")


def one_job_given_up(history: HistoryBuilder) -> None:
    history.enqueue("job", maxRetries=1)
    history.claim("job", "t", "w1")
    history.begin("job", "t", "w1")
    history.end("job", "t", "w1", how="raised")
    history.give_up("job", "t", "w1", failures=1)


def call_without_an_answer(history: HistoryBuilder) -> None:
    history.invoke("1", "enqueue", "job")


def outage_report(history: HistoryBuilder) -> None:
    history.fault("w1", "starved", seconds=1)
    history.note("w1", "error", kind="MonqueConnectionError", text="away", job=None, token=None)


def lost_to(kind: str) -> Scenario:
    def lost(history: HistoryBuilder) -> None:
        history.up("w2")
        history.enqueue("job")
        history.claim("job", "t", "w1")
        history.fault("w1", kind, seconds=4)
        history.recover("job")
        history.run("job", "t2", "w2")

    return lost


def stopped_during(kind: str) -> Scenario:
    def stopped(history: HistoryBuilder) -> None:
        history.fault("w1", "cut", seconds=1)
        history.note("lab", "fault", kind="stop", target="w1", during=kind)
        history.exit_cleanly("w1")

    return stopped


def trial(started_by: str, *, seconds: float, stalled: float = 0) -> Scenario:
    def stored_for_a_faulty_listener(history: HistoryBuilder) -> None:
        history.up("w2")
        history.fault("w1", "freeze", seconds=1)
        history.enqueue("job")
        history.note("lab", "trial", kind="freeze", job="job", affected=["w1"], first="w1")
        history.wait(seconds - stalled)
        if stalled:
            history.fault("w2", "starved", seconds=stalled)
        history.run("job", "t", started_by)

    return stored_for_a_faulty_listener


def trial_without_a_run(history: HistoryBuilder) -> None:
    history.enqueue("job", nextRunAt=history.time(1000))
    history.note("lab", "trial", kind="freeze", job="job", affected=["w1"], first="w1")


def seats_of_the_dead(history: HistoryBuilder) -> None:
    history.note("lab", "seats not taken", seconds=60)


def no_work(history: HistoryBuilder) -> None:
    history.request_stop("w1")
    history.exit_cleanly("w1")


@pytest.mark.parametrize(
    ("rule", "accepted", "rejected"),
    [
        (every_call_is_answered, one_job, call_without_an_answer),
        (no_outage_is_reported, one_job, outage_report),
        (no_claim_is_lost, lost_to("starved"), lost_to("freeze")),
        (all_jobs_complete(1), one_job, no_work),
        (all_jobs_complete(1), lost_to("freeze"), one_job_twice),
        (all_jobs_complete(1), one_job, one_job_given_up),
        (every_fault_is_injected(["cut"]), stopped_during("cut"), no_work),
        (every_fault_is_injected(["cut"]), stopped_during("cut"), stopped_during("")),
        (processes_are_stopped(1), no_work, one_job),
        (jobs_are_taken_over(5), trial("w2", seconds=0.1), trial("w2", seconds=6)),
        (jobs_are_taken_over(5), trial("w2", seconds=6, stalled=2), trial("w1", seconds=0.1)),
        (lost_listeners_are_replaced, one_job, seats_of_the_dead),
    ],
)
def test_a_rule_accepts_or_rejects_a_history(
    rule: Rule, accepted: Scenario, rejected: Scenario
) -> None:
    for scenario, is_accepted in ((accepted, True), (rejected, False)):
        history = HistoryBuilder()
        history.up("w1")
        scenario(history)
        broken = {violation.rule for violation in check(history.build(), rule)}
        assert broken == (set() if is_accepted else {rule.__name__}), scenario.__name__


def test_a_trial_whose_job_never_runs_is_a_violation() -> None:
    history = HistoryBuilder()
    history.up("w1")
    trial_without_a_run(history)
    rule = jobs_are_taken_over(5)
    assert {violation.rule for violation in check(history.build(), rule)} >= {rule.__name__}
