"""Running handlers."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from monque_core import Monque
from tests.support.happenings import Happenings
from tests.support.polling import NO_POLLS
from tests.support.stored import jobs_in, stored, stored_jobs
from tests.support.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job
    from tests.conftest import AnyDatabase


async def test_coroutines_run_on_the_event_loop_and_functions_never_do(any_db: AnyDatabase) -> None:
    monque = Monque(any_db, **NO_POLLS)
    threads = Tally[tuple[str, bool]]()

    @monque.worker("coroutine")
    async def on_the_loop(job: Job[None]) -> None:
        asyncio.get_running_loop()
        threads.add((job.name, threading.current_thread() is threading.main_thread()))

    @monque.worker("function")
    def in_a_thread(job: Job[None]) -> None:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        threads.add((job.name, threading.current_thread() is threading.main_thread()))

    for name in ("coroutine", "function"):
        await monque.enqueue_many(name, [None] * 10)
    async with monque:
        await threads.reach(20)

    assert set(threads) == {("coroutine", True), ("function", False)}


async def test_handlers_get_the_job_as_claimed(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(any_db, heartbeat_interval=7, **NO_POLLS)
    seen = Tally[tuple[Any, Any]]()

    @monque.worker("seen")
    async def look(job: Job[dict[str, Any]]) -> str:
        seen.add((job, await stored(db, job)))
        return "what a handler returns is ignored"

    await monque.enqueue(
        "seen", {"to": ["ada", 1]}, unique_key="k", priority=3, max_retries=4, timeout=60
    )
    async with monque:
        await seen.reach(1)

    ((job, as_stored),) = seen
    assert job == as_stored
    assert job.data == {"to": ["ada", 1]}
    assert job.status == "processing"
    assert job.claimed_by == monque.scheduler_instance_id
    assert job.locked_at == job.last_heartbeat == job.updated_at
    assert job.heartbeat_interval == 7000
    assert job.claim_token is not None
    assert job.claims == 1
    assert (job.unique_key, job.priority, job.max_retries) == ("k", 3, 4)
    assert job.timeout == timedelta(minutes=1)


class Handlers:
    """Every kind of callable that can be called with a job."""

    def __init__(self, runs: Tally[tuple[str, bool]]) -> None:
        self._runs = runs

    def note(self, label: str) -> None:
        is_loop_thread = threading.current_thread() is threading.main_thread()
        self._runs.add((label, is_loop_thread))

    async def method(self, job: Job[None]) -> None:
        self.note("async method")

    def blocking_method(self, job: Job[None]) -> None:
        self.note("blocking method")

    async def with_prefix(self, label: str, job: Job[None]) -> None:
        self.note(label)

    def blocking_with_prefix(self, label: str, job: Job[None]) -> None:
        self.note(label)


class AsyncCallable:
    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    async def __call__(self, job: Job[None]) -> None:
        self._note("async object")


class BlockingCallable:
    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    def __call__(self, job: Job[None]) -> None:
        self._note("blocking object")


async def test_anything_that_can_be_called_is_a_handler(db: AsyncDatabase[dict[str, Any]]) -> None:
    monque = Monque(db, **NO_POLLS)
    runs = Tally[tuple[str, bool]]()
    handlers = Handlers(runs)
    expected: dict[str, Callable[[Job[None]], object]] = {
        "async method": handlers.method,
        "async object": AsyncCallable(handlers.note),
        "async partial": functools.partial(handlers.with_prefix, "async partial"),
        "async partial of partial": functools.partial(
            functools.partial(handlers.with_prefix, "async partial of partial")
        ),
        "coroutine from a lambda": lambda job: handlers.with_prefix("coroutine from a lambda", job),
        "blocking method": handlers.blocking_method,
        "blocking object": BlockingCallable(handlers.note),
        "blocking partial": functools.partial(handlers.blocking_with_prefix, "blocking partial"),
    }
    for label, handler in expected.items():
        monque.worker(label.replace(" ", "-"), handler)
        await monque.enqueue(label.replace(" ", "-"), None)
    async with monque:
        await runs.reach(len(expected))

    assert dict(runs) == {label: not label.startswith("blocking") for label in expected}


async def test_threads_see_the_context_variables_of_their_run(any_db: AnyDatabase) -> None:
    monque = Monque(any_db, **NO_POLLS)
    request_id = contextvars.ContextVar[str]("request_id", default="none")
    seen = Tally[tuple[str, str]]()

    async def set_request_id(job: Job[str], call_next: Any) -> None:
        request_id.set(f"of {job.data}")
        await call_next()
        seen.add(("middleware after", request_id.get()))

    @monque.worker("function", concurrency=1)
    def read(job: Job[str]) -> None:
        seen.add((job.data, request_id.get()))
        request_id.set("set in a thread")

    @monque.worker("coroutine", concurrency=1)
    async def read_too(job: Job[str]) -> None:
        seen.add((job.data, request_id.get()))
        request_id.set("set in a coroutine")

    monque.use(set_request_id)
    await monque.enqueue_many("function", ["a", "b"])
    await monque.enqueue_many("coroutine", ["c"])
    async with monque:
        await seen.reach(6)

    handlers = dict(pair for pair in seen if pair[0] != "middleware after")
    assert handlers == {"a": "of a", "b": "of b", "c": "of c"}
    assert request_id.get() == "none"


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("this has no words")


class Ending(BaseException):
    """A `BaseException`, like `KeyboardInterrupt`."""


EXCEPTIONS = [
    (ValueError("bad value"), "ValueError: bad value"),
    (KeyError(), "KeyError"),
    (asyncio.CancelledError("by itself"), "CancelledError: by itself"),
    (SystemExit(3), "SystemExit: 3"),
    (KeyboardInterrupt(), "KeyboardInterrupt"),
    (Ending("of all"), "Ending: of all"),
    (GeneratorExit("early"), "GeneratorExit: early"),
    (UnspeakableError(), "UnspeakableError: (its message cannot be read)"),
    (ExceptionGroup("several", [ValueError(1)]), "ExceptionGroup: several (1 sub-exception)"),
    (ValueError("\udcff broken"), "ValueError: ? broken"),
]


@pytest.mark.parametrize(
    ("error", "reason"), EXCEPTIONS, ids=[type(e).__name__ for e, _ in EXCEPTIONS]
)
@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_any_exception_fails_the_run_and_frees_the_slot(
    db: AsyncDatabase[dict[str, Any]], kind: str, error: BaseException, reason: str
) -> None:
    monque = Monque(db, max_retries=1, **NO_POLLS)
    runs = Tally[str]()

    def run(job: Job[str]) -> None:
        runs.add(job.data)
        if job.data == "raise":
            raise error

    async def run_on_the_loop(job: Job[str]) -> None:
        run(job)

    monque.worker("raising", run if kind == "function" else run_on_the_loop, concurrency=1)
    happenings = Happenings(monque)
    job = await monque.enqueue("raising", "raise")
    async with monque:
        (failure,) = await happenings.reach("job:fail")
        await monque.enqueue("raising", "next")
        await happenings.reach("job:complete")
        assert monque.is_healthy

    after = await stored(db, job)
    assert after.status == "failed"
    assert after.fail_reason == reason
    assert failure.error is error
    assert runs == ["raise", "next"]


@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_stop_iteration_is_a_failure_too(
    db: AsyncDatabase[dict[str, Any]], kind: str
) -> None:
    monque = Monque(db, max_retries=1, **NO_POLLS)

    def run(job: Job[str]) -> None:
        next(iter(()))

    async def run_on_the_loop(job: Job[str]) -> None:
        next(iter(()))

    monque.worker("raising", run if kind == "function" else run_on_the_loop)
    happenings = Happenings(monque)
    job = await monque.enqueue("raising", None)
    async with monque:
        await happenings.reach("job:fail")

    # Neither a coroutine nor a future can raise it, so Python wraps it.
    assert "raised StopIteration" in str((await stored(db, job)).fail_reason)


async def test_a_handler_that_changes_its_job_changes_nothing_else(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(any_db, base_retry_interval=3600, **NO_POLLS)
    runs = Tally[str]()

    @monque.worker("scribbler", concurrency=1)
    async def scribble(job: Job[Any]) -> None:
        runs.add(job.data["label"])
        fails = job.data["label"] == "fail"
        job.data = "changed"
        job.name = "changed"
        job.claim_token = None
        job.claims = 50
        job.fail_count = 50
        job.repeat_interval = "* * * * *"
        if fails:
            raise ValueError("and fails")

    happenings = Happenings(monque)
    succeeding = await monque.enqueue("scribbler", {"label": "succeed"})
    failing = await monque.enqueue("scribbler", {"label": "fail"})
    async with monque:
        await happenings.reach("job:complete")
        await happenings.reach("job:fail")
        await monque.enqueue("scribbler", {"label": "next"})
        await runs.reach(3)

    assert not happenings.of("job:error")
    completed, failed = await stored(db, succeeding), await stored(db, failing)
    assert (completed.status, completed.data) == ("completed", {"label": "succeed"})
    assert (failed.status, failed.fail_count, failed.claims) == ("pending", 1, 1)
    assert completed.repeat_interval is None
    assert runs == ["succeed", "fail", "next"]
    assert happenings.of("job:complete")[0].job == completed


async def test_data_changed_in_place_by_a_handler_is_not_stored(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque = Monque(db, max_retries=1, **NO_POLLS)

    @monque.worker("scribbler")
    async def scribble(job: Job[dict[str, Any]]) -> None:
        job.data["secret"] = "must not be stored"
        raise ValueError("and fails")

    happenings = Happenings(monque)
    schedule = await monque.schedule("@yearly", "scribbler", {"as": "given"})
    await jobs_in(db).update_one({"_id": schedule.id}, {"$set": {"nextRunAt": schedule.created_at}})
    async with monque:
        await happenings.reach("job:fail")

    jobs = await stored_jobs(db)
    assert sorted(job.status for job in jobs) == ["failed", "pending"]
    assert [job.data for job in jobs] == [{"as": "given"}] * 2
