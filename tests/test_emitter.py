"""Listeners harm neither each other nor the scheduler."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from monque_core import Monque, SyncMonque, events
from tests.support.polling import QUICK_POLLS
from tests.support.stored import count_by_status
from tests.support.tally import Tally

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job
    from tests.conftest import AnyDatabase

EVENTS = ("job:start", "job:complete", "job:fail", "job:error", "changestream:connected")


class Rude(BaseException):
    """An exception that `except Exception` does not catch."""


def raise_at_once(error: BaseException) -> Any:
    def listener(event: object) -> None:
        raise error

    return listener


def raise_in_a_task(error: BaseException) -> Any:
    async def listener(event: object) -> None:
        await asyncio.sleep(0)
        raise error

    return listener


@pytest.mark.parametrize(
    "listener",
    [
        raise_at_once(ValueError("at once")),
        raise_at_once(asyncio.CancelledError("of a future that was cancelled")),
        raise_at_once(Rude("at once")),
        raise_in_a_task(ValueError("in a task")),
        raise_in_a_task(asyncio.CancelledError("in a task")),
    ],
    ids=["error", "cancellation", "no exception", "async error", "async cancellation"],
)
async def test_raising_listeners_do_not_affect_slots_jobs_or_other_listeners(
    db: AsyncDatabase[dict[str, Any]], listener: Any
) -> None:
    monque = Monque(db, base_retry_interval=0.001, max_retries=2, **QUICK_POLLS)
    told = Tally[str]()

    @monque.worker("mixed", concurrency=2)
    async def handle(job: Job[int]) -> None:
        if job.data % 2:
            raise ValueError(job.data)

    for event in EVENTS:
        monque.on(event, listener)
        monque.on(event, lambda _, event=event: told.add(event))
    await monque.enqueue_many("mixed", range(10))
    async with monque:
        await told.wait_until(lambda: told.count("job:fail") == 10)
        await told.wait_until(lambda: told.count("job:complete") == 5)
        await told.wait_until(lambda: "changestream:connected" in told)
        await monque.enqueue("mixed", 0)
        await told.wait_until(lambda: told.count("job:complete") == 6)

    assert told.count("job:start") == 16
    assert await count_by_status(db) == {"completed": 6, "failed": 5}


async def test_what_a_listener_raises_is_logged_and_never_emitted(
    db: AsyncDatabase[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    monque = Monque(db)
    emitted = Tally[object]()
    monque.on("job:deleted", raise_at_once(ValueError("at once")))
    monque.on("job:deleted", raise_in_a_task(ValueError("in a task")))
    for event in ("error", "job:error", "job:fail"):
        monque.on(event, emitted.add)

    assert monque.emit("job:deleted", None)
    await monque.stop()

    texts = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert texts == ["at once", "in a task"]
    assert all(record.levelno == logging.ERROR for record in caplog.records)
    assert not emitted


def has(told: Tally[str], what: str, count: int) -> bool:
    return told.count(what) == count


async def test_once_and_off(any_db: AnyDatabase) -> None:
    monque = Monque(any_db)
    told = Tally[str]()

    def removed(event: object) -> None:
        told.add("removed")

    @monque.worker("twice")
    async def succeed(job: Job[None]) -> None:
        pass

    monque.once("job:start", lambda _: told.add("once"))
    monque.on("job:start", removed)
    monque.off("job:start", removed)

    @monque.on("job:complete")
    def always(event: object) -> None:
        told.add("always")

    async with monque:
        for count in (1, 2):
            await monque.enqueue("twice", None)
            await told.wait_until(partial(has, told, "always", count))

    assert sorted(told) == ["always", "always", "once"]


async def test_stop_waits_for_running_async_listeners(db: AsyncDatabase[dict[str, Any]]) -> None:
    monque = Monque(db)
    told = Tally[str]()

    @monque.worker("quick")
    async def succeed(job: Job[None]) -> None:
        pass

    @monque.on("job:complete")
    async def write_slowly(event: object) -> None:
        told.add("begun")
        await asyncio.sleep(0.2)
        told.add("done")

    async with monque:
        await monque.enqueue("quick", None)
        await told.reach(1)

    assert told == ["begun", "done"]


class TestEventNames:
    def test_are_all_known(self) -> None:
        constants = {each for name, each in vars(events).items() if name.isupper()}
        assert {each for each in constants if isinstance(each, str)} == events.ALL

    @pytest.mark.parametrize("kind", [Monque, SyncMonque])
    @pytest.mark.parametrize("method", ["on", "once", "off"])
    def test_with_a_typo_are_refused_with_the_one_that_is_meant(
        self, kind: Any, method: str, blocking_db: Any
    ) -> None:
        monque = kind(blocking_db)
        with pytest.raises(ValueError, match="unknown event 'job:completed': did you mean 'job:c"):
            getattr(monque, method)("job:completed", print)

    @pytest.mark.parametrize("kind", [Monque, SyncMonque])
    @pytest.mark.parametrize("method", ["on", "once"])
    def test_with_a_typo_are_refused_in_a_decorator_too(
        self, kind: Any, method: str, blocking_db: Any
    ) -> None:
        monque = kind(blocking_db)
        with pytest.raises(ValueError, match="did you mean 'task:fail'"):
            getattr(monque, method)("task:failed")(print)

    @pytest.mark.parametrize("event", ["nothing like it", 5, None, ["job:start"]])
    def test_that_resemble_none_get_a_list_of_known_ones(
        self, event: Any, blocking_db: Any
    ) -> None:
        with pytest.raises(ValueError, match=r"known are changestream:closed, .*task:start"):
            Monque(blocking_db).on(event, print)

    @pytest.mark.parametrize("event", ["error", "new_listener"])
    def test_of_pyee_itself_are_accepted(self, event: str, blocking_db: Any) -> None:
        monque = Monque(blocking_db)
        told: list[object] = []
        monque.on(event, lambda *arguments: told.append(arguments))
        assert monque.emit(event, ValueError("told"), print)
        assert len(told) == 1

    def test_are_emitted_to_listeners_of_new_listener(self, blocking_db: Any) -> None:
        monque = Monque(blocking_db)
        told: list[object] = []
        monque.on("new_listener", lambda event, _: told.append(event))
        monque.on("job:start", print)
        assert told == ["job:start"]
