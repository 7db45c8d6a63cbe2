"""When the records of documents that are gone are deleted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal, TypeAlias

from monque_core.durations import Duration, to_timedelta
from monque_core.validation import check_choice, check_duration

CleanupWhen: TypeAlias = Literal["deleted", "unmatched", "never"]
CLEANUP_WHEN: Final[tuple[CleanupWhen, ...]] = ("deleted", "unmatched", "never")


@dataclass(frozen=True)
class Cleanup:
    """Which records are deleted, after no change for `keep_for` (seconds or a `timedelta`).

    "deleted": those whose source document is gone. "unmatched": also those whose document no
    longer matches the filter. "never": none.
    """

    when: CleanupWhen = "deleted"
    keep_for: Duration = timedelta(days=1)

    def __post_init__(self) -> None:
        """Check the options and convert the duration to a `timedelta`."""
        check_choice("cleanup.when", self.when, CLEANUP_WHEN)
        object.__setattr__(self, "keep_for", check_duration("cleanup.keep_for", self.keep_for))

    @property
    def quiet_time(self) -> timedelta:
        """Return `keep_for` as a `timedelta`."""
        return to_timedelta(self.keep_for)
