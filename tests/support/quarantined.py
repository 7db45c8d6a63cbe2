"""Checks on invalid documents that are quarantined next to valid jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monque_core import InvalidJobError, Monque
from tests.support.happenings import Happenings
from tests.support.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monque_core import Job
    from tests.conftest import AnyDatabase


async def assert_quarantined_once(
    db: AnyDatabase, invalid: Sequence[object], concurrency: int
) -> None:
    """Run valid jobs `work` until idle; assert that each invalid one is reported once."""
    monque = Monque(db, poll_interval=0.05, heartbeat_interval=0.1)
    happenings = Happenings(monque)
    ran = Tally[str]()

    @monque.worker("work", concurrency=concurrency)
    async def note(job: Job[str]) -> None:
        ran.add(job.data)

    await monque.enqueue_many("work", ["one", "two", "three"])
    async with monque:
        await happenings.reach("job:complete", 3)
        await monque.run_until_idle()

    assert sorted(ran) == ["one", "three", "two"], ran
    errors = [event.error for event in happenings.of("job:error")]
    assert [type(error) for error in errors] == [InvalidJobError] * len(invalid), errors
    for job_id in invalid:
        assert sum(str(job_id) in str(error) for error in errors) == 1, errors
