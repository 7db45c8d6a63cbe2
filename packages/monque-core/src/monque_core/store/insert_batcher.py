"""New jobs that come while others are on their way, and go together."""

from __future__ import annotations

import asyncio
import contextvars
from copy import copy
from typing import TYPE_CHECKING

from pymongo import _csot

from monque_core.errors import MonqueConnectionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monque_core.jobs.job import AnyJob
    from monque_core.store.inserts import Inserts

_LARGEST_GROUP = 1000
_PATIENCE_SECONDS = 1.0


class InsertBatcher:
    """The group commit of new jobs: while one write is under way, the next jobs gather.

    No timer: a job that comes alone is written at once, by whoever stores it.
    """

    def __init__(self, intake: Inserts, *, in_place: bool) -> None:
        self._inserts = intake
        self._in_place = in_place
        self._desk: _Batcher | None = None

    async def store(self, job: AnyJob) -> AnyJob:
        """Insert a job, or give the active one that has its key."""
        # A deadline set by `pymongo.timeout` applies to the job of its caller only. PyMongo has no
        # public way to read it.
        if self._in_place or _csot.get_timeout() is not None:
            return await self._inserts.put(job)
        loop = asyncio.get_running_loop()
        if self._desk is None or self._desk.loop is not loop:
            self._desk = _Batcher(loop, self._inserts)
        return await self._desk.store(job)


class _PendingInsert:
    """A job that others write, and who waits for it."""

    __slots__ = ("group", "job", "stored")

    def __init__(self, job: AnyJob, stored: asyncio.Future[AnyJob]) -> None:
        self.job = job
        self.stored = stored
        self.group: _Group | None = None


class _Group:
    """Jobs on their way together, in a task that belongs to none of those who wait."""

    def __init__(self, arrivals: Sequence[_PendingInsert]) -> None:
        self.insert_batcher = arrivals
        self.task: asyncio.Task[None] | None = None
        for one in arrivals:
            one.group = self

    def is_abandoned(self) -> bool:
        return all(one.stored.done() for one in self.insert_batcher)


class _Batcher:
    """Where jobs arrive in one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, intake: Inserts) -> None:
        self.loop = loop
        self._inserts = intake
        self._under_way: object | None = None
        """The write that others wait for: one job's, or a group's."""
        self._groups: set[_Group] = set()
        self._waiting: list[_PendingInsert] = []
        self._patience: asyncio.TimerHandle | None = None

    async def store(self, job: AnyJob) -> AnyJob:
        if self._under_way is not None:
            return await self._join(job)
        self._under_way = mine = object()
        try:
            return await self._inserts.put(job)
        except MonqueConnectionError as error:
            self._broke_down(mine, error)
            raise
        finally:
            self._ended(mine)

    async def _join(self, job: AnyJob) -> AnyJob:
        """Wait for a group to be written; whoever gives up takes nobody else along."""
        arrival = _PendingInsert(job, self.loop.create_future())
        self._waiting.append(arrival)
        if self._patience is None:
            # One reply that never comes must not hold up those of the others.
            self._patience = self.loop.call_later(_PATIENCE_SECONDS, self._next)
        try:
            return await arrival.stored
        except asyncio.CancelledError:
            group = arrival.group
            if group is not None and group.task is not None and group.is_abandoned():
                # Not before its first step: a task cancelled earlier never runs, nor tells its end.
                self.loop.call_soon(group.task.cancel)
            raise

    def _ended(self, write: object) -> None:
        if self._under_way is write:
            self._next()

    def _next(self) -> None:
        """Write what has gathered."""
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        waiting = [one for one in self._waiting if not one.stored.done()]
        arrivals, self._waiting = waiting[:_LARGEST_GROUP], waiting[_LARGEST_GROUP:]
        self._under_way = None
        if arrivals:
            self._under_way = group = _Group(arrivals)
            self._groups.add(group)
            # With no one's context variables, such as the deadline of `pymongo.timeout`.
            context = contextvars.Context()
            group.task = self.loop.create_task(
                self._write(group), name="monque-arrivals", context=context
            )
        if self._waiting:
            self._patience = self.loop.call_later(_PATIENCE_SECONDS, self._next)

    async def _write(self, group: _Group) -> None:
        try:
            stored = await self._inserts.put_together([one.job for one in group.insert_batcher])
            for one, result in zip(group.insert_batcher, stored, strict=True):
                _tell(one, result)
        except Exception as error:  # noqa: BLE001  # it is for those who wait
            for one in group.insert_batcher:
                _tell(one, error)
            if isinstance(error, MonqueConnectionError):
                self._broke_down(group, error)
        finally:
            for one in group.insert_batcher:
                one.stored.cancel()
            self._groups.discard(group)
            self._ended(group)

    def _broke_down(self, write: object, error: MonqueConnectionError) -> None:
        """Tell those who waited for a write that MongoDB is away, instead of trying again."""
        if self._under_way is write:
            for one in self._waiting:
                _tell(one, error)


def _tell(arrival: _PendingInsert, result: AnyJob | Exception) -> None:
    if arrival.stored.done():
        return
    if isinstance(result, Exception):
        # Each its own: raising an exception writes the traceback into it.
        error = copy(result)
        error.__cause__ = result.__cause__
        arrival.stored.set_exception(error)
        # Whoever is cancelled at this very moment does not ask for it any more.
        arrival.stored.exception()
    else:
        arrival.stored.set_result(result)
