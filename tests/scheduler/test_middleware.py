"""Functions around every run."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from monque_core import Monque
from tests.support.happenings import Happenings
from tests.support.polling import NO_POLLS
from tests.support.stored import stored
from tests.support.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job
    from tests.conftest import AnyDatabase

    CallNext = Callable[..., Awaitable[object]]


async def test_middleware_wraps_every_run_the_first_outermost(any_db: AnyDatabase) -> None:
    monque = Monque(any_db, **NO_POLLS)
    order = Tally[str]()

    @monque.use
    async def outer(job: Job[Any], call_next: CallNext) -> None:
        order.add(f"outer before {job.name}")
        await call_next()
        order.add(f"outer after {job.name}")

    async def inner(job: Job[Any], call_next: CallNext) -> None:
        order.add("inner before")
        await call_next()
        order.add("inner after")

    assert monque.use(inner) is inner

    @monque.worker("coroutine")
    async def on_the_loop(job: Job[None]) -> None:
        order.add("handler")

    @monque.worker("function")
    def in_a_thread(job: Job[None]) -> None:
        order.add("handler")

    async with monque:
        for name in ("coroutine", "function"):
            order.clear()
            await monque.enqueue(name, None)
            await order.reach(5)
            assert order == [
                f"outer before {name}",
                "inner before",
                "handler",
                "inner after",
                f"outer after {name}",
            ]


async def test_another_job_may_be_passed_on_and_only_the_handler_sees_it(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque = Monque(db, **NO_POLLS)
    seen = Tally[Any]()

    @monque.use
    async def decrypt(job: Job[str], call_next: CallNext) -> None:
        await call_next(replace(job, data=job.data[::-1]))

    @monque.use
    async def note(job: Job[str], call_next: CallNext) -> None:
        seen.add(("middleware", job.data))
        await call_next()

    @monque.worker("secret")
    async def read(job: Job[str]) -> None:
        seen.add(("handler", job.data))

    happenings = Happenings(monque)
    job = await monque.enqueue("secret", "terces")
    async with monque:
        (completed,) = await happenings.reach("job:complete")

    assert seen == [("middleware", "secret"), ("handler", "secret")]
    assert completed.job == await stored(db, job)
    assert completed.job.data == "terces"


async def test_call_next_returns_and_raises_like_the_handler(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque = Monque(db, max_retries=1, **NO_POLLS)
    seen = Tally[Any]()

    @monque.use
    async def note(job: Job[str], call_next: CallNext) -> None:
        try:
            seen.add(await call_next())
        except ValueError as error:
            seen.add(error)
            raise

    @monque.worker("coroutine")
    async def on_the_loop(job: Job[str]) -> str:
        if job.data == "raise":
            raise ValueError("from the loop")
        return "from the loop"

    @monque.worker("function")
    def in_a_thread(job: Job[str]) -> str:
        if job.data == "raise":
            raise ValueError("from a thread")
        return "from a thread"

    happenings = Happenings(monque)
    async with monque:
        for name in ("coroutine", "function"):
            await monque.enqueue_many(name, ["return", "raise"])
        await happenings.reach("job:complete", 2)
        await happenings.reach("job:fail", 2)

    assert sorted(map(str, seen)) == [
        "from a thread",
        "from a thread",
        "from the loop",
        "from the loop",
    ]
    assert {str(failure.error) for failure in happenings.of("job:fail")} == {
        "from a thread",
        "from the loop",
    }


async def raise_before(job: Job[Any], call_next: CallNext) -> None:
    raise RuntimeError("before")


async def raise_after(job: Job[Any], call_next: CallNext) -> None:
    await call_next()
    raise RuntimeError("after")


async def raise_cancelled(job: Job[Any], call_next: CallNext) -> None:
    await call_next()
    raise asyncio.CancelledError("of its own")


@pytest.mark.parametrize(
    ("middleware", "reason", "is_handled"),
    [
        (raise_before, "RuntimeError: before", False),
        (raise_after, "RuntimeError: after", True),
        (raise_cancelled, "CancelledError: of its own", True),
    ],
)
async def test_an_exception_in_middleware_fails_the_run_and_frees_the_slot(
    any_db: AnyDatabase,
    db: AsyncDatabase[dict[str, Any]],
    middleware: Callable[[Job[Any], CallNext], Awaitable[None]],
    reason: str,
    is_handled: bool,
) -> None:
    monque = Monque(any_db, max_retries=1, **NO_POLLS)
    handled = Tally[int]()

    @monque.worker("wrapped", concurrency=1)
    async def handle(job: Job[int]) -> None:
        handled.add(job.data)

    monque.use(middleware)
    happenings = Happenings(monque)
    jobs = await monque.enqueue_many("wrapped", range(5))
    async with monque:
        await happenings.reach("job:fail", 5)

    assert handled == (list(range(5)) if is_handled else [])
    for job in jobs:
        after = await stored(db, job)
        assert (after.status, after.fail_reason) == ("failed", reason)


async def test_middleware_may_end_a_run_without_the_handler(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque = Monque(db, **NO_POLLS)

    @monque.use
    async def skip(job: Job[Any], call_next: CallNext) -> None:
        return

    @monque.worker("skipped")
    async def unused(job: Job[None]) -> None:
        raise AssertionError("nobody called it")

    happenings = Happenings(monque)
    job = await monque.enqueue("skipped", None)
    async with monque:
        await happenings.reach("job:complete")

    assert (await stored(db, job)).status == "completed"


async def test_middleware_may_turn_a_failure_into_a_success(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque = Monque(db, **NO_POLLS)

    @monque.use
    async def forgive(job: Job[Any], call_next: CallNext) -> None:
        try:
            await call_next()
        except ValueError:
            return

    @monque.worker("forgiven")
    async def fail(job: Job[None]) -> None:
        raise ValueError

    happenings = Happenings(monque)
    job = await monque.enqueue("forgiven", None)
    async with monque:
        await happenings.reach("job:complete")

    assert (await stored(db, job)).status == "completed"
    assert not happenings.of("job:fail")


async def test_a_timeout_covers_the_middleware_too(db: AsyncDatabase[dict[str, Any]]) -> None:
    monque = Monque(db, max_retries=1, **NO_POLLS)

    @monque.use
    async def dawdle(job: Job[Any], call_next: CallNext) -> None:
        await asyncio.sleep(3600)

    @monque.worker("quick", timeout=0.05)
    async def unused(job: Job[None]) -> None:
        raise AssertionError("the middleware does not get that far")

    happenings = Happenings(monque)
    job = await monque.enqueue("quick", None)
    async with monque:
        await happenings.reach("job:fail")

    assert "timeout of 0:00:00.05" in str((await stored(db, job)).fail_reason)


@pytest.mark.parametrize("middleware", [None, "text", lambda *_: None])
async def test_middleware_must_be_an_async_function(
    db: AsyncDatabase[dict[str, Any]], middleware: Any
) -> None:
    with pytest.raises(TypeError, match=r"must be an async function of \(job, call_next\)"):
        Monque(db).use(middleware)
