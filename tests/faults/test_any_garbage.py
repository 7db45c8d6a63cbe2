"""Jobs whose fields hold arbitrary BSON values, under everything that reads the collection."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from bson import ObjectId
from bson.datetime_ms import DatetimeMS
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from monque_core import (
    InvalidJobError,
    Job,
    JobRetention,
    JobSelector,
    JobStateError,
    Monque,
)
from monque_core.scheduler import maintenance
from tests.support.happenings import Happenings
from tests.support.payloads import payloads
from tests.support.stored import jobs_in

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    Db = AsyncDatabase[dict[str, Any]]

AGES_AGO = datetime.now(UTC) - timedelta(days=1)
FIELDS = (
    *("name", "data", "status", "nextRunAt", "lockedAt", "claimedBy", "lastHeartbeat"),
    *("heartbeatInterval", "failCount", "failReason", "repeatInterval", "uniqueKey", "createdAt"),
    *("updatedAt", "claimToken", "claims", "priority", "maxRetries", "timeoutMs", "timezone"),
    "claimedAt",
)
STATUSES = ("pending", "processing", "completed", "failed", "cancelled")
MISSING = object()
anything = st.one_of(
    payloads,
    st.floats(),
    st.just(MISSING),
    st.sampled_from([["pending"], ["processing"], ["work"], [AGES_AGO], "work", "pending"]),
    st.integers(-(2**63), 2**63 - 1).map(DatetimeMS),
)


@st.composite
def garbage(draw: st.DrawFn) -> dict[str, Any]:
    """Return a job with some of its fields replaced by arbitrary values, or missing."""
    document: dict[str, Any] = {
        "_id": ObjectId(),
        "name": "work",
        "data": "garbage",
        "status": draw(st.sampled_from(STATUSES)),
        "nextRunAt": AGES_AGO,
        "failCount": 0,
        "createdAt": AGES_AGO,
        "updatedAt": AGES_AGO,
    }
    replaced = draw(st.dictionaries(st.sampled_from(FIELDS), anything, min_size=1, max_size=3))
    document.update(replaced)
    return {field: value for field, value in document.items() if value is not MISSING}


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the maintenance interval so that a test can wait for it."""
    monkeypatch.setattr(maintenance, "INTERVAL", timedelta(seconds=0.05))


def an_instance(db: Any) -> tuple[Monque, Happenings]:
    monque = Monque(
        db,
        heartbeat_interval=0.1,
        poll_interval=0.02,
        max_retries=2,
        base_retry_interval=0.01,
        stats_cache_ttl=0,
        lock_timeout=0.3,
        job_retention=JobRetention(completed=3600, failed=3600, cancelled=3600, interval=0.1),
    )

    @monque.worker("work", concurrency=4)
    async def run(job: Job[Any]) -> None: ...

    return monque, Happenings(monque)


async def do_everything(monque: Monque, ids: list[Any]) -> None:
    """Read and change everything as an operator would; `InvalidJobError` is allowed."""
    await monque.get_jobs()
    for sort in ("created_at", "-updated_at", "next_run_at"):
        page = await monque.get_jobs_with_cursor(sort=sort, limit=2)
        while page.has_next:
            page = await monque.get_jobs_with_cursor(sort=sort, limit=2, cursor=page.cursor)
    await monque.get_queue_stats()
    await monque.get_queue_view_summaries()
    await monque.get_schedules()
    await monque.cancel_jobs(JobSelector(name="other"))
    for job_id in ids:
        for act in (monque.get_job, monque.retry_job, monque.cancel_job):
            with contextlib.suppress(InvalidJobError, JobStateError):
                await act(job_id)
    await monque.retry_jobs(JobSelector(name="work"))
    for key in ("a key", "pending", "work"):
        with contextlib.suppress(InvalidJobError):
            await monque.enqueue_many("work", [key], unique_key=str)
        with contextlib.suppress(InvalidJobError):
            await monque.schedule("0 0 1 1 *", "work", "scheduled", unique_key=key)


@settings(
    max_examples=4,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(documents=st.lists(garbage(), min_size=8, max_size=16))
async def test_garbage_stops_no_valid_job_and_is_reported_once(
    db: Db, documents: list[dict[str, Any]]
) -> None:
    await jobs_in(db).drop()
    with contextlib.suppress(Exception):
        # The same key may appear twice.
        await jobs_in(db).insert_many(documents, ordered=False)
    ids = [document["_id"] for document in documents]
    (first, heard), (second, overheard) = an_instance(db), an_instance(db)
    async with first, second:
        await first.enqueue_many("work", [f"good {number}" for number in range(5)])
        await do_everything(second, ids)
        await first.enqueue_many("work", [f"later {number}" for number in range(5)])

        def completed() -> set[str]:
            done = [*heard.of("job:complete"), *overheard.of("job:complete")]
            return {str(event.job.data) for event in done} & expected

        expected = {f"{kind} {number}" for kind in ("good", "later") for number in range(5)}
        async with asyncio.timeout(120):
            while completed() != expected:
                await asyncio.sleep(0.01)
            await first.run_until_idle()
        told = len(heard.of("job:error")) + len(overheard.of("job:error"))
        # For several passes of every background task.
        await asyncio.sleep(0.3)

    errors = [event.error for event in [*heard.of("job:error"), *overheard.of("job:error")]]
    assert all(isinstance(error, InvalidJobError) for error in errors), errors
    # Once when it is quarantined, and once more after an operator retried it.
    texts = [str(error) for error in errors]
    for document in documents:
        assert sum(str(document["_id"]) in text for text in texts) <= 3, texts
    assert len(errors) - told <= len(documents)
