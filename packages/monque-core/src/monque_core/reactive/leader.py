"""The leader: the one instance that plans, for as long as it renews its lease."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from monque_core.durations import to_timedelta
from monque_core.errors import LeadershipLostError
from monque_core.scheduler.loop import Loop, end, finish, wait_until
from monque_core.store.tasks.planner_state import LEADER

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from datetime import timedelta

    from monque_core.options import Options
    from monque_core.reactive.task_event_publisher import TaskEventPublisher
    from monque_core.store.leases import Leases

_RENEWALS_PER_LEASE = 3
_LOOKS_PER_LEASE = 10
_PAUSE_AFTER_FAULT = 1.0
_LAST_WRITE_SECONDS = 2.0


class Leadership:
    """The lease of the leader: its term, and how long it is certainly held."""

    def __init__(self, leases: Leases, holder: str, duration: timedelta) -> None:
        self._leases = leases
        self._holder = holder
        self._duration = duration
        self._sure_until = 0.0
        self.term = 0

    async def take(self, *, new_term: bool = False) -> bool:
        """Take or renew the lease; return whether this instance holds it."""
        asked_at = asyncio.get_running_loop().time()
        grant = await self._leases.take(LEADER, self._holder, self._duration, new_term=new_term)
        if grant is None:
            return False
        # The server counts from a later time, so the lease lasts at least this long. Replies may
        # arrive in any order, so neither value may decrease.
        self._sure_until = max(self._sure_until, asked_at + self._duration.total_seconds())
        self.term = max(self.term, grant.term)
        return True

    async def is_free(self) -> bool:
        """Whether no other instance holds the lease."""
        lease = await self._leases.read(LEADER)
        return lease is None or lease.is_expired or lease.holder in {None, self._holder}

    async def begin_term(self) -> None:
        """Begin a new term, so that writes of ours that are still in flight are rejected."""
        if not await self.take(new_term=True):
            raise LeadershipLostError("another instance is the leader of the reactive tasks now")

    async def lay_down(self) -> None:
        """Release the lease, so that another instance can lead at once."""
        await self._leases.lay_down(LEADER, self._holder)

    @property
    def seconds_left(self) -> float:
        """Return for how many seconds no other instance can lead."""
        return self._sure_until - asyncio.get_running_loop().time()


class LeaderWork(Protocol):
    """What a leader does while it leads."""

    def lead(self, leadership: Leadership) -> Awaitable[None]:
        """Plan until cancelled."""
        ...


class Leader(Loop):
    """Waits for the lease, and plans while this instance holds it."""

    def __init__(
        self,
        leases: Leases,
        options: Options,
        planning: LeaderWork,
        publisher: TaskEventPublisher,
    ) -> None:
        super().__init__(publisher.errored)
        duration = to_timedelta(options.reactive_options.leader_lease)
        self._leadership = Leadership(leases, options.scheduler_instance_id, duration)
        self._gap = duration.total_seconds() / _RENEWALS_PER_LEASE
        self._look_gap = duration.total_seconds() / _LOOKS_PER_LEASE
        self._planning = planning
        self._instance_id = options.scheduler_instance_id
        self._publisher = publisher
        self.is_leading = False
        self.is_decided = asyncio.Event()
        """Set as soon as it is known whether this instance leads."""
        self.is_over = asyncio.Event()
        """Set while this instance does not lead."""

    async def _run(self) -> None:
        while True:
            if await self._leadership.is_free() and await self._take():
                await self._lead()
            else:
                self.is_over.set()
                self.is_decided.set()
            await asyncio.sleep(self._look_gap)

    async def _take(self) -> bool:
        try:
            # A new term: an earlier process with this instance id may have writes in flight.
            return await self._leadership.take(new_term=True)
        except asyncio.CancelledError:
            # It may have been granted anyway.
            await finish(self._lay_down())
            raise

    async def _lead(self) -> None:
        leadership = self._leadership
        self.is_leading = True
        self.is_over.clear()
        self.is_decided.set()
        self._publisher.leader_acquired(self._instance_id, leadership.term)
        renewing = asyncio.create_task(self._renew(), name="monque-leader-lease")
        planning = asyncio.create_task(self._plan(), name="monque-leader-plan")
        try:
            await asyncio.wait([renewing, planning], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.is_leading = False
            self.is_over.set()
            # If interrupted, it would leave a lease that nobody renews and nobody else can take.
            await finish(self._end_leadership(planning, renewing))

    async def _end_leadership(self, *tasks: asyncio.Task[None]) -> None:
        for task in tasks:
            await end(task)
        self._publisher.leader_lost(self._instance_id, self._leadership.term)
        await self._lay_down()

    async def _plan(self) -> None:
        """Plan, again after each error, until the lease is lost."""
        while True:
            try:
                await self._planning.lead(self._leadership)
                return
            except LeadershipLostError as error:
                self._report(error)
                return
            except Exception as error:  # noqa: BLE001  # no error may end planning
                self._report(error)
                await asyncio.sleep(_PAUSE_AFTER_FAULT)

    async def _renew(self) -> None:
        """Keep the lease, whatever else goes on; return when it is lost."""
        leadership = self._leadership
        while leadership.seconds_left > 0:
            pause = min(self._gap, leadership.seconds_left)
            await asyncio.sleep(max(0.0, pause))
            try:
                async with asyncio.timeout(max(0.0, leadership.seconds_left)):
                    if not await leadership.take():
                        return
            except TimeoutError:
                return
            except Exception as error:  # noqa: BLE001  # there is time for another try
                self._report(error)
                await asyncio.sleep(min(_PAUSE_AFTER_FAULT, max(0.0, leadership.seconds_left)))

    async def _lay_down(self) -> None:
        try:
            deadline = asyncio.get_running_loop().time() + _LAST_WRITE_SECONDS
            await wait_until(deadline, self._leadership.lay_down())
        except Exception as error:  # noqa: BLE001  # the lease runs out by itself
            self._report(error)
