"""The checker of the campaigns: it believes a good story, and finds every flaw in a bad one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.faults.lab.checker import RULES, check
from tests.faults.lab.story import Story

Telling = Callable[[Story], None]


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
    story.change("fails once", status="pending", failCount=1, failReason="x")
    story.run("fails once", "t3", "a2")

    story.enqueue("interrupted")
    story.claim("interrupted", "t4", "a1")
    story.begin("interrupted", "t4", "a1")
    story.note("lab", "fault", kind="kill", target="a1", for_ever=True)
    story.note("lab", "gone", process="a1", code=-9, allowed=[0, -9])
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
    story.change("handed back", status="pending", claims=0, claimedBy=None)
    story.run("handed back", "t9", "a2")

    story.enqueue("spent", maxRetries=1)
    story.claim("spent", "t10", "a2")
    story.begin("spent", "t10", "a2")
    story.note("a2", "fault", kind="poison", for_ever=True)
    story.note("lab", "gone", process="a2", code=-9, allowed=[0, -9])
    story.up("a3")
    story.wait(3)
    story.change("spent", claimToken="t11", claimedBy="instance of a3", lastHeartbeat=story.time())
    story.change("spent", status="failed", claimedBy=None, failReason="died")
    story.note("a3", "failed", job="spent", token="t11", status="failed")

    story.store("foreign", garbage=True, unreadable=True)
    story.change("foreign", status="failed")
    story.enqueue("cancelled")
    story.note("producer", "asks", op="c", action="cancel", job="cancelled")
    story.change("cancelled", status="cancelled")
    story.note("producer", "told", op="c", jobs=["cancelled"])
    story.enqueue("deleted")
    story.note("producer", "asks", op="d", action="delete", job="deleted")
    story.delete("deleted")
    story.note("producer", "told", op="d", jobs=[])
    story.note("a3", "down", tasks=[], threads=["monque-job-1"])
    story.note("lab", "gone", process="a3", code=0, allowed=[0])


def never_stored(story: Story) -> None:
    story.note("producer", "asks", op="1", action="enqueue", name="work")
    story.note("producer", "told", op="1", jobs=["lost"])


def deleted_by_nobody(story: Story) -> None:
    story.enqueue("job")
    story.delete("job")


def deleted_too_early(story: Story) -> None:
    story.retention = {"completed": 60}
    story.enqueue("job")
    story.run("job", "t", "w1")
    story.wait(30)
    story.delete("job")


def stored_twice(story: Story) -> None:
    for job in ("one", "two"):
        story.store(job, data={"op": "1", "i": 0})
        story.run(job, job, "w1")


def still_waiting(story: Story) -> None:
    story.enqueue("job")


def still_claimed(story: Story) -> None:
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.begin("job", "t", "w1")


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


def handed_back_though_done(story: Story) -> None:
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.begin("job", "t", "w1")
    story.end("job", "t", "w1")
    story.change("job", status="pending", claims=0)
    story.run("job", "t2", "w1")


def announced_and_not_written(story: Story) -> None:
    story.enqueue("job")
    story.run("job", "t", "w1")
    story.note("w1", "completed", job="job", token="another", status="completed")


def run_without_a_claim(story: Story) -> None:
    story.enqueue("job")
    story.begin("job", "t", "w1")
    story.end("job", "t", "w1")
    story.run("job", "t2", "w1")


def run_twice_under_one_claim(story: Story) -> None:
    story.enqueue("job")
    story.claim("job", "t", "w1")
    for _ in range(2):
        story.begin("job", "t", "w1")
        story.end("job", "t", "w1")
    story.complete("job", "t", "w1")


def run_by_another(story: Story) -> None:
    story.up("w2")
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.begin("job", "t", "w2")
    story.end("job", "t", "w2")
    story.complete("job", "t", "w2")


def run_before_its_claim(story: Story) -> None:
    story.enqueue("job")
    story.begin("job", "t", "w1")
    story.claim("job", "t", "w1")
    story.end("job", "t", "w1")
    story.complete("job", "t", "w1")


def claimed_early(story: Story) -> None:
    story.enqueue("job", nextRunAt=story.time(10))
    story.run("job", "t", "w1")
    story.wait(20)


def taken_over_too_soon(story: Story) -> None:
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.note("lab", "fault", kind="freeze", target="w1")
    story.revive("job")
    story.run("job", "t2", "w1")


def claimed_while_claimed(story: Story) -> None:
    story.up("w2")
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.note("lab", "fault", kind="freeze", target="w1")
    story.run("job", "t2", "w2")


def lost_for_no_reason(story: Story) -> None:
    story.up("w2")
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.note("lab", "fault", kind="kill", target="w2", for_ever=True)
    story.wait(4)
    story.revive("job")
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


def one_key_twice(story: Story) -> None:
    story.enqueue("one", uniqueKey="k")
    story.enqueue("two", uniqueKey="k")
    story.run("one", "t1", "w1")
    story.run("two", "t2", "w1")


def given_a_job_that_was_over(story: Story) -> None:
    story.enqueue("job", uniqueKey="k")
    story.run("job", "t", "w1")
    story.wait(1)
    story.note("producer", "asks", op="again", action="enqueue", name="work")
    story.note("producer", "told", op="again", jobs=["job"], deduplicated=True)


def three_where_two_may(story: Story) -> None:
    for job in ("one", "two", "three"):
        story.enqueue(job)
        story.claim(job, job, "w1")
        story.begin(job, job, "w1")
    for job in ("one", "two", "three"):
        story.end(job, job, "w1")
        story.complete(job, job, "w1")


def more_than_the_instance_may(story: Story) -> None:
    story.up("narrow", instance_limit=1)
    for job, name in (("one", "work"), ("two", "more")):
        story.enqueue(job, name=name)
        story.claim(job, job, "narrow")
        story.begin(job, job, "narrow", name=name)
    for job in ("one", "two"):
        story.end(job, job, "narrow")
        story.complete(job, job, "narrow")


def for_ever(story: Story) -> None:
    story.enqueue("job", maxRetries=2)
    for number in range(5):
        story.claim("job", str(number), "w1")
        story.begin("job", str(number), "w1")
        story.end("job", str(number), "w1", how="raised")
        story.change("job", status="pending", failCount=number + 1)
    story.run("job", "last", "w1")


def claimed_though_cancelled(story: Story) -> None:
    story.enqueue("job")
    story.note("producer", "asks", op="c", action="cancel", job="job")
    story.change("job", status="cancelled")
    story.note("producer", "told", op="c", jobs=["job"])
    story.change("job", status="pending")
    story.run("job", "t", "w1")


def back_from_the_dead(story: Story) -> None:
    story.enqueue("job")
    story.note("producer", "asks", op="d", action="delete", job="job")
    story.delete("job")
    story.note("producer", "told", op="d", jobs=[])
    story.store("job", data={})
    story.run("job", "t", "w1")


def garbage_that_runs(story: Story) -> None:
    story.store("foreign", garbage=True)
    story.run("foreign", "t", "w1")


def garbage_that_is_met_again_and_again(story: Story) -> None:
    story.store("foreign", garbage=True)
    for number in range(5):
        story.change("foreign", claims=number)


def garbage_that_stays(story: Story) -> None:
    story.store("foreign", garbage=True, unreadable=True)


def an_error_nobody_has_heard_of(story: Story) -> None:
    story.note("w1", "error", kind="AttributeError", text="'NoneType' object")


def a_complaint_of_asyncio(story: Story) -> None:
    story.note("w1", "complaint", text="Task exception was never retrieved")


def a_claim_forgotten_at_stop(story: Story) -> None:
    story.enqueue("job")
    story.claim("job", "t", "w1")
    story.note("lab", "fault", kind="stop", target="w1", for_ever=True)
    story.note("lab", "gone", process="w1", code=0, allowed=[0])
    story.up("w2")
    story.wait(4)
    story.revive("job")
    story.run("job", "t2", "w2")


def a_process_that_does_not_stop(story: Story) -> None:
    story.note("lab", "gone", process="w1", late=30, code=None, allowed=[None])


def a_process_that_crashes(story: Story) -> None:
    story.note("lab", "gone", process="w1", code=1, allowed=[0])


def a_process_that_leaves_tasks(story: Story) -> None:
    story.note("w1", "down", tasks=["monque-stream"], threads=[])


def a_process_that_leaves_threads(story: Story) -> None:
    story.note("w1", "down", tasks=[], threads=["monque-mongo-1"])


FLAWS: dict[str, list[Telling]] = {
    "what_was_acknowledged_is_stored": [never_stored, deleted_by_nobody, deleted_too_early],
    "an_operation_stores_its_jobs_once": [stored_twice],
    "everything_due_has_run": [still_waiting, still_claimed],
    "outcomes_are_those_of_the_run_that_owns_the_claim": [
        settled_by_a_run_that_lost_its_claim,
        settled_by_nobody,
        settled_as_what_it_was_not,
        handed_back_though_done,
    ],
    "what_is_announced_is_written": [announced_and_not_written],
    "every_run_has_a_claim_of_its_own": [
        run_without_a_claim,
        run_twice_under_one_claim,
        run_by_another,
        run_before_its_claim,
    ],
    "nothing_is_claimed_early": [claimed_early],
    "only_silent_claims_are_taken_over": [taken_over_too_soon, claimed_while_claimed],
    "a_lost_claim_is_explained_by_a_fault": [lost_for_no_reason],
    "a_run_that_is_over_is_not_repeated": [
        run_after_it_had_completed,
        alive_again_after_it_had_completed,
    ],
    "unique_keys_are_active_once": [one_key_twice],
    "a_deduplicated_job_was_there": [given_a_job_that_was_over],
    "limits_hold": [three_where_two_may, more_than_the_instance_may],
    "no_job_runs_for_ever": [for_ever],
    "an_operator_s_word_holds": [claimed_though_cancelled, back_from_the_dead],
    "foreign_documents_are_set_aside_once": [
        garbage_that_runs,
        garbage_that_is_met_again_and_again,
        garbage_that_stays,
    ],
    "nothing_unexpected_is_reported": [an_error_nobody_has_heard_of, a_complaint_of_asyncio],
    "a_clean_stop_leaves_no_claims": [a_claim_forgotten_at_stop],
    "processes_end_as_told": [
        a_process_that_does_not_stop,
        a_process_that_crashes,
        a_process_that_leaves_tasks,
        a_process_that_leaves_threads,
    ],
}


def test_a_history_in_which_everything_is_explained_breaks_no_promise() -> None:
    story = Story()
    good_day(story)
    assert not check(story.history())


@pytest.mark.parametrize(
    ("rule", "telling"),
    [(rule, telling) for rule, tellings in FLAWS.items() for telling in tellings],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_flaw_is_found_by_its_rule(rule: str, telling: Telling) -> None:
    story = Story()
    good_day(story)
    story.wait(60)
    story.up("w1")
    telling(story)
    assert rule in {violation.rule for violation in check(story.history())}


def test_every_rule_has_a_story_that_breaks_it() -> None:
    assert set(FLAWS) == {rule.__name__ for rule in RULES}
