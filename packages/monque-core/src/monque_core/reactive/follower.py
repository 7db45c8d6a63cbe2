"""Following the change stream of one database, and passing its changes to the planner."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from monque_core.durations import to_timedelta
from monque_core.errors import LeadershipLostError
from monque_core.reactive.change_buffer import ChangeBuffer
from monque_core.scheduler.loop import end, finish
from monque_core.store.change_stream import ChangeStreamUnavailableError
from monque_core.store.tasks.source_collections import HistoryLostError
from monque_core.waiting import ExponentialPause, wait_for_event

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from monque_core.clock import Clock
    from monque_core.options import ReactiveOptions
    from monque_core.reactive.leader import Leadership
    from monque_core.reactive.planner import Planner
    from monque_core.reactive.reconciler import Reconciler
    from monque_core.reactive.task_event_publisher import TaskEventPublisher
    from monque_core.reactive.task_set import TaskSet
    from monque_core.store.tasks.source_collections import SourceStream
    from monque_core.store.tasks.store import TaskStore

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 10.0
_SAVE_GAP = timedelta(seconds=10)
_UNWATCHED_GAP = 10.0
_HURRIED_AWAIT = timedelta(milliseconds=20)


class Follower:
    """Reads one change stream; while one batch is planned, the next one fills."""

    def __init__(
        self,
        database: str,
        store: TaskStore,
        task_set: TaskSet,
        planner: Planner,
        reconciler: Reconciler,
        leadership: Leadership,
        clock: Clock,
        options: ReactiveOptions,
        publisher: TaskEventPublisher,
    ) -> None:
        self._database = database
        self._store = store
        self._task_set = task_set
        self._planner = planner
        self._reconciler = reconciler
        self._leadership = leadership
        self._clock = clock
        self._flush_size = options.flush_size
        self._longest_linger = to_timedelta(options.flush_interval).total_seconds()
        self._publisher = publisher
        self._reading: asyncio.Task[None] | None = None
        self._is_reopen_requested = asyncio.Event()
        self._is_token_useless = False
        self._is_over = False
        self._pause = ExponentialPause(_FIRST_PAUSE, _LONGEST_PAUSE)
        self._catching_up: list[asyncio.Event] = []
        self._nearly_caught_up: list[asyncio.Event] = []
        self.collections: set[str] = set()
        """The collections that are followed, or will be soon."""

    def reopen(self) -> None:
        """Open the stream again for the collections that are watched now."""
        self._is_reopen_requested.set()
        if self._reading is not None:
            self._reading.cancel()

    async def catch_up(self) -> None:
        """Wait until everything that was written before this call is planned."""
        if self._is_over:
            return
        caught_up = asyncio.Event()
        self._catching_up.append(caught_up)
        self.reopen()
        await caught_up.wait()

    def give_up(self) -> None:
        """End all `catch_up` calls, as the follower has ended."""
        self._is_over = True
        for caught_up in self._catching_up:
            caught_up.set()

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            try:
                await self._follow()
            except ChangeStreamUnavailableError as error:
                self._publisher.stream_unavailable(str(error))
                await self._poll()
            except LeadershipLostError:
                raise
            except Exception as error:  # noqa: BLE001  # any error: open a new stream
                self._publisher.stream_failed(error)
                await self._pause.sleep()

    async def _follow(self) -> None:
        """Follow one stream until the watched collections change, or it ends."""
        self.collections = collections = self._task_set.places.get(self._database, set())
        # Later callers may have written changes that the end of this stream does not include.
        self._nearly_caught_up = list(self._catching_up)
        stream = await self._open(collections)
        try:
            # From now on, no change is missed, so scans may begin.
            self._task_set.followed(self._database, collections)
            self._reconciler.poke()
            if self._catching_up == self._nearly_caught_up:
                await self._read_and_flush(stream)
        except HistoryLostError:
            # The token opens a stream that cannot continue. Retrying would not help.
            self._is_token_useless = True
            raise
        finally:
            await stream.close()

    async def _open(self, collections: Iterable[str]) -> SourceStream:
        """Resume after the last flush; without a usable token, request reconciliations."""
        state, sources = self._store.planner_state, self._store.sources
        hurried = _HURRIED_AWAIT if self._nearly_caught_up else None
        watched = sorted(collections)
        token = await state.load_token(self._database)
        if token is not None and not self._is_token_useless:
            try:
                return await sources.open(self._database, watched, token, longest_wait=hurried)
            except HistoryLostError as error:
                self._publisher.errored(error)
        stream = await sources.open(self._database, watched, longest_wait=hurried)
        try:
            if token is None:
                await self._examine_everything(but=await self._waiting(at_beginning=True))
            else:
                await self._examine_everything("the history of changes is lost")
            if stream.token:
                await self._save(stream.token)
                self._is_token_useless = False
        except BaseException:
            await stream.close()
            raise
        return stream

    async def _read_and_flush(self, stream: SourceStream) -> None:
        buffer = ChangeBuffer(self._flush_size, self._store.plan_writer.key)
        self._reading = reading = asyncio.create_task(
            self._read(stream, buffer), name="monque-follow"
        )
        flushing = asyncio.create_task(self._flush(buffer), name="monque-flush")
        try:
            await asyncio.wait([reading, flushing], return_when=asyncio.FIRST_COMPLETED)
            self._reading = None
            await end(reading)
            # The batch that is being planned must be written before any later one. Changes in the
            # buffer will be read again, as their token is not saved.
            buffer.close()
            await asyncio.wait([flushing])
        finally:
            self._reading = None
            await finish(_end_both(reading, flushing))
        for task in (reading, flushing):
            if not task.cancelled():
                task.result()

    async def _read(self, stream: SourceStream, buffer: ChangeBuffer) -> None:
        while True:
            try:
                change = await stream.next()
            except EOFError:
                # The database was dropped. Unless its token is saved, it is read again and again.
                await buffer.drain()
                return
            await buffer.put(change, stream.token)

    async def _flush(self, buffer: ChangeBuffer) -> None:
        saved: Mapping[str, Any] | None = None
        while True:
            gap = _HURRIED_AWAIT if self._nearly_caught_up else _SAVE_GAP
            await buffer.wait(gap, self._linger())
            if buffer.is_closed:
                return
            batch, token = buffer.take()
            if batch:
                await self._planner.flush(self._database, batch)
                if batch.replaced or self._task_set.broken:
                    self._reconciler.poke()
            if token is not None and token != saved:
                await self._save(token)
                saved = token
                self._pause.reset()
            buffer.planned()
            if self._nearly_caught_up and buffer.is_at_end and buffer.is_empty:
                self._report_caught_up()
                # Reopen with the usual, longer wait.
                self.reopen()

    def _report_caught_up(self) -> None:
        for caught_up in self._nearly_caught_up:
            caught_up.set()
            self._catching_up.remove(caught_up)
        self._nearly_caught_up = []

    def _linger(self) -> float:
        """Return for how many seconds a batch may fill: less than changes are debounced anyway."""
        debounce = self._task_set.shortest_debounce(self._database)
        if debounce is None:
            return self._longest_linger
        # Without debounce, 0: changes that arrive during a flush form the next batch anyway.
        return min(self._longest_linger, debounce.total_seconds() / 2)

    async def _save(self, token: Any) -> None:
        await self._store.planner_state.save_token(
            self._database, token, self._clock.now(), self._leadership.term
        )

    async def _examine_everything(
        self, reason: str = "it is not known what happened before", but: Collection[str] = ()
    ) -> None:
        """Request a reconciliation of every task of the database."""
        for declaration in self._task_set.in_database(self._database):
            if declaration.name not in but:
                now = self._clock.now()
                await self._store.planner_state.ask_reconcile(declaration.name, reason, now)
        self._reconciler.poke()

    async def _waiting(self, *, at_beginning: bool = False) -> set[str]:
        """Return the tasks with a pending reconciliation, all or only those not started yet."""
        declared = await self._store.planner_state.declarations(self._clock.now())
        return {
            task.declaration.name
            for task in declared
            if (asked := task.reconciliation) is not None
            and not (at_beginning and (asked.phase != "scan" or asked.after is not None))
        }

    async def _poll(self) -> None:
        """Request reconciliations periodically, as this server has no change streams."""
        while True:
            collections = self._task_set.places.get(self._database, set())
            self._task_set.followed(self._database, collections)
            self._is_reopen_requested.clear()
            self._nearly_caught_up = list(self._catching_up)
            # A running scan is not restarted, or a long one would never end.
            reason = "this server has no change streams"
            await self._examine_everything(reason, but=await self._waiting())
            self._report_caught_up()
            await wait_for_event(self._is_reopen_requested, _UNWATCHED_GAP)


async def _end_both(reading: asyncio.Task[None], flushing: asyncio.Task[None]) -> None:
    await end(reading)
    await end(flushing)
