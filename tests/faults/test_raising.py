"""Handlers, middleware and listeners that raise anything that Python can raise."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import TYPE_CHECKING, Any

import pytest

from monque_core import Monque
from monque_core.display import escape
from monque_core.jobs.outcome import LONGEST_REASON
from tests.support.happenings import Happenings
from tests.support.polling import NO_POLLS
from tests.support.stored import count_by_status, stored_jobs
from tests.support.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core import Job

    Db = AsyncDatabase[dict[str, Any]]


class NumberForTextError(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]  # noqa: PLE0307  # that is the point


class ExitForTextError(Exception):
    def __str__(self) -> str:
        raise SystemExit(1)


class WordlessError(Exception):
    def __str__(self) -> str:
        raise ValueError

    __repr__ = __str__


class Trap(str):
    """A text that raises whatever is done to it."""

    __slots__ = ()

    def _raise(self, *_: object) -> Any:
        raise RuntimeError("a trap")

    __format__ = __len__ = __bool__ = __getitem__ = encode = _raise  # type: ignore[assignment]  # that is the point


class TrapForTextError(Exception):
    def __str__(self) -> str:
        return Trap("quite ordinary")


class NamelessKind(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]  # that is the point
        raise RuntimeError("no name")


class NamelessError(Exception, metaclass=NamelessKind):
    pass


class LiarError(Exception):
    @property  # type: ignore[misc]  # that is the point
    def __class__(self) -> Any:
        return StopIteration


class MuteError(Exception):
    @property  # type: ignore[misc]  # that is the point
    def __class__(self) -> Any:
        raise RuntimeError("it does not say what it is")


class UnpicklableError(Exception):
    def __reduce__(self) -> Any:
        raise RuntimeError("not to be pickled")


def recurse() -> None:
    recurse()


RAISED: dict[str, tuple[BaseException, str]] = {
    "number for text": (NumberForTextError(), "NumberForTextError: (its message cannot be read)"),
    "exit for text": (ExitForTextError(), "ExitForTextError: (its message cannot be read)"),
    "wordless": (WordlessError(), "WordlessError: (its message cannot be read)"),
    "trap for text": (TrapForTextError(), "TrapForTextError: quite ordinary"),
    "nameless": (NamelessError("said"), "Exception: said"),
    "liar": (LiarError("of a kind"), "LiarError: of a kind"),
    "mute": (MuteError("of no kind"), "MuteError: of no kind"),
    "unpicklable": (UnpicklableError("kept"), "UnpicklableError: kept"),
    "huge": (ValueError("x" * 20_000_000), "ValueError: xxxxx"),
    "zero": (ValueError("a\0b"), "ValueError: a\0b"),
    "surrogate": (ValueError("a\ud800b"), "ValueError: a?b"),
    "end of a loop": (StopAsyncIteration("over"), "StopAsyncIteration: over"),
    "exit": (SystemExit(3), "SystemExit: 3"),
    "interrupt": (KeyboardInterrupt("^C"), "KeyboardInterrupt: ^C"),
    "cancellation": (asyncio.CancelledError("by itself"), "CancelledError: by itself"),
    "end of a generator": (GeneratorExit("early"), "GeneratorExit: early"),
    "group": (
        BaseExceptionGroup("several", [KeyboardInterrupt(), ValueError()]),
        "BaseExceptionGroup: several (2 sub-exceptions)",
    ),
}


# Exceptions that pytest can handle when they are logged.
LOGGABLE = [name for name in RAISED if name not in {"huge", "surrogate"}]


def raise_it(job: Any) -> None:
    if job.data == "recursion":
        recurse()
    if job.data in RAISED:
        raise RAISED[job.data][0]


def register(monque: Monque, kind: str) -> None:
    """Run jobs whose handler, middleware or listener raises what the job asks for, in one slot."""

    async def on_the_loop(job: Job[str]) -> None:
        raise_it(job)

    async def nothing(job: Job[str]) -> None: ...

    async def around(job: Any, call_next: Callable[[], Any]) -> None:
        await call_next()
        raise_it(job)

    handlers: dict[str, Any] = {"coroutine": on_the_loop, "function": raise_it}
    monque.worker("raise", handlers.get(kind, nothing), concurrency=1)
    if kind == "middleware":
        monque.use(around)


@pytest.mark.parametrize("kind", ["coroutine", "function", "middleware"])
async def test_any_exception_fails_its_own_job_only(
    db: Db, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    monque = Monque(db, max_retries=1, **NO_POLLS)
    register(monque, kind)
    happenings = Happenings(monque)
    expected = {name: reason for name, (_, reason) in RAISED.items()}
    expected["recursion"] = "RecursionError: maximum recursion depth exceeded"

    await monque.enqueue_many("raise", list(expected))
    async with monque:
        failures = await happenings.reach("job:fail", len(expected))
        await monque.enqueue("raise", "nothing")
        await happenings.reach("job:complete")
        assert monque.is_healthy

    for job in await stored_jobs(db, status="failed"):
        assert str(job.fail_reason).startswith(expected[job.data]), job.data
        assert len(str(job.fail_reason)) <= LONGEST_REASON
    errors = {failure.job.data: failure.error for failure in failures}
    assert all(errors[name] is error for name, (error, _) in RAISED.items())
    assert await count_by_status(db) == {"failed": len(expected), "completed": 1}
    assert not happenings.of("job:error")
    del failures, errors
    gc.collect()
    assert not caplog.records, "asyncio complains of what nobody retrieved"


async def test_without_a_listener_every_exception_is_logged(
    db: Db, caplog: pytest.LogCaptureFixture
) -> None:
    monque = Monque(db, max_retries=1, **NO_POLLS)
    register(monque, "coroutine")
    await monque.enqueue_many("raise", [*LOGGABLE, "recursion"])
    await monque.run_until_idle()

    assert await count_by_status(db) == {"failed": len(LOGGABLE) + 1}
    assert {record.name for record in caplog.records} == {"monque"}
    told = [record.getMessage() for record in caplog.records]
    for name in LOGGABLE:
        assert any(escape(RAISED[name][1]) in message for message in told), name


@pytest.mark.parametrize("kind", ["at once", "in a task"])
async def test_exceptions_of_listeners_do_no_harm(
    db: Db, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    monque = Monque(db, **NO_POLLS)
    done = Tally[str]()

    @monque.worker("work", concurrency=1)
    async def work(job: Job[str]) -> None: ...

    def at_once(event: Any) -> None:
        raise_it(event.job)

    async def in_a_task(event: Any) -> None:
        await asyncio.sleep(0)
        raise_it(event.job)

    monque.on("job:complete", at_once if kind == "at once" else in_a_task)
    monque.on("job:complete", lambda event: done.add(event.job.data))
    await monque.enqueue_many("work", LOGGABLE)
    async with monque:
        await done.reach(len(LOGGABLE))
    gc.collect()

    assert await count_by_status(db) == {"completed": len(LOGGABLE)}
    assert {record.name for record in caplog.records} == {"monque"}
    told = [record.exc_info[1] for record in caplog.records if record.exc_info]
    # A cancelled task is not reported by asyncio, and one error cannot even be formatted.
    quiet = {"mute", "cancellation"} if kind == "in a task" else {"mute"}
    assert all(any(one is RAISED[name][0] for one in told) for name in {*LOGGABLE} - quiet)


async def test_an_exception_of_an_abandoned_thread_is_not_logged_by_asyncio(
    db: Db, caplog: pytest.LogCaptureFixture
) -> None:
    monque = Monque(db, **NO_POLLS)
    happenings = Happenings(monque)
    may_end, has_ended = threading.Event(), threading.Event()

    @monque.worker("stubborn")
    def wait(job: Job[None]) -> None:
        may_end.wait(120)
        has_ended.set()
        raise ValueError("too late")

    await monque.start()
    await monque.enqueue("stubborn", None)
    await happenings.reach("job:start")
    await monque.stop(timeout=0)
    may_end.set()
    await asyncio.to_thread(has_ended.wait, 120)
    # Give the thread time to hand over its exception.
    await asyncio.sleep(0.1)
    gc.collect()
    assert not caplog.records
