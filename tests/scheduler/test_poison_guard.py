"""Claims of a suspected poison job are held back while another one is isolated."""

from __future__ import annotations

from typing import Any

from monque_core.scheduler.poison_guard import PoisonGuard
from monque_core.scheduler.runs import Run


def test_a_name_with_a_waiting_suspect_is_held_while_another_is_isolated() -> None:
    guard, isolated = PoisonGuard(), Run[Any](None, 0.0)
    guard.looked_at(["a", "b"], set(), {"a"})
    assert not guard.is_held("a", 10.0)

    guard.isolate(isolated, 10.0)

    assert guard.is_held("a", 10.0)
    assert not guard.is_held("b", 10.0)
    # An isolation lasts at most one second.
    assert not guard.is_held("a", 11.0)
    guard.ended(isolated)
    assert not guard.is_held("a", 10.0)
