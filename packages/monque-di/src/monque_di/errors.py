"""What is wrong with an application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monque_core import MonqueError

if TYPE_CHECKING:
    from collections.abc import Iterable


class WiringError(MonqueError):
    """An application cannot start as it is put together; `problems` holds every reason."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        what = (
            "a mistake keeps" if len(self.problems) == 1 else f"{len(self.problems)} mistakes keep"
        )
        super().__init__("\n  - ".join([f"{what} Monque from starting:", *self.problems]))

    def __reduce__(self) -> tuple[type[WiringError], tuple[tuple[str, ...]]]:
        return (WiringError, (self.problems,))
