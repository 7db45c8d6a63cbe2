"""`WiringError`: everything that is wrong with the jobs of an application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monque_core import MonqueError

if TYPE_CHECKING:
    from collections.abc import Iterable


class WiringError(MonqueError):
    """The application cannot start; `problems` lists every reason."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        what = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        super().__init__("\n  - ".join([f"Monque cannot start, {what}:", *self.problems]))

    def __reduce__(self) -> tuple[type[WiringError], tuple[tuple[str, ...]]]:
        return (WiringError, (self.problems,))
