"""This instance among the others: who listens for new jobs, and the signals between them.

Two instances of each pool, those whose workers have the same names, are its *listeners*: they read
the change stream and watch due times. The others are on *standby*: they tail the signals, which
costs the server nothing while nobody sends one. A listener whose slots are filling up invites
instances on standby to take its seat.
"""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from monque_core.display import log
from monque_core.scheduler.loop import Loop, Periodic
from monque_core.scheduler.ranking import rank
from monque_core.store.cluster_signals import SignalsUnavailableError
from monque_core.store.listener_seats import SEATS, pool_of
from monque_core.waiting import ExponentialPause, wait_for_event

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence
    from datetime import datetime, timedelta

    from monque_core.store.cluster_signals import (
        ClusterSignals,
        Signal,
        SignalKind,
        SignalTail,
    )
    from monque_core.store.listener_seats import ListenerSeats

_INVITED: Final = 3
_SECONDS_BETWEEN_INVITATIONS: Final = 1.0
_LOAD_TO_INVITE: Final = 0.5
_SECONDS_PER_LOAD: Final = 0.05
"""Instances with more to do answer an invitation later."""
_LONGEST_CHECK_GAP: Final = 60.0
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 10.0
_MISSES_TO_EVICT: Final = 3
_SECONDS_OF_REST: Final = 5.0


