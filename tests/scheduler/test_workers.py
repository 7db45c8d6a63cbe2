"""Registering handlers, also while the instance runs."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock

import pytest

from monque_core import InvalidJobError, Monque, SyncMonque, WorkerRegistrationError
from tests.support.happenings import Happenings
from tests.support.polling import NO_POLLS
from tests.support.stored import count_by_status
from tests.support.tally import Tally

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase
    from pymongo.database import Database

    from monque_core import Job
    from tests.conftest import AnyDatabase


async def handle(job: Job[Any]) -> None:
    """Do nothing."""


async def look_at_the_queue(monque: Monque) -> None:
    """Run a job of another name: once it ran, everything that could start has started."""
    done = asyncio.Event()
    monque.once("job:complete", lambda _: done.set())
    await monque.enqueue("probe", None)
    await asyncio.wait_for(done.wait(), 120)


async def test_registering_gives_the_handler_back(db: AsyncDatabase[dict[str, Any]]) -> None:
    monque = Monque(db)

    @monque.worker("decorated")
    async def decorated(job: Job[None]) -> str:
        return "still callable"

    assert monque.worker("direct", handle) is handle
    job: Any = None
    assert await decorated(job) == "still callable"


async def test_a_name_is_registered_once(db: AsyncDatabase[dict[str, Any]]) -> None:
    monque = Monque(db, **NO_POLLS)
    runs = Tally[str]()

    @monque.worker("once")
    async def first(job: Job[None]) -> None:
        runs.add("first")

    with pytest.raises(WorkerRegistrationError, match="'once' is registered already") as raised:

        @monque.worker("once")
        async def second(job: Job[None]) -> None:
            runs.add("second")

    assert raised.value.job_name == "once"
    assert "replace=True" in str(raised.value)
    async with monque:
        await monque.enqueue("once", None)
        await runs.reach(1)
    assert runs == ["first"]


@pytest.mark.parametrize("name", ["", " ", "with space", "tab\t", "x" * 256, None, 5, b"bytes"])
async def test_a_bad_name_is_refused(db: AsyncDatabase[dict[str, Any]], name: Any) -> None:
    with pytest.raises(InvalidJobError) as raised:
        Monque(db).worker(name, handle)
    assert raised.value.field == "name"


@pytest.mark.parametrize("concurrency", [0, -1, 1.5, "2", True, 2**40])
async def test_a_bad_concurrency_is_refused(
    db: AsyncDatabase[dict[str, Any]], concurrency: Any
) -> None:
    with pytest.raises(InvalidJobError, match="concurrency") as raised:
        Monque(db).worker("name", handle, concurrency=concurrency)
    assert raised.value.field == "concurrency"


@pytest.mark.parametrize("timeout", [0, -1, "2", True, float("nan"), float("inf")])
async def test_a_bad_timeout_is_refused(db: AsyncDatabase[dict[str, Any]], timeout: Any) -> None:
    with pytest.raises(InvalidJobError, match="timeout") as raised:
        Monque(db).worker("name", handle, timeout=timeout)
    assert raised.value.field == "timeout"


@pytest.mark.parametrize("handler", ["text", 5, [handle]])
async def test_what_cannot_be_called_is_refused(
    db: AsyncDatabase[dict[str, Any]], handler: Any
) -> None:
    monque = Monque(db)
    with pytest.raises(TypeError, match="handler of 'name' must be callable"):
        monque.worker("name", handler)
    monque.worker("name", handle)


async def nothing() -> None: ...
async def two(job: Job[Any], other: object) -> None: ...
async def by_name(*, job: Job[Any]) -> None: ...
async def named_more(job: Job[Any], *, other: object) -> None: ...
async def with_default(job: Job[Any], other: object = None) -> None: ...
async def any_number(*jobs: Job[Any]) -> None: ...


@pytest.mark.parametrize("handler", [nothing, two, by_name, named_more, lambda: None])
async def test_a_handler_that_cannot_be_called_with_a_job_is_refused_when_it_is_registered(
    db: AsyncDatabase[dict[str, Any]], handler: Any
) -> None:
    monque = Monque(db)
    expected = rf"of 'name' is called with one argument, the job, and .*{handler.__name__}\("
    with pytest.raises(TypeError, match=expected):
        monque.worker("name", handler)
    with pytest.raises(TypeError, match=expected):
        monque.worker("name")(handler)
    with pytest.raises(TypeError, match=expected):
        monque.reactive("orders", handler, name="name")
    monque.worker("name", handle)


@pytest.mark.parametrize(
    "handler",
    [
        with_default,
        any_number,
        functools.partial(two, other=1),
        AsyncMock(),
        [].append,
        dict,
    ],
    ids=["default", "any number", "partial", "mock", "written in C", "class"],
)
async def test_a_handler_may_be_whatever_can_be_called_with_a_job(
    db: AsyncDatabase[dict[str, Any]], handler: Any
) -> None:
    assert Monque(db).worker("name", handler) is handler


@pytest.mark.parametrize("kind", [Monque, SyncMonque])
async def test_a_decorator_without_parentheses_is_refused_with_the_correct_form(
    kind: Any, blocking_db: Database[dict[str, Any]]
) -> None:
    monque = kind(blocking_db)
    with pytest.raises(TypeError, match=r'on handle without .* @monque.worker\("send-email"\)'):
        monque.worker(handle)
    with pytest.raises(TypeError, match=r'on handle without .* @monque.reactive\("orders", name='):
        monque.reactive(handle)


async def test_a_worker_replaced_while_it_runs_finishes_and_its_slot_is_counted(
    any_db: AnyDatabase, db: AsyncDatabase[dict[str, Any]]
) -> None:
    monque = Monque(any_db, **NO_POLLS)
    runs = Tally[str]()
    may_end = asyncio.Event()

    @monque.worker("replaced", concurrency=1)
    async def old(job: Job[int]) -> None:
        runs.add(f"old {job.data}")
        await may_end.wait()
        runs.add("old done")

    monque.worker("probe", handle)
    await monque.enqueue_many("replaced", range(3))
    async with monque:
        await runs.reach(1)

        @monque.worker("replaced", concurrency=2, replace=True)
        async def new(job: Job[int]) -> None:
            runs.add(f"new {job.data}")
            if job.data == 1:
                await may_end.wait()

        # Two slots now, one of which the old handler still has: the other one is filled at once.
        await runs.reach(2)
        await look_at_the_queue(monque)
        assert runs == ["old 0", "new 1"]
        may_end.set()
        await runs.reach(4)

    assert sorted(runs) == ["new 1", "new 2", "old 0", "old done"]
    assert await count_by_status(db) == {"completed": 4}


async def test_a_replacement_with_fewer_slots_waits_for_inherited_runs(
    db: AsyncDatabase[dict[str, Any]],
) -> None:
    monque = Monque(db, **NO_POLLS)
    runs, gates = Tally[str](), [asyncio.Event() for _ in range(5)]

    @monque.worker("narrowed", concurrency=3)
    async def old(job: Job[int]) -> None:
        runs.add(f"old {job.data}")
        await gates[job.data].wait()

    monque.worker("probe", handle)
    happenings = Happenings(monque)
    await monque.enqueue_many("narrowed", range(5))
    async with monque:
        await runs.reach(3)

        @monque.worker("narrowed", concurrency=1, replace=True)
        async def new(job: Job[int]) -> None:
            runs.add(f"new {job.data}")
            await gates[job.data].wait()

        for inherited in (0, 1):
            gates[inherited].set()
            await happenings.reach("job:complete", 2 * inherited + 1)
            await look_at_the_queue(monque)
            assert len(runs) == 3, "there is no slot yet"
        gates[2].set()
        await runs.reach(4)
        for gate in gates:
            gate.set()
        await runs.reach(5)

    assert sorted(runs) == ["new 3", "new 4", "old 0", "old 1", "old 2"]


async def test_a_worker_may_be_replaced_while_it_is_idle(db: AsyncDatabase[dict[str, Any]]) -> None:
    monque = Monque(db, **NO_POLLS)
    runs = Tally[str]()

    @monque.worker("replaced")
    async def old(job: Job[None]) -> None:
        runs.add("old")

    async with monque:
        await monque.enqueue("replaced", None)
        await runs.reach(1)

        @monque.worker("replaced", replace=True)
        def new(job: Job[None]) -> None:
            runs.add("new")

        await monque.enqueue("replaced", None)
        await runs.reach(2)

    assert runs == ["old", "new"]


async def test_a_worker_added_while_running_is_served_at_once(any_db: AnyDatabase) -> None:
    monque = Monque(any_db, **NO_POLLS)
    runs = Tally[str]()

    async def note(job: Job[str]) -> None:
        runs.add(job.data)

    monque.worker("early", note)
    async with monque:
        await monque.enqueue("early", "early")
        await runs.reach(1)
        for number in range(3):
            await monque.enqueue(f"late-{number}", "stored before")
            await monque.enqueue(f"late-{number}", "due a little later", delay=0.3)
            monque.worker(f"late-{number}", note)
            await monque.enqueue(f"late-{number}", "stored after")
        await runs.reach(10)

    assert sorted(runs) == sorted(
        ["early"] + ["stored before", "stored after", "due a little later"] * 3
    )
