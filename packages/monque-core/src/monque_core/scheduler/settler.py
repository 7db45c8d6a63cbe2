"""Writing outcomes in groups: while one write is on its way, the next outcomes gather."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

from monque_core.errors import MonqueConnectionError
from monque_core.scheduler.loop import Loop
from monque_core.scheduler.source import C, W

if TYPE_CHECKING:
    from monque_core.clock import Clock
    from monque_core.scheduler.announcer import Announcer
    from monque_core.scheduler.runs import Runs
    from monque_core.scheduler.source import Ending, Source

_LARGEST_GROUP = 1000
_LARGEST_GATHERING = 1000
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 5.0
_LONGEST_PATIENCE = 30.0


@dataclass(slots=True)
class _Refusal:
    """An outcome that MongoDB has refused, as it was meant, and when to try it again."""

    outcome: Any
    pause: float = 0.0
    retry_at: float | None = None
    is_told: bool = False


class Settler(Loop, Generic[W, C]):
    """The group commit of outcomes."""

    def __init__(
        self, source: Source[W, C], clock: Clock, runs: Runs[W], announcer: Announcer
    ) -> None:
        super().__init__(announcer.errored)
        self._source = source
        self._clock = clock
        self._runs = runs
        self._announcer = announcer
        self._waiting: list[Ending[W]] = []
        self._refused: dict[Ending[W], _Refusal] = {}
        self._one_by_one = 0
        self._signal = asyncio.Event()

    def put(self, ending: Ending[W]) -> None:
        """Hand over an ending to be written; it is kept until it is, or ownership is lost."""
        ending.run.stage = "settling"
        self._waiting.append(ending)
        self._signal.set()

    async def _run(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            # What is settled is not held on to while there is nothing to do.
            group: list[Ending[W]] = []
            await self._wait()
            self._signal.clear()
            await self._gather()
            while self._waiting:
                group = self._waiting[: 1 if self._one_by_one else _LARGEST_GROUP]
                self._one_by_one = max(0, self._one_by_one - 1)
                try:
                    await self._settle(group)
                    pause = _FIRST_PAUSE
                except MonqueConnectionError as error:
                    self._announcer.errored(error)
                    await asyncio.sleep(pause)
                    pause = min(_LONGEST_PAUSE, pause * 2)
                except Exception as error:  # noqa: BLE001  # an outcome is kept until it is written
                    self._single_out(group, error)

    async def _gather(self) -> None:
        """Let those join that end right now, as short jobs do one after the other.

        Not a timer: each turn of the loop that brings one more allows for another turn.
        """
        count = 0
        while count < len(self._waiting) < _LARGEST_GATHERING:
            count = len(self._waiting)
            await asyncio.sleep(0)

    async def _wait(self) -> None:
        """Wait for outcomes, or until it is time to try one again."""
        if not self._refused:
            await self._signal.wait()
            return
        times = [one.retry_at for one in self._refused.values() if one.retry_at is not None]
        try:
            async with asyncio.timeout_at(min(times, default=None)):
                await self._signal.wait()
        except TimeoutError:
            pass
        now = asyncio.get_running_loop().time()
        for ending, refusal in self._refused.items():
            if refusal.retry_at is not None and refusal.retry_at <= now:
                refusal.retry_at = None
                self._waiting.append(ending)

    def _single_out(self, group: list[Ending[W]], error: Exception) -> None:
        """Keep an outcome that the server refuses from holding up the others."""
        if len(group) > 1:
            self._one_by_one = len(group)
            return
        (ending,) = group
        refusal = self._refused.setdefault(ending, _Refusal(ending.outcome))
        if self._source.abridge(ending, error):
            self._one_by_one += 1
            return
        del self._waiting[0]
        # As it was meant, in case that MongoDB takes it then.
        ending.outcome = refusal.outcome
        refusal.pause = min(_LONGEST_PATIENCE, 2 * refusal.pause or _FIRST_PAUSE)
        refusal.retry_at = asyncio.get_running_loop().time() + refusal.pause
        if not refusal.is_told:
            refusal.is_told = True
            self._source.refused(ending.run.work, error)

    async def _settle(self, group: list[Ending[W]]) -> None:
        now = self._clock.now()
        verdicts = await self._source.settle(group, now)
        # Only now are they no longer waiting: a write that failed leaves them where they are.
        del self._waiting[: len(group)]
        for ending, verdict in zip(group, verdicts, strict=True):
            if self._refused:
                self._refused.pop(ending, None)
            if self._source.close(ending, verdict, now):
                self._runs.discard(ending.run)
            else:
                self.put(ending)
