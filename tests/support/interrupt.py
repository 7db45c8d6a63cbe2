"""Ctrl-C, sent from any thread."""

from __future__ import annotations

import signal
import threading


def interrupt_main_thread(number: signal.Signals = signal.SIGINT) -> None:
    """Send a signal that the main thread receives, even if another thread could."""
    ident = threading.main_thread().ident
    assert ident is not None
    signal.pthread_kill(ident, number)
