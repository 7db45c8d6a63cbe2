"""A process that inserts jobs one at a time: `python -m tests.benchmarks.insert_process …`."""

from __future__ import annotations

import sys
import time
from typing import Any

from pymongo import MongoClient

from tests.benchmarks import raw


def main(uri: str, database: str, gap_seconds: float) -> None:
    """For each number read from stdin, insert that many jobs with their sending times."""
    with MongoClient[dict[str, Any]](uri) as client:
        jobs = client[database]["monque_jobs"]
        jobs.find_one()
        for line in sys.stdin:
            for _ in range(int(line)):
                time.sleep(gap_seconds)
                jobs.insert_one(raw.document({"sent": time.monotonic_ns()}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
