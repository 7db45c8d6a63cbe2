"""What is met in a queue and cannot be run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rejected:
    """A document that was set aside instead of being handed out, so that it is met only once."""

    id: object
    error: Exception | None
    """Why; None if somebody else was quicker to set it aside, and tells of it."""
