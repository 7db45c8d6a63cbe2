"""Stories with a flaw in what is stored and managed, by the rule that must find it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.faults.lab.story import Story, Telling


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


def due_before_it_was_asked_for(story: Story) -> None:
    story.note("producer", "asks", op="1", action="enqueue", name="work", delay=2)
    story.store("job", nextRunAt=story.time(), data={"op": "1"})
    story.note("producer", "told", op="1", jobs=["job"])
    story.run("job", "t", "w1")


def due_much_later_than_asked_for(story: Story) -> None:
    story.note("producer", "asks", op="1", action="enqueue", name="work", delay=2)
    story.store("job", nextRunAt=story.time(7), data={"op": "1"})
    story.note("producer", "told", op="1", jobs=["job"])
    story.wait(7)
    story.run("job", "t", "w1")


def due_at_another_time_than_asked_for(story: Story) -> None:
    at = story.time(5).timestamp()
    story.note("producer", "asks", op="1", action="enqueue", name="work", run_at=at)
    story.store("job", nextRunAt=story.time(), data={"op": "1"})
    story.note("producer", "told", op="1", jobs=["job"])
    story.run("job", "t", "w1")


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


def run_though_deleted(story: Story) -> None:
    story.enqueue("job")
    story.ask("d", "delete", "job")
    story.delete("job")
    story.note("producer", "told", op="d", jobs=[])
    story.wait(1)
    story.begin("job", "t", "w1")
    story.end("job", "t", "w1")


def garbage_that_runs(story: Story) -> None:
    story.store("foreign", garbage=True)
    story.run("foreign", "t", "w1")


def garbage_that_is_met_again_and_again(story: Story) -> None:
    story.store("foreign", garbage=True)
    for number in range(5):
        story.change("foreign", claims=number)


def garbage_that_stays(story: Story) -> None:
    story.store("foreign", garbage=True, unreadable=True)


FLAWS: dict[str, list[Telling]] = {
    "what_was_acknowledged_is_stored": [never_stored, deleted_by_nobody, deleted_too_early],
    "an_operation_stores_its_jobs_once": [stored_twice],
    "jobs_are_due_when_asked_for": [
        due_before_it_was_asked_for,
        due_much_later_than_asked_for,
        due_at_another_time_than_asked_for,
    ],
    "unique_keys_are_active_once": [one_key_twice],
    "a_deduplicated_job_was_there": [given_a_job_that_was_over],
    "an_operator_s_word_holds": [claimed_though_cancelled, back_from_the_dead, run_though_deleted],
    "foreign_documents_are_set_aside_once": [
        garbage_that_runs,
        garbage_that_is_met_again_and_again,
        garbage_that_stays,
    ],
}
