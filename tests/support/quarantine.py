"""Blocking calls in a thread of their own, so that a deadlock cannot hang the test."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from tests.support.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable

R = TypeVar("R")


class Quarantine(Generic[R]):
    """A call in a daemon thread of its own."""

    def __init__(self, call: Callable[[], R]) -> None:
        self._call = call
        self._results: list[R] = []
        self._errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, name="aside", daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Return whether the call has returned or raised."""
        return not self._thread.is_alive()

    def result(self, seconds: float = PATIENCE) -> R:
        """Wait for the call; return its result or raise its error."""
        self._thread.join(seconds)
        assert self.is_done, f"after {seconds} s the call has not returned"
        if self._errors:
            raise self._errors[0]
        return self._results[0]

    def _run(self) -> None:
        try:
            self._results.append(self._call())
        except BaseException as error:
            self._errors.append(error)


def all_at_once(calls: int, call: Callable[[int], R]) -> list[R]:
    """Call in this many threads that start simultaneously; return the results in order."""
    together = threading.Barrier(calls)

    def begin(number: int) -> R:
        together.wait(120)
        return call(number)

    asides = [Quarantine(lambda number=number: begin(number)) for number in range(calls)]  # type: ignore[misc]  # mypy does not infer defaults
    return [aside.result() for aside in asides]
