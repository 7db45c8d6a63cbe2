"""Writing outcomes in groups: while one write is on its way, the next outcomes gather."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic

from monque_core.errors import MonqueConnectionError
from monque_core.scheduler.loop import Loop
from monque_core.scheduler.source import C, W

if TYPE_CHECKING:
    from monque_core.clock import Clock
    from monque_core.scheduler.announcer import Announcer
    from monque_core.scheduler.runs import Runs
    from monque_core.scheduler.source import Ending, Source

_LARGEST_GROUP = 1000
_LARGEST_GATHERING = 300
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 5.0


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
        self._signal = asyncio.Event()

    def put(self, ending: Ending[W]) -> None:
        """Hand over an ending to be written; it is kept until it is, or ownership is lost."""
        ending.run.stage = "settling"
        self._waiting.append(ending)
        self._signal.set()

    async def _run(self) -> None:
        pause = _FIRST_PAUSE
        one_by_one = 0
        while True:
            # What is settled is not held on to while there is nothing to do.
            group: list[Ending[W]] = []
            await self._signal.wait()
            self._signal.clear()
            await self._gather()
            while self._waiting:
                group = self._waiting[: 1 if one_by_one else _LARGEST_GROUP]
                one_by_one = max(0, one_by_one - 1)
                try:
                    await self._settle(group)
                    pause = _FIRST_PAUSE
                except Exception as error:  # noqa: BLE001  # an outcome is kept until it is written
                    self._announcer.errored(error)
                    if not isinstance(error, MonqueConnectionError):
                        one_by_one = max(one_by_one, self._single_out(group))
                    await asyncio.sleep(pause)
                    pause = min(_LONGEST_PAUSE, pause * 2)

    async def _gather(self) -> None:
        """Let those join that end right now, as short jobs do one after the other.

        Not a timer: each turn of the loop that brings one more allows for another turn.
        """
        count = 0
        while count < len(self._waiting) < _LARGEST_GATHERING:
            count = len(self._waiting)
            await asyncio.sleep(0)

    def _single_out(self, group: list[Ending[W]]) -> int:
        """Keep an outcome the server refuses from holding up the others."""
        if len(group) > 1:
            return len(group)
        self._waiting.append(self._waiting.pop(0))
        return 0

    async def _settle(self, group: list[Ending[W]]) -> None:
        now = self._clock.now()
        verdicts = await self._source.settle(group, now)
        # Only now are they no longer waiting: a write that failed leaves them where they are.
        del self._waiting[: len(group)]
        for ending, verdict in zip(group, verdicts, strict=True):
            if self._source.close(ending, verdict, now):
                self._runs.discard(ending.run)
            else:
                self.put(ending)
