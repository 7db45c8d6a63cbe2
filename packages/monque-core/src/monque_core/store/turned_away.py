"""What is met in a queue and cannot be run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TurnedAway:
    """A document that was set aside instead of being handed out, so that it is met only once."""

    id: object
    error: Exception
