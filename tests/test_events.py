"""The payloads of events."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from monque_core import events

PAYLOADS: dict[type[Any], tuple[str, ...]] = {
    events.JobStarted: ("job",),
    events.JobCompleted: ("job", "duration"),
    events.JobFailed: ("job", "error", "will_retry"),
    events.JobErrored: ("error", "job"),
    events.JobCancelled: ("job",),
    events.JobRetried: ("job", "previous_status"),
    events.JobDeleted: ("job_id",),
    events.JobsChanged: ("count",),
    events.StaleRecovered: ("count",),
    events.ChangeStreamChanged: ("error", "reason"),
    events.TaskStarted: ("task",),
    events.TaskCompleted: ("task", "duration"),
    events.TaskFailed: ("task", "error", "will_retry"),
    events.TaskErrored: ("error", "task"),
    events.TaskSkipped: ("task", "duration"),
    events.LeaderChanged: ("instance_id", "term"),
    events.Reconciliation: ("task_name", "reason", "documents"),
}


@pytest.mark.parametrize(("kind", "attributes"), PAYLOADS.items())
def test_payloads_have_exactly_these_attributes_and_are_frozen(
    kind: type[Any], attributes: tuple[str, ...]
) -> None:
    assert tuple(field.name for field in fields(kind)) == attributes
    payload = kind(*range(len(attributes)))
    with pytest.raises(FrozenInstanceError):
        setattr(payload, attributes[0], None)


def test_the_names_of_the_events() -> None:
    names = {value for name, value in vars(events).items() if name.isupper()}
    assert {name for name in names if isinstance(name, str)} == {
        "job:start",
        "job:complete",
        "job:fail",
        "job:error",
        "job:cancelled",
        "job:retried",
        "job:deleted",
        "jobs:cancelled",
        "jobs:retried",
        "jobs:deleted",
        "stale:recovered",
        "changestream:connected",
        "changestream:closed",
        "changestream:error",
        "changestream:fallback",
        "task:start",
        "task:complete",
        "task:fail",
        "task:error",
        "task:skipped",
        "leader:acquired",
        "leader:lost",
        "reconcile:start",
        "reconcile:complete",
    }


def test_unknown_values_may_be_omitted() -> None:
    error = ValueError()
    assert events.JobErrored(error).job is None
    assert events.ChangeStreamChanged() == events.ChangeStreamChanged(error=None, reason=None)
