"""Logging exceptions that may do anything when they are shown."""

from __future__ import annotations

import contextlib
import logging

logger = logging.getLogger("monque")


def log(level: int, message: str, error: BaseException) -> None:
    """Log an error with its traceback, or without one if that cannot be put into words."""
    try:
        logger.log(level, "%s", message, exc_info=error)
    except Exception:  # noqa: BLE001  # a handler may let out what the exception raises
        with contextlib.suppress(Exception):
            logger.log(level, "%s", message)
