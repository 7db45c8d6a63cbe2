"""A process that inserts with bare PyMongo: `python -m tests.benchmarks.cluster.producer …`.

Each line of standard input is the number of documents to insert and their rate per second, at
random times (a Poisson process) if the rate is not 0. Each is answered by the seconds by which
the last document was late.
"""

from __future__ import annotations

import random
import sys
import time
from typing import TYPE_CHECKING, Any

from pymongo import MongoClient

from tests.benchmarks import raw
from tests.benchmarks.cluster.client import ORDERS

if TYPE_CHECKING:
    from pymongo.collection import Collection


def _main(uri: str, database: str, source: str) -> None:
    is_reactive = source == ORDERS
    with MongoClient[dict[str, Any]](uri) as client:
        collection = client[database][ORDERS if is_reactive else "monque_jobs"]
        collection.find_one()
        print("ready", flush=True)
        for line in sys.stdin:
            count, rate = line.split()
            print(_insert(collection, int(count), float(rate), is_reactive), flush=True)


def _insert(
    collection: Collection[dict[str, Any]], count: int, rate: float, is_reactive: bool
) -> float:
    gaps = random.Random(count)
    due = time.monotonic()
    late = 0.0
    for _ in range(count):
        if rate:
            due += gaps.expovariate(rate)
            late = time.monotonic() - due
            if late < 0:
                time.sleep(-late)
        sent = {"sent": time.monotonic_ns()}
        collection.insert_one(sent if is_reactive else raw.document(sent))
    return max(0.0, late)


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], sys.argv[3])
