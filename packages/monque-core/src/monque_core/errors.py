"""The errors that monque raises; each is a `MonqueError`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monque_core.display import brief_repr, cut

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from bson import ObjectId

    from monque_core.jobs.job import AnyJob


_LONGEST_REASON = 300


class MonqueError(Exception):
    """Base class of all errors that monque raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle the error by its state, whatever arguments it was created with."""
        return _made_again, (type(self), self.args, self.__dict__)


def _made_again(
    kind: type[MonqueError], arguments: tuple[Any, ...], attributes: dict[str, Any]
) -> MonqueError:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(attributes)
    return error


class MonqueConnectionError(MonqueError):
    """MongoDB cannot be used: unreachable, too old, or the instance id is taken."""


class InvalidJobError(MonqueError, ValueError):
    """A job's name, key, time, payload or option is not acceptable."""

    def __init__(self, field: str, value: object, message: str) -> None:
        super().__init__(message)
        self.field = field
        self.value = value


class InvalidCronError(MonqueError, ValueError):
    """A cron expression does not parse, or never fires."""

    def __init__(self, expression: object, reason: str) -> None:
        super().__init__(
            f"invalid cron expression {brief_repr(expression)}: {cut(reason, _LONGEST_REASON)}; "
            "five fields are expected (minute hour day month weekday), "
            "for example '0 9 * * 1-5', six with seconds in front, or a shorthand such as @daily"
        )
        self.expression = expression


class PayloadTooLargeError(MonqueError, ValueError):
    """A payload is larger, in BSON bytes, than the queue accepts."""

    def __init__(self, actual_size: int, max_size: int) -> None:
        super().__init__(
            f"the payload takes {actual_size} bytes of BSON and at most {max_size} are allowed; "
            "store the bulk elsewhere and put a reference to it into the job"
        )
        self.actual_size = actual_size
        self.max_size = max_size


class WorkerRegistrationError(MonqueError):
    """A worker cannot be registered under this name."""

    def __init__(self, job_name: str, message: str) -> None:
        super().__init__(message)
        self.job_name = job_name


class JobStateError(MonqueError):
    """An action does not apply to a job in its current status."""

    def __init__(
        self, job_id: ObjectId, current_status: str, action: str, reason: str | None = None
    ) -> None:
        why = f", and {reason}" if reason else ""
        super().__init__(f"cannot {action} job {job_id}: it is {current_status}{why}")
        self.job_id = job_id
        self.current_status = current_status
        self.action = action


class InvalidCursorError(MonqueError, ValueError):
    """A page cursor was not made by monque, or was changed since."""


class ShutdownTimeoutError(MonqueError):
    """`stop()` ran out of time while jobs were still running."""

    def __init__(self, incomplete_jobs: Sequence[AnyJob]) -> None:
        names = ", ".join(sorted({job.name for job in incomplete_jobs}))
        super().__init__(f"stopped with {len(incomplete_jobs)} unfinished job(s): {names}")
        self.incomplete_jobs = tuple(incomplete_jobs)


class OwnershipLostError(MonqueError):
    """A run's claim was taken over by someone else, so its outcome was not written."""


class UnplannableError(MonqueError):
    """A document cannot be planned for: an expression fails on it, or its snapshot is too large."""

    def __init__(self, task: str, source_id: object, cause: Exception) -> None:
        super().__init__(
            f"the reactive task {task!r} cannot be planned for the document "
            f"{brief_repr(source_id)}, which is left out until it changes: {cause}"
        )
        self.task = task
        self.source_id = source_id
        self.__cause__ = cause


class LeadershipLostError(MonqueError):
    """Another instance is the leader by now, so the writes of this planner were refused."""


class AggregationTimeoutError(MonqueError):
    """The server's time limit ended a statistics query."""
