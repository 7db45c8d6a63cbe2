"""The page on the document format lists every transition with its filter and its fields."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from bson import ObjectId

from monque_core import Job, JobStatus
from monque_core.jobs.outcome import (
    Advanced,
    Completed,
    Failed,
    OccurrenceFailed,
    Released,
    Retrying,
)
from monque_core.store import transitions
from monque_core.store.indexes import UNIQUE, job_indexes
from monque_core.store.inserts import active_with_key
from monque_core.store.shard_key import identified
from monque_core.store.transitions import Owner, Transition, settle
from tests.docs.contract import Promise, promises

if TYPE_CHECKING:
    from monque_core.jobs.outcome import Outcome

_NOW = datetime(2030, 1, 1, tzinfo=UTC)
_OWNER = Owner("instance", 30_000)
_TOKEN = ObjectId()
_STALE = {"status": JobStatus.PROCESSING, "$or": [{"heartbeatInterval": 1}]}
_JOB = Job[None](
    id=ObjectId(),
    name="report",
    data=None,
    status=JobStatus.PROCESSING,
    next_run_at=_NOW,
    created_at=_NOW,
    updated_at=_NOW,
    repeat_interval="@daily",
    unique_key="daily",
    claim_token=_TOKEN,
)


def _settled(outcome: Outcome) -> Transition:
    return settle(_JOB, outcome, _OWNER, _NOW)


_MADE = {
    "claim": transitions.claim({"name": "report"}, _OWNER, _TOKEN, _NOW),
    "heartbeat": transitions.renew([_JOB], _OWNER, _NOW),
    "complete": _settled(Completed()),
    "next tick": _settled(Advanced(_NOW)),
    "fail, runs left": _settled(Retrying("reason", _NOW)),
    "fail, no runs left": _settled(Failed("reason")),
    "recover": transitions.revive([_JOB], _STALE, _NOW),
    "release": _settled(Released()),
    "fail an occurrence": _settled(OccurrenceFailed("reason", _NOW)),
    "take over": transitions.adopt(_JOB, _STALE, _OWNER, _TOKEN, _NOW),
    "quarantine": transitions.quarantine(_JOB.id, _JOB.name, "reason", _NOW),
    "cancel_job": transitions.cancel(identified([_JOB]), _NOW),
    "reschedule_job": transitions.reschedule(identified([_JOB]), _NOW, _NOW),
    "retry_job": transitions.retry(identified([_JOB]), _NOW),
}


def _changes(update: Any) -> tuple[dict[str, Any], set[str]]:
    """Return which fields an update sets and removes, for a document or a pipeline."""
    sets: dict[str, Any] = {}
    removes: set[str] = set()
    for stage in update if isinstance(update, list) else [update]:
        sets |= stage.get("$set", {}) | stage.get("$inc", {})
        removes |= set(stage.get("$unset", ()))
    return sets, removes


def _statuses(value: Any) -> set[str]:
    """Return the statuses that a condition or an assignment names."""
    if isinstance(value, dict):
        return {status for part in value.values() for status in _statuses(part)}
    return set(value) if isinstance(value, list) else {value}


@pytest.mark.parametrize("write", _MADE)
def test_a_transition_has_the_filter_and_the_update_of_the_page(write: str) -> None:
    promise: Promise = promises()[write]
    step = _MADE[write]
    sets, removes = _changes(step.update)

    assert {field for field in step.filter if field != "$or"} == promise.filter.all
    assert _statuses(step.filter["status"]) == promise.filter.statuses
    assert sets.keys() == promise.sets.all
    assert _statuses(sets.get("status", [])) == promise.sets.statuses
    assert removes == promise.removes.all


def test_the_page_lists_every_transition_and_no_other() -> None:
    assert promises().keys() == _MADE.keys()
    made = {
        name
        for name, value in vars(transitions).items()
        if inspect.isfunction(value)
        and not name.startswith("_")
        and inspect.signature(value).return_annotation == "Transition"
    }
    # `release`, `complete` and `settle` share `_settled`.
    assert made == {
        *("claim", "renew", "revive", "adopt", "quarantine", "cancel", "reschedule", "retry"),
        *("release", "complete", "settle"),
    }


def test_a_key_is_looked_for_and_indexed_as_the_page_says() -> None:
    (unique,) = [
        each.document for each in job_indexes(retention=False) if each.document["name"] == UNIQUE
    ]

    assert active_with_key(_JOB).keys() == {"name", "uniqueKey", "status"}
    assert _statuses(active_with_key(_JOB)["status"]) == {"pending", "processing"}
    assert [*unique["key"]] == ["name", "uniqueKey"]
    assert unique["unique"]
    assert unique["partialFilterExpression"].keys() == {"uniqueKey", "status"}
