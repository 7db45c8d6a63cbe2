"""Keeping the slots filled: snapshot, plan, claim, start.

One turn of the loop reads the state, asks `plan_claim` how much to claim, executes the plan, and
starts as many runs as slots are free. Without a plan it waits for a wake-up or the next poll. The
end of a run starts the next prefetched one at once, without waiting for a turn.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic

from monque_core.scheduler.claim_plan import plan_claim
from monque_core.scheduler.claim_state import ClaimState
from monque_core.scheduler.idle_tracker import IdleTracker
from monque_core.scheduler.loop import Loop
from monque_core.scheduler.runs import Run
from monque_core.scheduler.source import C, W
from monque_core.scheduler.wakeups import seconds_until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from monque_core.clock import Clock
    from monque_core.scheduler.backlog import Backlog
    from monque_core.scheduler.claim_plan import ClaimPlan
    from monque_core.scheduler.claimer import Claimer
    from monque_core.scheduler.event_publisher import EventPublisher
    from monque_core.scheduler.lookahead import Lookahead
    from monque_core.scheduler.runner import Runner
    from monque_core.scheduler.runs import Runs
    from monque_core.scheduler.settler import Settler
    from monque_core.scheduler.slots import Slots
    from monque_core.scheduler.source import RunResult, Source
    from monque_core.scheduler.wakeups import Wakeups

_LONGEST_PREFETCH_SECONDS = 1.0
_PAUSE_AFTER_FAULT = 0.2
_FIRST_WORKS = 5


class Dispatcher(Loop, Generic[W, C]):
    """Claims work for free slots and starts it."""

    def __init__(
        self,
        *,
        source: Source[W, C],
        claimer: Claimer[W, C],
        runner: Runner[W, C],
        settler: Settler[W, C],
        slots: Slots,
        backlog: Backlog[W],
        runs: Runs[W],
        wakeups: Wakeups,
        lookahead: Lookahead,
        clock: Clock,
        publisher: EventPublisher,
    ) -> None:
        super().__init__(publisher.errored)
        self._source = source
        self._workers = source.workers
        self._claimer = claimer
        self._runner = runner
        self._settler = settler
        self._slots = slots
        self._backlog = backlog
        self._runs = runs
        self._wakeups = wakeups
        self._lookahead = lookahead
        self._clock = clock
        self._state = ClaimState(slots, backlog, wakeups)
        self._timings = self._state.timings
        self._poison_guard = self._state.poison_guard
        self._next_poll = 0.0
        self._is_poll = False
        self._low_water: dict[str, int] = {}
        self._is_closing = False
        self._is_in_claim = False
        self.claims = 0
        """How many claims were made so far."""
        self.idle_tracker = IdleTracker()

    @property
    def is_claiming(self) -> bool:
        """Whether a claim is under way, or one has yet to be read back."""
        return self._is_in_claim or self._claimer.unconfirmed.is_unread

    def look_now(self) -> None:
        """Look at the queue for every worker as soon as possible."""
        self._next_poll = 0.0
        self._wakeups.poke()

    def look_ahead_again(self) -> None:
        """Ask again what becomes due, as after a worker was added."""
        self._lookahead.invalidate()
        self.look_now()

    def pause(self, name: str, until: datetime) -> None:
        """Start nothing of a name before that time, and release what is prefetched of it."""
        self._state.pauses.pause(name, seconds_until(until, self._clock.now()))
        for run in self._backlog.pop_all(name):
            self._release(run)
        self._wakeups.hint(name)
        self._state.publish_demand()
        self._slots.wake_others()

    def is_paused(self, name: str) -> bool:
        """Whether nothing of a name may start for now."""
        return self._state.pauses.is_paused(name)

    async def close(self) -> None:
        """Claim nothing more, and let a claim under way finish."""
        self._is_closing = True
        self._wakeups.poke()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def release_unstarted(self) -> None:
        """Release the claims that have no slot, also those that no reply confirmed."""
        for run in self._backlog.pop_overdue(float("inf")):
            self._release(run)
        await self._read_back_unconfirmed(is_last_look=True)

    async def _run(self) -> None:
        while not self._is_closing:
            self._wakeups.reset()
            try:
                await self._turn()
                self._went_well()
            except Exception as error:  # noqa: BLE001  # no fault may end the dispatcher
                self._complain(error)
                self.look_now()
                await asyncio.sleep(_PAUSE_AFTER_FAULT)

    async def _turn(self) -> None:
        """Claim if there is anything to claim, else wait for something to change."""
        await self._read_back_unconfirmed()
        self._release_overdue()
        self._start_ready()
        await self._lookahead.refresh()
        self._wakeups.ring(self._clock.now())
        self._poll_if_due()
        self._state.publish_demand()
        plan = plan_claim(self._state.snapshot())
        self._low_water.update(plan.low_water)
        pause = self._state.not_before - asyncio.get_running_loop().time()
        if not plan.demands:
            await self._wait()
        elif pause > 0:
            await self._wakeups.wait(pause)
        else:
            await self._claim(plan)

    def _poll_if_due(self) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._next_poll:
            self._next_poll = now + self._source.polling.gap()
            self._is_poll = not self._wakeups.is_expecting
            for name in self._workers.names:
                self._wakeups.hint(name)

    async def _claim(self, plan: ClaimPlan) -> None:
        for demand in plan.demands:
            self._wakeups.take(demand.name)
        self._state.publish_demand()
        is_poll, self._is_poll = self._is_poll, False
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        self._is_in_claim = True
        try:
            result = await self._claimer.claim(plan)
        finally:
            self._is_in_claim = False
        now = loop.time()
        self._next_poll = min(self._next_poll, now + self._source.polling.took(len(result.works)))
        self._state.learn(plan, result, now - asked_at)
        self._expect_rest(result.works)
        if is_poll:
            self._report_overdue(result.works)
        self._hold(result.works)
        if not self._is_closing:
            self._start_ready()
        self._state.publish_demand()
        self._slots.wake_others()
        if result.error is not None:
            raise result.error

    def _expect_rest(self, works: Sequence[W]) -> None:
        """Look again if work was claimed that another instance missed: this one's own is left."""
        for work in works[:_FIRST_WORKS]:
            due_at = self._source.due_at(work)
            if due_at is not None and self._wakeups.rank(work.name, due_at):
                self._wakeups.hint(work.name)

    def _report_overdue(self, works: Sequence[W]) -> None:
        """Report work that a poll has found, in case a wake-up should have come before."""
        due_at = self._source.due_at(works[0]) if works else None
        if due_at is not None:
            self._wakeups.overdue(due_at)

    async def _wait(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._slots.free_over_all() and not self._backlog:
            self.idle_tracker.mark_idle()
        if self._wakeups.is_expecting:
            self.idle_tracker.mark_stuck()
        until_due = seconds_until(self._wakeups.next_at(), self._clock.now())
        next_event = min(
            self._next_poll,
            self._lookahead.next_at,
            self._backlog.oldest() + _LONGEST_PREFETCH_SECONDS,
            self._poison_guard.isolated_until(now),
            self._claimer.unconfirmed.next_look(),
            self._state.pauses.next_end(),
        )
        await self._wakeups.wait(max(0.0, min(until_due, next_event - now)))

    async def _read_back_unconfirmed(self, *, is_last_look: bool = False) -> None:
        for attempt in self._claimer.unconfirmed.due(is_last_look=is_last_look):
            works = await self._claimer.read_back(attempt)
            held = {(run.work.id, run.work.claim_token) for run in self._runs}
            self._hold([work for work in works if (work.id, work.claim_token) not in held])

    def _hold(self, works: Sequence[W]) -> None:
        """Keep claims alive from now on, and let them wait for a slot."""
        now = asyncio.get_running_loop().time()
        runs = [Run(work, now) for work in works]
        pauses = self._state.pauses
        any_paused = bool(pauses)
        self.claims += len(runs)
        self._runs.add(runs)
        if runs:
            self.idle_tracker.mark_busy()
        for run in runs:
            if self._is_closing or (any_paused and pauses.is_paused(run.work.name)):
                self._release(run)
                continue
            self._backlog.add(run)
            if self._source.needs_isolation(run.work):
                self._poison_guard.isolate(run, now)

    def _start_ready(self) -> None:
        """Start the runs that have a slot."""
        if not self._backlog:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        while (run := self._backlog.pop_startable()) is not None:
            name = run.work.name
            self._wake_if_low(name)
            self._slots.take(name)
            run.stage = "running"
            run.started_at = now
            run.task = loop.create_task(self._runner.execute(run, self._ended))

    def _ended(self, run: Run[W], result: RunResult[W] | None) -> None:
        """Free the slot of a run, and settle its result unless its claim was lost."""
        name = run.work.name
        self._slots.give_back(name)
        if self._poison_guard.ended(run):
            self._wakeups.poke()
        self._timings.ran(name, asyncio.get_running_loop().time() - run.started_at)
        if result is None:
            self._runs.discard(run)
        else:
            self._settler.put(result)
        if self._is_closing:
            return
        if not self._wakeups.is_expecting and self._source.polling.looks_after_runs:
            self._wakeups.hint(name)
        self._start_ready()
        self._state.publish_demand()
        self._wake_if_low(name)
        if not (self._is_in_claim or self._wakeups.is_expecting or self._backlog):
            self.idle_tracker.mark_idle()

    def _wake_if_low(self, name: str) -> None:
        """Wake the dispatcher when few prefetched jobs of a name are left."""
        if self._wakeups.is_expecting and self._backlog.count(name) <= self._low_water.get(name, 0):
            self._wakeups.poke()

    def _release(self, run: Run[W]) -> None:
        self._settler.put(self._source.release(run))

    def _release_overdue(self) -> None:
        """Release prefetched jobs that found no slot in time."""
        before = asyncio.get_running_loop().time() - _LONGEST_PREFETCH_SECONDS
        for run in self._backlog.pop_overdue(before):
            self._timings.prefetched_too_long(run.work.name)
            self._release(run)
