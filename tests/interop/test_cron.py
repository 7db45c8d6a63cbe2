"""Cron expressions fire at the same times in Node, and Node accepts all that are stored."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from monque_core import InvalidCronError, next_cron_run
from monque_core.jobs.cron import canonical_cron
from tests.interop.node_worker import NodeError

if TYPE_CHECKING:
    from tests.interop.node_worker import NodeWorker

_EXPRESSIONS = 400
_TICKS = 4
_LIMITS = {
    "second": (0, 59),
    "minute": (0, 59),
    "hour": (0, 23),
    "day": (1, 31),
    "month": (1, 12),
    "weekday": (0, 7),
}
_NAMES = {
    "month": ["jan", "FEB", "mar", "apr", "MAY", "jun", "jul", "aug", "sep", "oct", "NOV", "dec"],
    "weekday": ["SUN", "mon", "tue", "Wed", "thu", "fri", "SAT", "sun"],
}


def _any_expression(dice: random.Random) -> str:
    """Return five or six cron fields, sometimes fewer, with every syntax a field may have."""
    fields = [_any_field(dice, kind) for kind in _LIMITS]
    return " ".join(fields[-dice.choice([6, 6, 5, 5, 5, 5, 4, 3, 2, 1]) :])


def _any_field(dice: random.Random, kind: str) -> str:
    if dice.random() < 0.5:
        return dice.choice("***?")
    if kind == "weekday" and dice.random() < 0.2:
        return f"{_any_value(dice, kind)}#{dice.randint(1, 5)}"
    return ",".join(_any_item(dice, kind) for _ in range(dice.choice([1, 1, 1, 2, 3])))


def _any_item(dice: random.Random, kind: str) -> str:
    low, high = _LIMITS[kind]
    step = f"/{dice.randint(1, high)}"
    first, last = sorted(dice.randint(low, high) for _ in range(2))
    shapes = [_any_value(dice, kind)] * 4 + [f"{first}-{last}", f"{first}-{last}{step}"]
    shapes += [f"*{step}", f"?{step}", f"{first}{step}"]
    if kind == "day":
        shapes.append("L")
    if kind == "weekday":
        shapes.append(f"{_any_value(dice, kind)}L")
    return dice.choice(shapes)


def _any_value(dice: random.Random, kind: str) -> str:
    low, high = _LIMITS[kind]
    value = dice.randint(low, high)
    if kind in _NAMES and dice.random() < 0.3:
        return _NAMES[kind][value - low]
    return str(value)


async def _ticks_in_node(
    node_worker: NodeWorker, cron: str, after: datetime
) -> list[datetime] | None:
    try:
        return await node_worker.ticks(cron, after, _TICKS)
    except NodeError:
        return None


def _ticks(cron: str, after: datetime) -> list[datetime] | None:
    try:
        ticks = [next_cron_run(cron, after)]
        while len(ticks) < _TICKS:
            ticks.append(next_cron_run(cron, ticks[-1]))
    except InvalidCronError:
        return None
    return ticks


async def test_any_expression_fires_at_the_same_times_as_in_node(node_worker: NodeWorker) -> None:
    dice = random.Random(14)
    accepted = rewritten = 0
    for _ in range(_EXPRESSIONS):
        cron = _any_expression(dice)
        after = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=dice.randrange(10**8))
        here, there = _ticks(cron, after), await _ticks_in_node(node_worker, cron, after)
        if there is not None:
            accepted += 1
            assert here == there, cron
        elif here is not None:
            rewritten += 1
            # Node rejects a value that is named twice, but accepts the stored form.
            assert await _ticks_in_node(node_worker, canonical_cron(cron), after) == here, cron
    assert accepted > _EXPRESSIONS / 2
    assert rewritten > 10
