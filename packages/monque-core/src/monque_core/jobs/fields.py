"""The table of a job's fields: everything else that concerns all fields is derived from it.

Drafting, reading, writing, the copy of a failed occurrence, the fields that a retry removes and
the table in `docs/reference/document-format.md` follow from `FIELDS`. To add a field, add an
attribute to `Job`, a row here and, if `enqueue` accepts it, a key to `EnqueueOptions`.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from monque_core.errors import InvalidJobError
from monque_core.jobs.field_kinds import (
    ANYTHING,
    COUNT,
    DATE,
    DOCUMENT_ID,
    MILLISECONDS,
    STATUS,
    TEXT,
    TOKEN,
    WHOLE_NUMBER,
    Kind,
)
from monque_core.jobs.job import Job
from monque_core.validation import (
    MILLISECOND,
    check_exact_duration,
    check_text,
    check_whole_number,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    Check: TypeAlias = Callable[[object], object]
    ClearedBy: TypeAlias = Literal["end of claim", "retry"]

LONGEST_KEY: Final = 1024


def check_unique_key(key: object) -> str:
    """Return a unique key that can be stored."""
    return check_text("unique_key", key, longest=LONGEST_KEY, spaces=True)


def _check_optional_key(key: object) -> str | None:
    return None if key is None else check_unique_key(key)


def check_priority(priority: object) -> int:
    """Return a priority; 0 is the lowest and the default."""
    return check_whole_number("priority", priority, least=0, error=InvalidJobError)


def check_max_retries(max_retries: object) -> int | None:
    """Return how many runs in all the job may have, None for the limit of the instance."""
    if max_retries is None:
        return None
    meaning = "the number of runs in all"
    return check_whole_number(
        "max_retries", max_retries, least=1, meaning=meaning, error=InvalidJobError
    )


def check_timeout(timeout: object) -> timedelta | None:
    """Return the time limit of one run, None for the limit of the worker."""
    if timeout is None:
        return None
    return check_exact_duration("timeout", timeout, least=MILLISECOND, error=InvalidJobError)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a stored job."""

    key: str
    """Its name in MongoDB."""
    name: str
    """Its attribute of `Job`."""
    type: str
    """What MongoDB stores, as the documentation names it."""
    meaning: str
    kind: Kind = ANYTHING
    _: KW_ONLY
    always_stored: bool = False
    """Whether it is stored even with its default; every other field is absent then."""
    check: Check | None = None
    """The validator of the option of `enqueue` with this name; None if there is no such option."""
    cleared_by: ClearedBy | None = None
    """What resets it. A retry also resets what the end of a claim does."""
    copied: bool = False
    """Whether the job that is left behind for a failed occurrence of a schedule has it."""

    @property
    def default(self) -> Any:
        """Return the value of the attribute while the field is absent."""
        return getattr(Job, self.name, None)

    @property
    def is_required(self) -> bool:
        """Whether a document without it is not a job."""
        return not hasattr(Job, self.name)


FIELDS: Final = (
    Field("_id", "id", "ObjectId", "", DOCUMENT_ID, always_stored=True),
    Field(
        "name",
        "name",
        "string",
        "the job name, which selects the worker",
        TEXT,
        always_stored=True,
        copied=True,
    ),
    Field("data", "data", "any", "what the handler gets", always_stored=True),
    Field(
        "status",
        "status",
        "string",
        "`pending`, `processing`, `completed`, `failed` or `cancelled`",
        STATUS,
        always_stored=True,
    ),
    Field(
        "nextRunAt",
        "next_run_at",
        "date",
        "when the job is due",
        DATE,
        always_stored=True,
        copied=True,
    ),
    Field("failCount", "fail_count", "int", "how many runs failed", COUNT, always_stored=True),
    Field("createdAt", "created_at", "date", "", DATE, always_stored=True),
    Field("updatedAt", "updated_at", "date", "", DATE, always_stored=True),
    Field(
        "failReason",
        "fail_reason",
        "string",
        "type and text of the last exception",
        cleared_by="retry",
    ),
    Field(
        "lockedAt",
        "locked_at",
        "date",
        "time of the claim or of its last heartbeat",
        cleared_by="end of claim",
    ),
    Field("claimedBy", "claimed_by", "string", "the id of the instance", cleared_by="end of claim"),
    Field(
        "lastHeartbeat",
        "last_heartbeat",
        "date",
        "time of the last heartbeat of the instance",
        cleared_by="end of claim",
    ),
    Field(
        "heartbeatInterval",
        "heartbeat_interval",
        "int, ms",
        "the heartbeat interval of the instance",
        cleared_by="end of claim",
    ),
    Field(
        "repeatInterval",
        "repeat_interval",
        "string",
        "the [cron expression](../concepts.md#expressions) of a recurring job",
        TEXT,
    ),
    Field(
        "uniqueKey",
        "unique_key",
        "string",
        "at most one pending or processing job has this name and key",
        check=_check_optional_key,
    ),
    Field(
        "claimToken",
        "claim_token",
        "ObjectId",
        "see [below](#claimtoken)",
        TOKEN,
        cleared_by="retry",
        copied=True,
    ),
    Field("claims", "claims", "int", "how often the job was claimed", COUNT, cleared_by="retry"),
    Field("claimedAt", "claimed_at", "date", "time of the last claim"),
    Field(
        "priority",
        "priority",
        "int > 0",
        "absent means 0, the lowest",
        COUNT,
        check=check_priority,
        copied=True,
    ),
    Field(
        "maxRetries",
        "max_retries",
        "int",
        "runs in all, if the job has its own limit",
        WHOLE_NUMBER,
        check=check_max_retries,
        copied=True,
    ),
    Field(
        "timeoutMs",
        "timeout",
        "int, ms",
        "maximum duration of a run, if the job has its own",
        MILLISECONDS,
        check=check_timeout,
        copied=True,
    ),
    Field(
        "timezone",
        "timezone",
        "string",
        "the IANA name of the time zone of `repeatInterval`; absent means UTC",
        TEXT,
    ),
)
OPTION_CHECKS: Final = {field.name: field.check for field in FIELDS if field.check is not None}
"""The validators of the options of `enqueue` that are stored as they are."""
COPIED: Final = tuple(field.name for field in FIELDS if field.copied)
CLEARED: Final = tuple(field for field in FIELDS if field.cleared_by is not None)
