"""A list of observations that any thread may extend, and another thread may wait for."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from tests.support.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Record(list[T], Generic[T]):
    """A list to which any thread adds; a `Tally` for tests without an event loop."""

    def __init__(self) -> None:
        super().__init__()
        self._grown = threading.Condition()

    def add(self, item: T) -> None:
        with self._grown:
            self.append(item)
            self._grown.notify_all()

    def reach(self, count: int, seconds: float = PATIENCE) -> None:
        """Wait until the list has this many items."""
        self.wait_until(lambda: len(self) >= count, seconds)

    def wait_until(self, is_enough: Callable[[], bool], seconds: float = PATIENCE) -> None:
        """Wait until the list meets a condition."""
        with self._grown:
            assert self._grown.wait_for(is_enough, seconds), (
                f"after {seconds} s there are {len(self)}: {self[:10]}"
            )