class Cluster(Loop):
    """Receives signals, and holds or waits for a listener's seat."""

    def __init__(
        self,
        signals: ClusterSignals,
        seats: ListenerSeats,
        instance_id: str,
        *,
        names: Callable[[], Iterable[str]],
        load: Callable[[], float],
        wake: Callable[[Sequence[str]], None],
        changed: Callable[[], None],
        report: Callable[[BaseException], None],
    ) -> None:
        super().__init__(report)
        self._signals = signals
        self._seats = seats
        self._id = instance_id
        self._names = names
        self._load = load
        self._wake = wake
        self._changed = changed
        self._pool = ""
        self._listeners: Sequence[str] = ()
        self._is_hearing = False
        self._is_decided = asyncio.Event()
        self._has_left = False
        self._seating = asyncio.Lock()
        """Held while seats are read or taken, so that `_listeners` is what was read last."""
        self._inviter: str | None = None
        self._overdue: datetime | None = None
        self._chance = asyncio.Event()
        self._seat_is_lost = asyncio.Event()
        self._next_invitation = 0.0
        self._rests_until = 0.0
        self._misses = 0

    @property
    def is_listener(self) -> bool:
        """Whether this instance has a seat."""
        return self._id in self._listeners

    @property
    def is_standby(self) -> bool:
        """Whether others listen for this instance, and can wake it."""
        return self._is_hearing and bool(self._listeners) and not self.is_listener

    def rank(self, key: str) -> int:
        """Return how many listeners are to claim this before this one."""
        # Without signals, what is known of the others grows old.
        is_known = self._is_hearing and self.is_listener
        return rank(key, self._id, self._listeners) if is_known else 0

    def names_changed(self) -> None:
        """Move to the pool of the current workers."""
        self._rests_until = 0.0
        if not self.is_listener:
            self._forget_pool()
        self._seat_is_lost.set()
        self._chance.set()

    def found_overdue(self, due_at: datetime) -> None:
        """Take a seat from the listeners: only a poll has found what was due at this time."""
        if self.is_standby:
            self._overdue = due_at
            self._chance.set()

    async def take_seat(self) -> bool:
        """Take a listener's seat if one is free; whether this instance is to listen."""
        await self._is_decided.wait()
        self._chance.clear()
        self._seat_is_lost.clear()
        if not self._is_hearing:
            # Nobody could wake it.
            return True
        inviter, self._inviter = self._inviter, None
        overdue, self._overdue = self._overdue, None
        if asyncio.get_running_loop().time() < self._rests_until:
            return False
        async with self._seating:
            pool = await self._join()
            await self._seats.keep(pool)
            before = self._listeners
            seating = await self._seats.take(pool, over=inviter, overdue=overdue)
            self._set_listeners(seating.listening)
        if self.is_listener:
            self._misses = 0
            # Who was evicted may be alive.
            concerned = {*before, *seating.listening, *seating.evicted} - {self._id}
            if concerned:
                await self._send("listeners", sorted(concerned))
            await self._offer_free_seats()
        return self.is_listener

    async def wait_for_chance(self) -> None:
        """Wait until a seat may be free, or to be sure at most about a minute."""
        rest = self._rests_until - asyncio.get_running_loop().time()
        seconds = rest if rest > 0 else _LONGEST_CHECK_GAP * random.uniform(0.5, 1.0)
        await wait_for_event(self._chance, seconds)

    async def wait_until_seat_is_lost(self) -> None:
        """Wait until another instance has the seat, or this one may listen no more without one."""
        await self._seat_is_lost.wait()

    async def leave_seat(self, *, for_good: bool = False) -> None:
        """Leave the seat and invite others to take it; `for_good` also ends being woken."""
        if not self._pool:
            return
        self._has_left = for_good
        # Whatever is known here: a stop may have cut off the reply to taking a seat.
        async with self._seating:
            had_seat = await self._seats.leave(for_good=for_good)
            others = await self._read_listeners() if had_seat or self.is_listener else []
        if had_seat:
            invited = await self._seats.standby(self._pool, _INVITED)
            if others or invited:
                # Where nobody listens any more, everybody has to know.
                await self._send("vacancy", [*others, *invited] if others else None)
        if self._pool != pool_of(self._names()):
            self._forget_pool()

    async def invite(self) -> None:
        """Invite others to take over the seat if much of this instance is busy."""
        now = asyncio.get_running_loop().time()
        if not self.is_listener or now < self._next_invitation or self._load() < _LOAD_TO_INVITE:
            return
        self._next_invitation = now + _SECONDS_BETWEEN_INVITATIONS
        if invited := await self._seats.standby(self._pool, _INVITED):
            await self._send("invite", invited)

    async def call(self, names: Sequence[str], count: int) -> bool:
        """Wake so many instances on standby to look for work; whether there are any."""
        if not self._is_hearing or not self._pool:
            return False
        called = await self._seats.standby(self._pool, count)
        if called:
            await self._send("wake", called, names)
        return bool(called)

    async def check(self) -> None:
        """Read again who listens if this instance does, and offer a seat that is free."""
        if self._is_hearing and self.is_listener:
            await self._refresh()
            await self._offer_free_seats()

    async def missed(self, is_missed: object) -> None:
        """Record whether the other listener missed work; take its seat away if it always does."""
        self._misses = self._misses + 1 if is_missed else 0
        if self._misses < _MISSES_TO_EVICT or not self.is_listener:
            return
        self._misses = 0
        async with self._seating:
            evicted = [
                other
                for other in await self._seats.listeners(self._pool)
                if other.instance_id != self._id
            ]
            for other in evicted:
                await self._seats.evict(other)
            await self._read_listeners()
        invited = await self._seats.standby(self._pool, _INVITED)
        await self._send("vacancy", [*(other.instance_id for other in evicted), *invited])

    async def stop(self) -> None:
        """Close the tail and end."""
        await super().stop()
        self._is_hearing = False

    async def _run(self) -> None:
        pause = ExponentialPause(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            try:
                async with self._open_tail() as tail:
                    pause.reset()
                    while True:
                        signal = await tail.next()
                        if signal is not None:
                            await self._receive(signal)
            except SignalsUnavailableError:
                # Without signals this instance listens like all others of its kind.
                return
            except EOFError as error:
                # As after a failover, or when the collection was dropped.
                log(logging.DEBUG, f"the tail of the signals ended: {error}")
            except Exception as error:  # noqa: BLE001  # whatever broke the tail, open a new one
                self._complain(error)
            await pause.sleep()

    @asynccontextmanager
    async def _open_tail(self) -> AsyncIterator[SignalTail]:
        """Open the tail of the signals; while it is open, others can wake this instance."""
        try:
            tail = await self._signals.open(self._id)
            try:
                async with self._seating:
                    await self._join()
                self._set_hearing(is_hearing=True)
                yield tail
            finally:
                await tail.close()
        finally:
            self._set_hearing(is_hearing=False)

    async def _receive(self, signal: Signal) -> None:
        self._went_well()
        if signal.kind == "wake":
            self._wake(signal.names)
        elif signal.pool == self._pool:
            if signal.kind != "invite" or self.is_listener:
                await self._refresh()
            if not self._listeners and signal.kind == "listeners":
                self._chance.set()
            if signal.kind in ("invite", "vacancy") and not self.is_listener:
                self._answer(signal)

    def _answer(self, signal: Signal) -> None:
        """Try for a seat soon; instances with less to do are faster."""
        load = self._load()
        if signal.kind == "invite":
            if load >= _LOAD_TO_INVITE:
                return
            self._inviter = signal.sender
        # For a vacancy also an instance that is busy: it tries when it is idle again.
        seconds = load * _SECONDS_PER_LOAD + random.uniform(0, 0.005)
        asyncio.get_running_loop().call_later(seconds, self._chance.set)

    async def _offer_free_seats(self) -> None:
        """Invite others if not all seats are taken."""
        if not self.is_listener or len(self._listeners) >= SEATS:
            return
        if invited := await self._seats.standby(self._pool, _INVITED):
            await self._send("vacancy", invited)

    async def _refresh(self) -> None:
        """Read again who listens."""
        async with self._seating:
            was_listener = self.is_listener
            await self._read_listeners()
        if was_listener and not self.is_listener:
            # Whoever has taken the seat, or took it away, had a reason.
            self._rests_until = asyncio.get_running_loop().time() + _SECONDS_OF_REST
            self._seat_is_lost.set()

    async def _read_listeners(self) -> Sequence[str]:
        listening = [one.instance_id for one in await self._seats.listeners(self._pool)]
        self._set_listeners(listening)
        return listening

    async def _join(self) -> str:
        pool = pool_of(self._names())
        if pool != self._pool and not self._has_left:
            await self._seats.join(pool)
            self._pool = pool
        return pool

    def _forget_pool(self) -> None:
        """Belong to no pool until the next try for a seat."""
        self._pool = ""
        self._set_listeners([])

    async def _send(
        self, kind: SignalKind, to: Sequence[str] | None, names: Sequence[str] = ()
    ) -> None:
        await self._signals.send(kind, sender=self._id, pool=self._pool, to=to, names=names)

    def _set_hearing(self, *, is_hearing: bool) -> None:
        was_standby, self._is_hearing = self.is_standby, is_hearing
        if was_standby != self.is_standby:
            self._changed()
        self._is_decided.set()
        self._chance.set()
        if is_hearing and not self.is_listener:
            self._seat_is_lost.set()

    def _set_listeners(self, listeners: Sequence[str]) -> None:
        was_standby, self._listeners = self.is_standby, listeners
        if was_standby != self.is_standby:
            self._changed()


class SeatCheck(Periodic):
    """Finds a listener that died, so that another takes its seat before it is missed."""

    def __init__(
        self, cluster: Cluster, interval: timedelta, report: Callable[[BaseException], None]
    ) -> None:
        super().__init__(report, interval)
        self._cluster = cluster

    async def _tick(self) -> None:
        await self._cluster.check()
