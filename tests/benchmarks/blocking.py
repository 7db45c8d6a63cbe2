"""Throughput of storing jobs without asyncio, compared with PyMongo's own insert."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pymongo import MongoClient

from monque_core import SyncMonque
from monque_core.store.indexes import job_indexes
from tests.benchmarks import raw
from tests.benchmarks.measure import Reading

if TYPE_CHECKING:
    from collections.abc import Callable

_REPETITIONS = 10


def measure(uri: str, database: str, singles: int) -> dict[str, Reading]:
    """Store this many jobs in each way, alternately; rates in jobs per second."""
    with MongoClient[dict[str, Any]](uri) as client:
        jobs = client[database]["monque_jobs"]
        jobs.drop()
        jobs.create_indexes(list(job_indexes(retention=False)))
        monque = SyncMonque(client[database])
        monque.initialize()

        def insert(number: int) -> None:
            jobs.insert_one(raw.document({"number": number}))

        def enqueue(number: int) -> None:
            monque.enqueue(raw.NAME, {"number": number})

        raw_seconds = own_seconds = 0.0
        turn = max(1, singles // _REPETITIONS)
        for _ in range(_REPETITIONS):
            raw_seconds += _seconds(insert, turn)
            own_seconds += _seconds(enqueue, turn)
    stored = turn * _REPETITIONS
    return {"SyncMonque.enqueue, one by one": Reading(stored / own_seconds, stored / raw_seconds)}


def _seconds(store: Callable[[int], None], count: int) -> float:
    began = time.perf_counter()
    for number in range(count):
        store(number)
    return time.perf_counter() - began
