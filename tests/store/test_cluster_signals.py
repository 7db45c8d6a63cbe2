"""Signals between instances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from monque_core import Monque
from monque_core.store.cluster_signals import SignalsUnavailableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from monque_core.store.cluster_signals import ClusterSignals, Signal, SignalTail
    from tests.conftest import AnyDatabase


@pytest.fixture
async def signals(any_db: AnyDatabase) -> AsyncIterator[ClusterSignals]:
    monque = Monque(any_db)
    yield monque._store.signals
    await monque.stop()


async def received(tail: SignalTail, count: int) -> list[Signal]:
    found: list[Signal] = []
    while len(found) < count:
        signal = await tail.next()
        if signal is not None:
            found.append(signal)
    return found


async def test_a_signal_reaches_those_it_is_for(signals: ClusterSignals) -> None:
    tail = await signals.open("b")
    await signals.send("wake", sender="a", pool="p", to=["c"], names=["x"])
    await signals.send("wake", sender="a", pool="p", to=["b", "c"], names=["y", "z"])
    await signals.send("listeners", sender="a", pool="p")

    first, second = await received(tail, 2)

    assert (first.kind, first.sender, first.pool, first.names) == ("wake", "a", "p", ("y", "z"))
    assert (second.kind, second.names) == ("listeners", ())
    await tail.close()


async def test_a_signal_from_before_is_not_received(signals: ClusterSignals) -> None:
    earlier = await signals.open("b")
    await signals.send("wake", sender="early", pool="p")
    await received(earlier, 1)
    tail = await signals.open("b")
    await signals.send("wake", sender="late", pool="p")

    (signal,) = await received(tail, 1)

    # Of the same millisecond it may be received once more.
    assert signal.sender in {"late", "early"}
    await earlier.close()
    await tail.close()


async def test_what_is_not_a_signal_is_passed_over(
    signals: ClusterSignals, any_db: AnyDatabase
) -> None:
    tail = await signals.open("b")
    garbage: list[dict[str, Any]] = [
        {"kind": "unheard-of", "from": "a", "pool": "p", "names": []},
        {"kind": "wake", "from": 1, "pool": "p", "names": []},
        {"kind": "wake", "from": "a", "pool": None, "names": []},
        {"kind": "wake", "from": "a", "pool": "p", "names": 5},
    ]
    for one in garbage:
        await signals._put(one)
    await signals.send("wake", sender="a", pool="p", names=["x"])

    assert [signal.names for signal in await received(tail, 1)] == [("x",)]
    await tail.close()


async def test_a_collection_that_is_not_capped_has_no_signals(signals: ClusterSignals) -> None:
    await signals._collection.insert_one({"something": "else"})

    tail = await signals.open("a")

    with pytest.raises(SignalsUnavailableError):
        await tail.next()
