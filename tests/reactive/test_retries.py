"""When a failed run is retried, and when no run is left."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from monque_core import Cron, Exponential, Fixed, Linear, Retry, Series
from tests.support.happenings import Happenings
from tests.support.reactions import record_of, settle
from tests.support.tally import Tally

if TYPE_CHECKING:
    from pymongo.asynchronous.collection import AsyncCollection

    from monque_core import Monque, ReactiveTask
    from monque_core.testing import MovableClock

    Orders = AsyncCollection[dict[str, Any]]


def fail_always(monque: Monque, **options: Any) -> Tally[int]:
    """Register a task whose runs all fail; return the attempts that it saw."""
    attempts: Tally[int] = Tally()

    async def fail(task: ReactiveTask) -> None:
        attempts.add(task.attempts)
        raise OSError(f"attempt {task.attempts}")

    given: Any = {"name": "invoice", "debounce": 0, **options}
    monque.reactive("orders", fail, **given)
    return attempts


@pytest.mark.parametrize(
    ("retry", "seconds"),
    [
        (None, [10, 20, 40, 80]),
        (Exponential(5, cap=12, factor=2), [5, 10, 12, 12]),
        (Fixed(7), [7, 7, 7, 7]),
        (Linear(3, cap=8), [3, 6, 8, 8]),
        (Series([1, timedelta(minutes=1)]), [1, 60, 60, 60]),
        (Cron("*/5 * * * *"), [300, 300, 300, 300]),
    ],
    ids=["default", "exponential", "fixed", "linear", "series", "cron"],
)
async def test_each_failure_stores_the_time_of_the_next_run(
    monque: Monque, orders: Orders, clock: MovableClock, retry: Retry | None, seconds: list[int]
) -> None:
    happenings = Happenings(monque)
    attempts = fail_always(monque, retry=retry)
    began_at = clock.now()
    async with monque:
        await orders.insert_one({"_id": 1})
        await settle(monque)
        for count, delay in enumerate(seconds, start=1):
            record = await record_of(monque)
            assert (record.status, record.attempts) == ("pending", count)
            assert record.next_run_at == clock.now() + timedelta(seconds=delay)
            assert record.last_error == f"OSError: attempt {count}"
            assert record.due_at == record.first_error_at == began_at
            clock.advance(delay)
            await settle(monque)
        record = await record_of(monque)
    assert attempts == [1, 2, 3, 4, 5]
    assert (record.status, record.next_run_at, record.attempts) == ("failed", None, 5)
    assert [event.will_retry for event in happenings.of("task:fail")] == [True] * 4 + [False]
    assert [entry.status for entry in record.history] == ["failed"] * 5
    assert record.history[-1].error == "OSError: attempt 5"


async def test_a_cron_policy_uses_the_wall_clock_of_its_time_zone(
    monque: Monque, orders: Orders, clock: MovableClock
) -> None:
    fail_always(monque, retry=Cron("0 9 * * *", timezone="America/New_York"))
    clock.set(datetime(2026, 7, 1, 12, tzinfo=UTC))
    async with monque:
        await orders.insert_one({"_id": 1})
        await settle(monque)
        record = await record_of(monque)
    assert record.next_run_at == datetime(2026, 7, 1, 13, tzinfo=UTC)


async def test_a_single_attempt_is_not_retried(monque: Monque, orders: Orders) -> None:
    attempts = fail_always(monque, retry=Fixed(1, max_attempts=1))
    async with monque:
        await orders.insert_one({"_id": 1})
        await settle(monque)
        assert (await record_of(monque)).status == "failed"
    assert attempts == [1]


async def test_without_a_limit_it_is_retried_indefinitely(
    monque: Monque, orders: Orders, clock: MovableClock
) -> None:
    attempts = fail_always(monque, retry=Fixed(60, max_attempts=None))
    async with monque:
        await orders.insert_one({"_id": 1})
        for _ in range(7):
            await settle(monque)
            clock.advance(60)
        await settle(monque)
        assert (await record_of(monque)).status == "pending"
    assert attempts == list(range(1, 9))


async def test_the_time_since_the_first_error_is_a_limit(
    monque: Monque, orders: Orders, clock: MovableClock
) -> None:
    attempts = fail_always(monque, retry=Fixed(60, max_attempts=None, max_duration=150))
    async with monque:
        await orders.insert_one({"_id": 1})
        for _ in range(4):
            await settle(monque)
            clock.advance(60)
        await settle(monque)
        record = await record_of(monque)
    # At 0, 60, 120 and 180 seconds, the last of which is after the limit.
    assert attempts == [1, 2, 3, 4]
    assert record.status == "failed"


@pytest.mark.parametrize("status", ["pending", "failed"])
async def test_a_change_resets_the_attempts(
    monque: Monque, orders: Orders, clock: MovableClock, status: str
) -> None:
    limit = 2 if status == "failed" else 5
    attempts = fail_always(monque, retry=Fixed(60, max_attempts=limit))
    async with monque:
        await orders.insert_one({"_id": 1, "total": 1})
        await settle(monque)
        clock.advance(60)
        await settle(monque)
        assert (await record_of(monque)).status == status
        clock.advance(1)
        await orders.update_one({"_id": 1}, {"$set": {"total": 2}})
        await settle(monque)
        record = await record_of(monque)
    assert attempts == [1, 2, 1]
    assert (record.status, record.attempts) == ("pending", 1)
    assert record.first_error_at == clock.now()


async def test_without_reset_a_change_leaves_the_retry_and_its_attempts_alone(
    monque: Monque, orders: Orders, clock: MovableClock
) -> None:
    attempts = fail_always(monque, retry=Fixed(60, max_attempts=2), reset_on_change=False)
    async with monque:
        await orders.insert_one({"_id": 1, "total": 1})
        await settle(monque)
        retry_at = (await record_of(monque)).next_run_at
        clock.advance(1)
        await orders.update_one({"_id": 1}, {"$set": {"total": 2}})
        await settle(monque)
        waiting = await record_of(monque)
        assert (waiting.next_run_at, waiting.values) == (retry_at, {"total": 2})
        clock.advance(59)
        await settle(monque)
        record = await record_of(monque)
    assert attempts == [1, 2]
    assert record.status == "failed"


async def test_a_success_clears_earlier_errors(
    monque: Monque, orders: Orders, clock: MovableClock
) -> None:
    runs = Tally[int]()

    @monque.reactive("orders", name="invoice", debounce=0, retry=Fixed(60))
    async def invoice(task: ReactiveTask) -> None:
        runs.add(task.attempts)
        if task.attempts == 1:
            raise OSError("not yet")

    async with monque:
        await orders.insert_one({"_id": 1})
        await settle(monque)
        clock.advance(60)
        await settle(monque)
        record = await record_of(monque)
    assert runs == [1, 2]
    assert (record.status, record.attempts) == ("completed", 2)
    assert (record.last_error, record.first_error_at) == (None, None)
    assert [entry.status for entry in record.history] == ["failed", "completed"]
