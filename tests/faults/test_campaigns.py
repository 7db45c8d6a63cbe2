"""Short fault campaigns; `make faults` runs the long ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from monque_core import LocalMongo
from tests.faults.lab import experiments
from tests.faults.lab.resource_usage import METRICS

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture
def replicas() -> Iterator[LocalMongo]:
    with LocalMongo(replicas=3) as mongo:
        yield mongo


async def test_no_violation_under_concurrent_random_faults(replicas: LocalMongo) -> None:
    report = await experiments.campaign(replicas, seed=1, seconds=12)
    assert not report.violations, report
    assert report.summary["runs"] >= report.summary["jobs"] / 2 > 0


@pytest.mark.parametrize("part", [1, 2])
async def test_a_worker_may_stop_during_every_kind_of_fault(
    replicas: LocalMongo, part: int
) -> None:
    report = await experiments.every_fault(replicas, seed=2, part=part, parts=2)
    assert not report.violations, report
    assert report.summary["faults"]["stop"] >= 8


async def test_a_full_queue_is_drained_while_workers_are_killed(mongo: LocalMongo) -> None:
    report = await experiments.drain(mongo, seed=3, jobs=4000, kill_every=0.5, job_seconds=0.02)
    assert not report.violations, report
    assert report.summary["faults"]["kill"] > 0
    assert report.summary["calls"] == {"enqueue_many": 1}


async def test_a_faulty_listener_is_covered_by_others(mongo: LocalMongo) -> None:
    report = await experiments.listeners(mongo, seed=6)
    assert not report.violations, report
    assert report.summary["faults"]["kill"] == 1


async def test_listeners_that_are_all_lost_are_replaced(mongo: LocalMongo) -> None:
    report = await experiments.lost_listeners(mongo, seed=7)
    assert not report.violations, report
    assert report.summary["faults"]["kill"] == 2


async def test_a_rolling_restart_fails_no_enqueue_and_loses_no_claim(mongo: LocalMongo) -> None:
    report = await experiments.rolling_restart(mongo, seed=4)
    assert not report.violations, report
    assert report.summary["calls"]["enqueue"] > 0


async def test_retention_deletes_only_finished_jobs_under_load(mongo: LocalMongo) -> None:
    report = await experiments.soak(mongo, seed=5, seconds=8, rate=60, keep_seconds=2)
    assert not report.violations, report
    deleted = [
        document for document in report.history.documents.values() if document.current is None
    ]
    assert len(deleted) > 50
    samples = list(report.history.of("resource usage"))
    assert {"worker", "producer"} <= {note.process.split("-")[0] for note in samples}
    assert all(samples[0].details[kind] > 0 for kind in METRICS)
