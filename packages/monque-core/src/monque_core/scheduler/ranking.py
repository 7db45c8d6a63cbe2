"""Which listener claims a job first, agreed upon without a message."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def rank(key: str, instance_id: str, listeners: Iterable[str]) -> int:
    """Return how many listeners come before this one, by rendezvous hashing.

    Every listener computes the same order. Listeners that disagree about who is there cost one
    claim that finds nothing, or one delay.
    """
    mine = _score(key, instance_id)
    return sum(_score(key, other) > mine for other in listeners if other != instance_id)


def _score(key: str, instance_id: str) -> bytes:
    return hashlib.blake2b(f"{instance_id}\n{key}".encode(), digest_size=8).digest()
