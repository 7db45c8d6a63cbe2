"""What a process notices of itself: that it starves, and what it takes up."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults.lab.recorder import true_time

if TYPE_CHECKING:
    from tests.faults.lab.recorder import Recorder

_TICK = 0.1


def watch_for_starvation(recorder: Recorder, longest: float) -> None:
    """Write down when this process had no processor for a while, which is a fault, too."""

    def tick() -> None:
        while True:
            began = true_time()
            time.sleep(_TICK)
            late = (true_time() - began) / 1e9 - _TICK
            if late > longest:
                recorder.note("fault", kind="starved", began=began)

    threading.Thread(target=tick, daemon=True).start()


async def watch_vitals(recorder: Recorder) -> None:
    """Write down every second what this process takes up."""
    descriptors = Path("/proc/self/fd")
    while True:
        await asyncio.sleep(1)
        resident_pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        recorder.note(
            "vitals",
            memory=resident_pages * os.sysconf("SC_PAGE_SIZE"),
            threads=threading.active_count(),
            tasks=len(asyncio.all_tasks()),
            objects=len(gc.get_objects()),
            connections=sum(_is_socket(entry) for entry in descriptors.iterdir()),
        )


def _is_socket(entry: Path) -> bool:
    try:
        return str(entry.readlink()).startswith("socket:")
    except OSError:
        return False


async def watch_the_loop(recorder: Recorder, longest: float) -> None:
    """Write down when the event loop had no turn for a while."""
    while True:
        began = true_time()
        await asyncio.sleep(_TICK)
        late = (true_time() - began) / 1e9 - _TICK
        if late > longest:
            recorder.note("fault", kind="starved", began=began)
