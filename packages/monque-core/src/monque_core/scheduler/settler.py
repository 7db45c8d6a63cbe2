"""Group commit of outcomes: while one write is under way, the next outcomes accumulate."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic

from monque_core.errors import MonqueConnectionError
from monque_core.scheduler.loop import Loop
from monque_core.scheduler.source import C, W
from monque_core.waiting import ExponentialPause, wait_for_event

if TYPE_CHECKING:
    from monque_core.clock import Clock
    from monque_core.scheduler.event_publisher import EventPublisher
    from monque_core.scheduler.runs import Runs
    from monque_core.scheduler.source import RunResult, Source

_LARGEST_GROUP = 1000
_MOST_ACCUMULATED = 1000
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 5.0
_LONGEST_PATIENCE = 30.0


@dataclass(slots=True)
class _Rejection:
    """An outcome that MongoDB rejects, before it was truncated, and when to retry it."""

    outcome: Any
    pause: ExponentialPause = field(
        default_factory=lambda: ExponentialPause(_FIRST_PAUSE, _LONGEST_PATIENCE)
    )
    retry_at: float | None = None
    is_reported: bool = False


class Settler(Loop, Generic[W, C]):
    """Writes the outcomes of runs, and keeps each until it is written or its claim is lost."""

    def __init__(
        self, source: Source[W, C], clock: Clock, runs: Runs[W], publisher: EventPublisher
    ) -> None:
        super().__init__(publisher.errored)
        self._source = source
        self._clock = clock
        self._runs = runs
        self._publisher = publisher
        self._waiting: list[RunResult[W]] = []
        self._rejected: dict[RunResult[W], _Rejection] = {}
        self._one_by_one = 0
        self._signal = asyncio.Event()

    def put(self, result: RunResult[W]) -> None:
        """Accept a result to be written."""
        result.run.stage = "settling"
        self._waiting.append(result)
        self._signal.set()

    async def _run(self) -> None:
        pause = ExponentialPause(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            # Do not keep settled results alive while there is nothing to do.
            group: list[RunResult[W]] = []
            await self._wait()
            self._signal.clear()
            await self._accumulate()
            while self._waiting:
                group = self._waiting[: 1 if self._one_by_one else _LARGEST_GROUP]
                self._one_by_one = max(0, self._one_by_one - 1)
                try:
                    await self._settle(group)
                    pause.reset()
                except MonqueConnectionError as error:
                    self._publisher.errored(error)
                    await pause.sleep()
                except Exception as error:  # noqa: BLE001  # an outcome is kept until it is written
                    self._single_out(group, error)

    async def _accumulate(self) -> None:
        """Wait for results that arrive at the same time, as those of short jobs do.

        There is no timer: each iteration of the event loop that brings one more result allows
        one more iteration.
        """
        count = 0
        while count < len(self._waiting) < _MOST_ACCUMULATED:
            count = len(self._waiting)
            await asyncio.sleep(0)

    async def _wait(self) -> None:
        """Wait for results, or until it is time to retry one."""
        if not self._rejected:
            await self._signal.wait()
            return
        clock = asyncio.get_running_loop().time
        times = [one.retry_at for one in self._rejected.values() if one.retry_at is not None]
        await wait_for_event(self._signal, min(times) - clock() if times else None)
        now = clock()
        for result, rejection in self._rejected.items():
            if rejection.retry_at is not None and rejection.retry_at <= now:
                rejection.retry_at = None
                self._waiting.append(result)

    def _single_out(self, group: list[RunResult[W]], error: Exception) -> None:
        """Keep an outcome that MongoDB rejects from holding up the others."""
        if len(group) > 1:
            self._one_by_one = len(group)
            return
        (result,) = group
        rejection = self._rejected.setdefault(result, _Rejection(result.outcome))
        if self._source.truncate(result, error):
            self._one_by_one += 1
            return
        del self._waiting[0]
        # In full length, in case MongoDB accepts it then.
        result.outcome = rejection.outcome
        rejection.retry_at = asyncio.get_running_loop().time() + rejection.pause.lengthen()
        if not rejection.is_reported:
            rejection.is_reported = True
            self._source.report_write_error(result.run.work, error)

    async def _settle(self, group: list[RunResult[W]]) -> None:
        now = self._clock.now()
        verdicts = await self._source.settle(group, now)
        # Only now: a write that failed leaves them in the list.
        del self._waiting[: len(group)]
        for result, verdict in zip(group, verdicts, strict=True):
            if self._rejected:
                self._rejected.pop(result, None)
            if self._source.finalize(result, verdict, now):
                self._runs.discard(result.run)
            else:
                self.put(result)
