"""The tasks that a leader plans."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import timedelta

    from monque_core.tasks.definition import Declaration


class TaskSet:
    """The declared tasks of all instances, as the leader last read them."""

    def __init__(self) -> None:
        self._declarations: dict[str, Declaration] = {}
        self.broken: set[str] = set()
        """Tasks that cannot be planned until their next reconciliation."""
        self.parked: set[str] = set()
        """Tasks with documents that could not be planned."""
        self._followed: dict[str, set[str]] = {}

    def __iter__(self) -> Iterator[Declaration]:
        return iter(list(self._declarations.values()))

    def __contains__(self, name: object) -> bool:
        return name in self._declarations

    def get(self, name: str) -> Declaration | None:
        """Return a task, None if no instance declares it."""
        return self._declarations.get(name)

    def replace(self, declarations: Iterable[Declaration]) -> None:
        """Replace the declared tasks."""
        self._declarations = {one.name: one for one in declarations}
        self.broken &= set(self._declarations)

    def of(self, database: str, collection: str) -> Sequence[Declaration]:
        """Return the tasks on a collection that can be planned."""
        return [
            one
            for one in self._declarations.values()
            if (one.database, one.collection) == (database, collection)
            and one.name not in self.broken
        ]

    def in_database(self, database: str) -> Sequence[Declaration]:
        """Return the tasks on all collections of a database."""
        return [one for one in self._declarations.values() if one.database == database]

    @property
    def places(self) -> dict[str, set[str]]:
        """Return the watched collections of each database."""
        places: defaultdict[str, set[str]] = defaultdict(set)
        for one in self._declarations.values():
            places[one.database].add(one.collection)
        return dict(places)

    def shortest_debounce(self, database: str) -> timedelta | None:
        """Return the shortest debounce of a database, None if it has no tasks."""
        return min((one.debounce for one in self.in_database(database)), default=None)

    def followed(self, database: str, collections: Iterable[str]) -> None:
        """Record that the changes of exactly these collections of a database are followed."""
        self._followed[database] = set(collections)

    def is_followed(self, declaration: Declaration) -> bool:
        """Whether all changes of a task's documents are seen, so that they can be scanned."""
        return declaration.collection in self._followed.get(declaration.database, ())
