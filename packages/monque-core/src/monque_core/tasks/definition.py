"""The options of a reactive task, checked: what the leader plans by, and what its runs need."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, Required, TypeAlias, TypedDict, Unpack

from monque_core.durations import Duration, to_timedelta
from monque_core.jobs.retry import Exponential, Retry
from monque_core.tasks.documents import PLAIN, from_text, to_bytes, to_text
from monque_core.tasks.filters import check_filter
from monque_core.tasks.watch import Watch
from monque_core.validation import (
    check_choice,
    check_duration,
    check_flag,
    check_keywords,
    check_name,
    check_whole_number,
    is_collection_name,
    is_text,
    refusal,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bson.codec_options import CodecOptions

    from monque_core.durations import Duration
    from monque_core.tasks.watch import WatchSpec

CleanupWhen: TypeAlias = Literal["deleted", "unmatched", "never"]
CLEANUP_WHEN: Final[tuple[CleanupWhen, ...]] = ("deleted", "unmatched", "never")
VersionChange: TypeAlias = Literal["nothing", "failed", "all"]
VERSION_CHANGES: Final[tuple[VersionChange, ...]] = ("nothing", "failed", "all")
MAX_WAIT_DEBOUNCES: Final = 10
_LONGEST_NAMESPACE: Final = 255 - len("_tasks")
_UNWATCHABLE: Final = ("admin", "config", "local")


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


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """What the leader needs to plan a task, which may be one of another process."""

    name: str
    database: str
    collection: str
    watch: Watch
    filter: dict[str, Any]
    debounce: timedelta
    max_wait: timedelta
    reset_on_change: bool
    cleanup: Cleanup
    version: int
    on_version_change: VersionChange
    reconcile_on_change: bool

    @classmethod
    def restore(
        cls,
        *,
        database: str,
        collection: str,
        watch_text: str,
        filter_text: str,
        cleanup_when: CleanupWhen,
        keep_for: Duration,
        **options: Unpack[TaskOptions],
    ) -> Declaration:
        """Return a stored declaration, with the same checks as when it was declared."""
        options["watch"], options["filter"] = from_text(watch_text), from_text(filter_text)
        options["cleanup"] = Cleanup(cleanup_when, keep_for)
        return _declare(database, collection, PLAIN, options)

    @cached_property
    def filter_text(self) -> str:
        """Return the filter as extended JSON, as it is stored."""
        return to_text(self.filter)

    @cached_property
    def watch_text(self) -> str:
        """Return the projection of the watched fields as extended JSON, as it is stored."""
        return to_text(self.watch.projection())

    @cached_property
    def fingerprint(self) -> str:
        """Return a digest that changes with the filter or the watch."""
        content = {"filter": self.filter, "watch": self.watch.projection()}
        return hashlib.sha256(to_bytes(content)).hexdigest()


@dataclass(frozen=True)
class Definition:
    """A declaration, and what only a process that runs the task needs."""

    declaration: Declaration
    retry: Retry
    history: int
    """How many of its last runs a record keeps."""

    @property
    def name(self) -> str:
        """Return the name of the task."""
        return self.declaration.name


class TaskOptions(TypedDict, total=False):
    """The keyword arguments of `Monque.reactive`; durations are seconds or `timedelta`."""

    name: Required[str]
    watch: WatchSpec | None
    filter: Mapping[str, Any] | None
    debounce: Duration
    max_wait: Duration | None
    retry: Retry | None
    reset_on_change: bool
    cleanup: Cleanup | None
    history: int
    version: int
    on_version_change: VersionChange
    reconcile_on_change: bool


TASK_DEFAULTS: Final[Mapping[str, Any]] = {
    "watch": None,
    "filter": None,
    "debounce": 1.0,
    "max_wait": None,
    "retry": None,
    "reset_on_change": True,
    "cleanup": None,
    "history": 5,
    "version": 1,
    "on_version_change": "nothing",
    "reconcile_on_change": True,
}


def check_options(given: Mapping[str, object]) -> None:
    """Raise `TypeError` for unknown options of `Monque.reactive`, or if there is no name."""
    check_keywords("reactive", given, [*TaskOptions.__annotations__, "concurrency", "timeout"])
    if "name" not in given:
        raise TypeError('reactive() needs the name of the task: reactive("orders", name="invoice")')


def define(
    database: str,
    collection: str,
    *,
    codec: CodecOptions[Any] = PLAIN,
    **options: Unpack[TaskOptions],
) -> Definition:
    """Return a checked task; raise `ValueError` with the option, the value and the rule."""
    chosen = {**TASK_DEFAULTS, **options}
    return Definition(
        _declare(database, collection, codec, chosen),
        _check_retry(chosen["retry"]),
        check_whole_number("history", chosen["history"], least=0),
    )


def _declare(
    database: str, collection: str, codec: CodecOptions[Any], options: Mapping[str, Any]
) -> Declaration:
    quiet = check_duration("debounce", options["debounce"])
    on_version_change = options["on_version_change"]
    reconcile_on_change = options["reconcile_on_change"]
    return Declaration(
        name=check_name(options["name"]),
        database=_check_database(database),
        collection=_check_collection(collection, database),
        watch=Watch.parse(options["watch"], codec),
        filter=check_filter(options["filter"], codec),
        debounce=quiet,
        max_wait=_check_max_wait(options["max_wait"], quiet),
        reset_on_change=check_flag("reset_on_change", options["reset_on_change"]),
        cleanup=_check_cleanup(options["cleanup"]),
        version=check_whole_number("version", options["version"], least=1),
        on_version_change=check_choice("on_version_change", on_version_change, VERSION_CHANGES),
        reconcile_on_change=check_flag("reconcile_on_change", reconcile_on_change),
    )


def _check_database(database: object) -> str:
    allowed = 'a MongoDB database name: 1 to 63 bytes, without spaces and any of /\\."$*<>:|?'
    if not is_text(database) or re.search(r"[\s\x00\ud800-\udfff/\\.\"$*<>:|?]", database):
        raise refusal("database", database, allowed)
    if not 0 < len(database.encode("utf-8", "replace")) <= 63:
        raise refusal("database", database, allowed)
    if database in _UNWATCHABLE:
        owned = "one of your own: changes in admin, config and local cannot be watched"
        raise refusal("database", database, owned)
    return database


def _check_collection(collection: object, database: str) -> str:
    allowed = (
        "a MongoDB collection name: not empty, no '$', control character or half of a "
        "surrogate pair, no leading 'system.', no '.' at either end and no '..'"
    )
    if not is_collection_name(collection):
        raise refusal("collection", collection, allowed)
    size = len(f"{database}.{collection}".encode("utf-8", "replace"))
    if size > _LONGEST_NAMESPACE:
        allowed = (
            f"shorter: with its database it takes {size} bytes, and {_LONGEST_NAMESPACE} leave "
            "room for the name of its records"
        )
        raise refusal("collection", collection, allowed)
    return collection


def _check_max_wait(max_wait: object, debounce: timedelta) -> timedelta:
    wait = check_duration(
        "max_wait", MAX_WAIT_DEBOUNCES * debounce if max_wait is None else max_wait
    )
    if wait < debounce:
        raise refusal("max_wait", max_wait, f"no shorter than debounce, which is {debounce}")
    return wait


def _check_retry(retry: object) -> Retry:
    if retry is None:
        return Exponential()
    if not isinstance(retry, Retry):
        raise refusal(
            "retry", retry, "one of Exponential(…), Fixed(…), Linear(…), Series(…) and Cron(…)"
        )
    return retry


def _check_cleanup(cleanup: object) -> Cleanup:
    if cleanup is None:
        return Cleanup()
    if not isinstance(cleanup, Cleanup):
        raise refusal("cleanup", cleanup, "Cleanup(when=…, keep_for=…)")
    return cleanup
