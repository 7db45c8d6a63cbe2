"""The result of a check of `monque doctor`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from pymongo.errors import OperationFailure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pymongo.asynchronous.database import AsyncDatabase

Level: TypeAlias = Literal["ok", "warning", "problem"]
OK: Final = "ok"
WARNING: Final = "warning"
PROBLEM: Final = "problem"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check: a level, a message, and advice for what to do."""

    level: Level
    subject: str
    message: str
    advice: str | None = None

    @property
    def record(self) -> dict[str, str]:
        """Return it as a JSON object."""
        return {key: value for key, value in asdict(self).items() if value is not None}


if TYPE_CHECKING:
    Database: TypeAlias = AsyncDatabase[dict[str, Any]]
    Check: TypeAlias = Callable[[Database, str], Awaitable[list[CheckResult]]]


def check(subject: str) -> Callable[[Check], Check]:
    """Turn a permission error of the server into a warning, since the user may lack rights."""

    def wrap(run: Check) -> Check:
        @wraps(run)
        async def guarded(db: Database, collection: str) -> list[CheckResult]:
            try:
                return await run(db, collection)
            except OperationFailure as error:
                reason = (error.details or {}).get("errmsg") or str(error)
                return [CheckResult(WARNING, subject, f"not checked, the server refused: {reason}")]

        return guarded

    return wrap
