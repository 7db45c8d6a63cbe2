"""A process records its own CPU starvation and resource usage."""

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


def record_starvation(recorder: Recorder, longest: float) -> None:
    """Record when this process got no CPU time for a while, which counts as a fault."""

    def tick() -> None:
        while True:
            began = true_time()
            time.sleep(_TICK)
            late = (true_time() - began) / 1e9 - _TICK
            if late > longest:
                recorder.note("fault", kind="starved", began=began)

    threading.Thread(target=tick, daemon=True).start()


async def record_resource_usage(recorder: Recorder) -> None:
    """Record the resource usage of this process once per second."""
    descriptors = Path("/proc/self/fd")
    while True:
        await asyncio.sleep(1)
        resident_pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        recorder.note(
            "resource usage",
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


async def record_loop_stalls(recorder: Recorder, longest: float) -> None:
    """Record when the event loop was blocked for a while."""
    while True:
        began = true_time()
        await asyncio.sleep(_TICK)
        late = (true_time() - began) / 1e9 - _TICK
        if late > longest:
            recorder.note("fault", kind="starved", began=began)
