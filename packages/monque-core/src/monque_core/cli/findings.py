"""What `monque doctor` finds, and how it looks."""

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
class Finding:
    """Something that is as it should be, or not, and what to do about it."""

    level: Level
    subject: str
    message: str
    advice: str | None = None

    @property
    def record(self) -> dict[str, str]:
        """Give it as JSON."""
        return {key: value for key, value in asdict(self).items() if value is not None}


if TYPE_CHECKING:
    Database: TypeAlias = AsyncDatabase[dict[str, Any]]
    Check: TypeAlias = Callable[[Database, str], Awaitable[list[Finding]]]


def check(subject: str) -> Callable[[Check], Check]:
    """Make a refusal by the server a warning: not every user may ask everything."""

    def wrap(ask: Check) -> Check:
        @wraps(ask)
        async def guarded(db: Database, collection: str) -> list[Finding]:
            try:
                return await ask(db, collection)
            except OperationFailure as error:
                reason = (error.details or {}).get("errmsg") or str(error)
                return [Finding(WARNING, subject, f"cannot be checked: {reason}")]

        return guarded

    return wrap
