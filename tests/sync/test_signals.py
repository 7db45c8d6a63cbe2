"""Asking a worker process without asyncio to stop."""

from __future__ import annotations

import signal
import threading

import pytest

from monque_core import MonqueError
from monque_core.sync.signals import on_first_signal
from tests.support.quarantine import Quarantine

NUMBERS = [signal.SIGINT, signal.SIGTERM]


@pytest.mark.parametrize("number", NUMBERS)
def test_the_first_signal_calls_back_and_the_second_does_what_it_did(
    number: signal.Signals,
) -> None:
    heard: list[str] = []
    before = signal.signal(number, lambda *_: heard.append("outside"))
    try:
        with on_first_signal(lambda: heard.append("inside")):
            assert heard == []
            signal.raise_signal(number)
            assert heard == ["inside"]
            signal.raise_signal(number)
            assert heard == ["inside", "outside"]
    finally:
        signal.signal(number, before)


def test_one_signal_gives_back_both() -> None:
    before = [signal.getsignal(number) for number in NUMBERS]
    with on_first_signal(lambda: None):
        assert [signal.getsignal(number) for number in NUMBERS] != before
        signal.raise_signal(signal.SIGTERM)
        assert [signal.getsignal(number) for number in NUMBERS] == before


def test_signals_are_what_they_were_after_an_error() -> None:
    before = [signal.getsignal(number) for number in NUMBERS]
    with pytest.raises(ValueError, match="bad"), on_first_signal(lambda: None):
        raise ValueError("bad")

    assert [signal.getsignal(number) for number in NUMBERS] == before


def test_only_the_main_thread_can_wait_for_signals() -> None:
    before = [signal.getsignal(number) for number in NUMBERS]
    entered = threading.Event()

    def enter() -> None:
        with on_first_signal(lambda: None):
            entered.set()

    with pytest.raises(MonqueError, match=r"use start\(\) and stop\(\)"):
        Quarantine(enter).result()
    assert not entered.is_set()
    assert [signal.getsignal(number) for number in NUMBERS] == before
