"""Which commands a sharded cluster could send to the shards of their job names alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Filter: TypeAlias = "Mapping[str, Any]"
_STATEMENTS: Final = {"update": "updates", "delete": "deletes"}


@dataclass(frozen=True)
class Access:
    """One read or write on the jobs collection: one statement, or one stage of a pipeline."""

    kind: str
    filter: Filter
    needs_one_name: bool = False
    """Whether the server refuses it unless it goes to exactly one shard."""

    @property
    def fields(self) -> frozenset[str]:
        """The fields that the filter compares: of ids one, some that are listed, or a range."""
        return frozenset(
            _ids(value) if field == "_id" else field for field, value in _conditions(self.filter)
        )

    @property
    def is_targeted(self) -> bool:
        """Whether the filter has an equality or `$in` on the name."""
        conditions = [value for field, value in _conditions(self.filter) if field == "name"]
        return any(_is_one_name(value) for value in conditions) or (
            not self.needs_one_name and any(_is_some_names(value) for value in conditions)
        )


def accesses(command: Mapping[str, Any], collection_name: str) -> Iterator[Access]:
    """Yield what a command reads and writes in a collection."""
    kind = next(iter(command))
    if command[kind] != collection_name:
        return
    if kind in _STATEMENTS:
        for statement in command[_STATEMENTS[kind]]:
            yield Access(kind, statement["q"])
    elif kind == "aggregate":
        yield from _stages(command["pipeline"])
    elif kind == "findAndModify":
        yield Access(kind, command["query"], needs_one_name=True)
    elif kind == "find":
        yield Access(kind, command["filter"])
    elif kind in ("count", "distinct"):
        yield Access(kind, command.get("query", {}))


def _stages(pipeline: list[Mapping[str, Any]]) -> Iterator[Access]:
    first = next(iter(pipeline[0]))
    yield Access("aggregate" if first == "$match" else first, pipeline[0].get("$match", {}))
    for stage in pipeline[1:]:
        if "$unionWith" in stage:
            yield from _stages(stage["$unionWith"]["pipeline"])
        # These are forbidden with a sharded collection, or go to shards of their own.
        assert stage.keys().isdisjoint({"$merge", "$out", "$lookup", "$graphLookup"})


def _conditions(filter: Filter) -> Iterator[tuple[str, Any]]:
    for field, value in filter.items():
        if field == "$and":
            for part in value:
                yield from _conditions(part)
        else:
            yield field, value


def _ids(value: object) -> str:
    if not isinstance(value, dict):
        return "id"
    return "ids" if "$in" in value else "id-range"


def _is_one_name(value: object) -> bool:
    return isinstance(value, str)


def _is_some_names(value: object) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("$in"), list)
        and all(isinstance(name, str) for name in value["$in"])
    )


ON_ALL_SHARDS: Final[Mapping[str, frozenset[tuple[str, frozenset[str]]]]] = {
    name: frozenset((kind, frozenset(fields.split())) for kind, fields in shapes)
    for name, shapes in {
        "`get_job`, and the first read of `cancel_job`, `retry_job` and `reschedule_job`": [
            ("find", "id")
        ],
        "`delete_job`": [("delete", "id")],
        "lists, pages and bulk actions without a name": [
            ("find", ""),
            ("find", "id-range status"),
            ("find", "id-range status repeatInterval"),
            ("find", "id-range"),
        ],
        "`get_schedules` without a name": [("find", "repeatInterval status")],
        "statistics of all names, and the count of `retry_jobs` without a name": [
            ("aggregate", ""),
            ("aggregate", "status"),
        ],
        "the number of stored jobs": [("count", "")],
        "retention": [("find", "status updatedAt")],
        "recovery": [("find", "status"), ("distinct", "status"), ("find", "status $or")],
        "recovery of an instance whose process has ended": [("find", "status claimedBy")],
        "the check of the instance id at startup": [("find", "status claimedBy $or")],
        "quarantine of a document whose name is not text": [("update", "id status $or")],
        "the change stream": [("$changeStream", "")],
        "`monque doctor`": [
            ("$indexStats", ""),
            ("aggregate", "status $or"),
            ("aggregate", "status nextRunAt repeatInterval"),
            ("aggregate", "status claims $expr"),
            ("aggregate", "status failReason"),
            ("aggregate", "repeatInterval status"),
            ("aggregate", "repeatInterval status nextRunAt"),
        ],
    }.items()
}
"""What asks all shards on purpose: the kinds of commands, with the fields of their filters."""


def purpose_on_all_shards(access: Access) -> str | None:
    """Return for what an access without a name is allowed, None if it is not."""
    shape = (access.kind, access.fields)
    return next((name for name, shapes in ON_ALL_SHARDS.items() if shape in shapes), None)
