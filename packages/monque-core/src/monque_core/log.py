"""Logging of untrusted texts and exceptions."""

from __future__ import annotations

import contextlib
import logging

from monque_core.display import escape

logger = logging.getLogger("monque")


def log(level: int, message: str, error: BaseException | None = None) -> None:
    """Log a message on one line, and the traceback of an error if it can be formatted."""
    line = escape(message)
    try:
        logger.log(level, "%s", line, exc_info=error)
    except Exception:  # noqa: BLE001  # a handler may let out what the exception raises
        with contextlib.suppress(Exception):
            logger.log(level, "%s", line)
