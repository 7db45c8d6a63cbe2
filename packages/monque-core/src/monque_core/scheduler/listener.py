"""Following the change stream while it is worth its cost."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from monque_core.scheduler.loop import Loop, end
from monque_core.store.streams import ChangeStreamUnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monque_core.clock import Clock
    from monque_core.scheduler.announcer import Announcer
    from monque_core.scheduler.dispatcher import Dispatcher
    from monque_core.scheduler.polling import SteadyPolling
    from monque_core.scheduler.wakeups import Wakeups
    from monque_core.scheduler.workers import Workers
    from monque_core.store.changes import Change, Changes, ChangeStream

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 10.0
_BUSY_SECONDS = 1.0
_OWN_WRITES = 10_000


class Listener(Loop):
    """Turns changes of the collection into wake-ups; polling takes over whenever it cannot."""

    def __init__(
        self,
        changes: Changes,
        clock: Clock,
        workers: Workers,
        wakeups: Wakeups,
        dispatcher: Dispatcher[Any, Any],
        polling: SteadyPolling,
        announcer: Announcer,
    ) -> None:
        super().__init__(announcer.errored)
        self._changes = changes
        self._clock = clock
        self._workers = workers
        self._wakeups = wakeups
        self._dispatcher = dispatcher
        self._polling = polling
        self._announcer = announcer
        self._own: OrderedDict[str, None] = OrderedDict()
        self._reader: asyncio.Task[None] | None = None
        self._is_connected = False
        self._pause = _FIRST_PAUSE

    def ignore(self, job_ids: Sequence[object]) -> None:
        """Expect changes that were made here, and of which the dispatcher knows already."""
        self._own.update(dict.fromkeys(map(str, job_ids[-_OWN_WRITES:])))
        while len(self._own) > _OWN_WRITES:
            self._own.popitem(last=False)

    def follow_new_names(self) -> None:
        """Watch for the workers as they are now."""
        if self._reader is not None:
            self._reader.cancel()

    async def stop(self) -> None:
        """Close the stream and end."""
        await super().stop()
        self._disconnect()

    async def _run(self) -> None:
        while True:
            await self._dispatcher.idleness.wait()
            try:
                await self._follow()
            except ChangeStreamUnavailableError as error:
                self._announcer.stream_unavailable(str(error))
                return
            except Exception as error:  # noqa: BLE001  # whatever broke the stream, open a new one
                self._announcer.stream_failed(error)
                self._disconnect()
                await asyncio.sleep(self._pause)
                self._pause = min(_LONGEST_PAUSE, 2 * self._pause)

    async def _follow(self) -> None:
        """Read one stream until it is not worth it, the workers change, or it breaks.

        While nothing is idle it tells of nothing that could be run, yet the server goes through
        every write for it.
        """
        names = self._workers.names
        stream = await self._changes.open(names)
        self._pause = _FIRST_PAUSE
        self._reader = reader = asyncio.create_task(self._read(stream), name="monque-stream")
        if names != self._workers.names:
            # A worker came while the stream was being opened.
            reader.cancel()
        idleness = self._dispatcher.idleness
        toil = asyncio.create_task(idleness.wait_for_toil(_BUSY_SECONDS), name="monque-toil")
        try:
            await asyncio.wait([reader, toil], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._reader = None
            self._see_changes(connected=False)
            await end(toil)
            await end(reader)
            await stream.close()
        if not reader.cancelled():
            reader.result()

    async def _read(self, stream: ChangeStream) -> None:
        if not self._is_connected:
            self._is_connected = True
            self._announcer.stream_connected()
        # What happened before the stream was open is only seen by a look.
        self._see_changes(connected=True)
        while True:
            await self._dispatcher.idleness.wait()
            change = await stream.next()
            if change is not None:
                self._take(change)

    def _see_changes(self, *, connected: bool) -> None:
        """Poll seldom or often, and look at once: only a look shows what no stream told of."""
        self._polling.sees_changes = connected
        self._dispatcher.replan()

    def _take(self, change: Change) -> None:
        if change.is_insert and change.job_id in self._own:
            del self._own[change.job_id]
        elif change.due_at <= self._clock.now():
            self._wakeups.hint(change.name, 1)
        else:
            self._wakeups.hint_at(change.name, change.due_at)

    def _disconnect(self) -> None:
        if self._is_connected:
            self._is_connected = False
            self._announcer.stream_closed()
