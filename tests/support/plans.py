"""The query plans of the commands that a client sends."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pymongo import DeleteOne, MongoClient, ReplaceOne

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pymongo.database import Database

_EXPLAINED = {"find", "aggregate", "distinct", "findAndModify", "update", "delete"}
_KEPT = {
    "aggregate": ["pipeline", "cursor"],
    "distinct": ["key", "query"],
    "find": ["filter", "sort", "limit", "projection", "batchSize", "hint"],
    "findAndModify": ["query", "sort", "update", "upsert", "new", "hint"],
}
_JOBS = "monque_jobs"
_STATEMENTS = {"update": "updates", "delete": "deletes"}


@contextmanager
def crowded(uri: str, documents: Iterable[dict[str, Any]]) -> Iterator[Crowd]:
    """Yield a database with these jobs in it, dropped afterwards."""
    with MongoClient[dict[str, Any]](uri) as client:
        crowd = Crowd(client[f"test_{uuid4().hex}"], documents)
        yield crowd
        client.drop_database(crowd.db)


class Crowd:
    """A jobs collection that takes long to fill and is therefore shared by tests."""

    def __init__(self, db: Database[dict[str, Any]], documents: Iterable[dict[str, Any]]) -> None:
        self.db = db
        self._jobs = db[_JOBS]
        self._documents = {document["_id"]: document for document in documents}
        self._jobs.insert_many(self._documents.values(), ordered=False)

    @contextmanager
    def lent(self) -> Iterator[Database[dict[str, Any]]]:
        """Yield the database for one test, and afterwards restore what the test changed."""
        with self._jobs.watch([{"$project": {"documentKey": 1}}]) as changes:
            yield self.db
            last = self._jobs.insert_one({}).inserted_id
            keys = (change["documentKey"]["_id"] for change in changes)
            changed = {last, *takewhile(lambda key: key != last, keys)}
        strangers = [DeleteOne({"_id": key}) for key in changed - self._documents.keys()]
        originals = [
            ReplaceOne({"_id": key}, self._documents[key], upsert=True)
            for key in changed & self._documents.keys()
        ]
        # Delete first: new documents may hold the unique key of an original.
        self._jobs.bulk_write([*strangers, *originals])


@dataclass(slots=True)
class Plan:
    """The plan of one command, with what it examined and what it returned."""

    command: Mapping[str, Any]
    keys: int = 0
    docs: int = 0
    returned: int = 0
    stages: list[str] = field(default_factory=list)
    indexes: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        return (
            f"{self.returned} returned, {self.keys} keys and {self.docs} documents examined by "
            f"{' '.join(self.stages)} on {sorted(self.indexes)} for {self.command}"
        )


class Plans:
    """Explains every command on a collection at the moment when it is sent.

    So each plan belongs to exactly that command, on exactly the data that it will see.
    """

    def __init__(self, db: Database[dict[str, Any]], collection_name: str = _JOBS) -> None:
        self._db = db
        self._collection_name = collection_name
        self.made: list[Plan] = []

    def explain(self, name: str, command: Mapping[str, Any]) -> None:
        """Explain a command that is about to be sent."""
        if name in _EXPLAINED and command[name] == self._collection_name:
            self.made += [self._plan(single) for single in _singles(name, command)]

    def _plan(self, command: dict[str, Any]) -> Plan:
        explained = self._db.command("explain", command, verbosity="executionStats")
        plan = Plan(command)
        for part in _parts_with("executionStats", explained):
            stats = part["executionStats"]
            plan.keys += stats["totalKeysExamined"]
            plan.docs += stats["totalDocsExamined"]
            plan.returned += _outcome(stats)
            for stage in _parts_with("stage", part["queryPlanner"]["winningPlan"]):
                plan.stages.append(stage["stage"])
                plan.indexes |= {stage["indexName"]} if "indexName" in stage else set()
        return plan


def assert_tight(plans: Plans, *, seeks: int = 0, count: int | None = None) -> None:
    """Assert that each plan examines hardly more than it returns.

    A range in an index costs one key more than it holds, so each range may cost up to two.
    """
    assert plans.made
    assert count is None or len(plans.made) == count
    for plan in plans.made:
        assert "COLLSCAN" not in plan.stages, str(plan)
        assert plan.keys <= 2 * plan.returned + 2 * seeks + 2, str(plan)
        assert plan.docs <= plan.returned + 2, str(plan)


def assert_sorted_by_the_index(plans: Sequence[Plan]) -> None:
    for plan in plans:
        assert "SORT" not in plan.stages, str(plan)


def _singles(name: str, command: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Reduce a command to what the server explains: one statement, no session."""
    if name in _STATEMENTS:
        statements = _STATEMENTS[name]
        for statement in command[statements]:
            yield {name: command[name], statements: [statement]}
    else:
        yield {name: command[name]} | {
            option: command[option] for option in _KEPT[name] if option in command
        }


def _outcome(stats: Mapping[str, Any]) -> int:
    """Return the number of documents that a read returned or a write would change or delete."""
    stage = stats["executionStages"]
    writes = [stage[count] for count in ("nMatched", "nWouldDelete") if count in stage]
    return max(int(count) for count in (stats["nReturned"], *writes))


def _parts_with(key: str, value: object) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if key in value:
            yield value
        for inner in value.values():
            yield from _parts_with(key, inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _parts_with(key, inner)
