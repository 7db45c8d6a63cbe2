"""What a handler gets: one run of a reactive task."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from monque_core.clock import truncate
from monque_core.display import brief_repr
from monque_core.durations import to_timedelta

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    from bson import ObjectId

    from monque_core.durations import Duration
    from monque_core.tasks.record import TaskRecord


class NoLongerMatches(BaseException):  # it ends a run and is not an error
    """The document is gone or no longer matches, so there is nothing to do.

    Not an `Exception`, so that a handler that catches those does not continue without a document.
    """


class TaskBackend(Protocol):
    """What a run needs from the engine while its handler runs."""

    def now(self) -> datetime:
        """Return the current time of the server."""
        ...

    async def document(
        self, record: TaskRecord, session: object, projection: Mapping[str, Any] | None
    ) -> dict[str, Any] | None:
        """Return the source document, None if it does not match."""
        ...

    async def complete(self, record: TaskRecord, session: object) -> None:
        """Complete the record inside the caller's transaction."""
        ...

    def pause(self, name: str, until: datetime) -> None:
        """Start no run of a task on this instance before a time."""
        ...


class BaseReactiveTask:
    """What the runs of `async def` and `def` handlers share."""

    def __init__(self, record: TaskRecord, backend: TaskBackend) -> None:
        self._record = record
        self._backend = backend
        self.deferred_until: datetime | None = None
        """When the handler has asked to run again; None if it has not."""
        self.session: object = None
        """The session in which the handler completed this run; its transaction may be over."""

    @property
    def is_in_transaction(self) -> bool:
        """Whether an open transaction of the handler completes this run."""
        return bool(getattr(self.session, "in_transaction", False))

    @property
    def id(self) -> ObjectId:
        """Return the id of the record."""
        return self._record.id

    @property
    def name(self) -> str:
        """Return the name of the task."""
        return self._record.task

    @property
    def data(self) -> Any:
        """Return the watched values, like `values`: the counterpart of a job's data."""
        return self._record.values

    @property
    def source_id(self) -> Any:
        """Return the `_id` of the source document."""
        return self._record.source_id

    @property
    def values(self) -> Any:
        """Return the watched values that this run is for, as they were planned."""
        return self._record.values

    @property
    def attempts(self) -> int:
        """Return how many runs were started for this state, including this one."""
        return self._record.attempts

    def defer(self, until: Duration | datetime) -> None:
        """Run again after this delay or at this time, instead of completing."""
        self.deferred_until = self._instant("defer", until)

    def throttle(self, until: Duration | datetime) -> None:
        """Start no run of this task on this instance during this delay, or before this time."""
        self._backend.pause(self.name, self._instant("throttle", until))

    def _instant(self, action: str, until: Duration | datetime) -> datetime:
        if isinstance(until, datetime):
            if until.utcoffset() is None:
                raise ValueError(
                    f"{action}({until!r}) has no time zone; make it aware, for example "
                    f"{until!r}.replace(tzinfo=timezone.utc)"
                )
            return truncate(until.astimezone(UTC))
        try:
            delay = to_timedelta(until)
        except ValueError as error:
            raise ValueError(f"{action}({brief_repr(until)}): {error}") from None
        if delay.total_seconds() < 0:
            raise ValueError(f"{action}({brief_repr(until)}) is negative")
        return truncate(self._backend.now() + delay)


class ReactiveTask(BaseReactiveTask):
    """One run of a reactive task, for an `async def` handler."""

    async def document(
        self, session: object = None, projection: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the source document as it is now.

        Ends the run as skipped if the document is gone or no longer matches the filter.
        """
        return _found(await self._backend.document(self._record, session, projection))

    async def complete(self, session: object) -> None:
        """Complete this run as part of the caller's transaction.

        Raises `OwnershipLostError`, which must abort the transaction, if another instance has taken
        over the run.
        """
        self.session = session
        await self._backend.complete(self._record, session)


class SyncReactiveTask(BaseReactiveTask):
    """One run of a reactive task, for a `def` handler, which runs in a thread."""

    def __init__(self, record: TaskRecord, backend: TaskBackend) -> None:
        super().__init__(record, backend)
        self._loop = asyncio.get_running_loop()

    def document(
        self, session: object = None, projection: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the source document as it is now.

        Ends the run as skipped if the document is gone or no longer matches the filter.
        """
        return _found(self._wait(self._backend.document(self._record, session, projection)))

    def complete(self, session: object) -> None:
        """Complete this run as part of the caller's transaction.

        Raises `OwnershipLostError`, which must abort the transaction, if another instance has taken
        over the run.
        """
        self.session = session
        self._wait(self._backend.complete(self._record, session))

    def throttle(self, until: Duration | datetime) -> None:
        """Start no run of this task on this instance during this delay, or before this time."""
        instant = self._instant("throttle", until)
        self._loop.call_soon_threadsafe(self._backend.pause, self.name, instant)

    def _wait(self, work: Any) -> Any:
        """Run a coroutine on the event loop, and wait for it in the handler's thread."""
        try:
            is_on_loop = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_on_loop = False
        if is_on_loop:
            work.close()
            raise RuntimeError("a SyncReactiveTask is for its handler's thread, not the event loop")
        future: Future[Any] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result()


def _found(document: dict[str, Any] | None) -> dict[str, Any]:
    if document is None:
        raise NoLongerMatches
    return document
