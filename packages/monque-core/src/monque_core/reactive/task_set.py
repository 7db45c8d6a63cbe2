"""What a leader has to plan: the declared tasks, by where their documents are."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import timedelta

    from monque_core.tasks.definition import Declaration


class TaskSet:
    """The tasks of all live processes, as the leader last read them."""

    def __init__(self) -> None:
        self._declarations: dict[str, Declaration] = {}
        self.broken: set[str] = set()
        """Tasks that cannot be planned for now; they are examined from scratch later."""
        self.parked: set[str] = set()
        """Tasks with documents that could not be planned for."""
        self._followed: dict[str, set[str]] = {}

    def __iter__(self) -> Iterator[Declaration]:
        return iter(list(self._declarations.values()))

    def __contains__(self, name: object) -> bool:
        return name in self._declarations

    def get(self, name: str) -> Declaration | None:
        """Give a task, None if nobody declares it any more."""
        return self._declarations.get(name)

    def replace(self, declarations: Iterable[Declaration]) -> None:
        """Take note of what is declared now."""
        self._declarations = {one.name: one for one in declarations}
        self.broken &= set(self._declarations)

    def of(self, database: str, collection: str) -> Sequence[Declaration]:
        """Give the tasks on a collection that can be planned."""
        return [
            one
            for one in self._declarations.values()
            if (one.database, one.collection) == (database, collection)
            and one.name not in self.broken
        ]

    def in_database(self, database: str) -> Sequence[Declaration]:
        """Give the tasks on all collections of a database."""
        return [one for one in self._declarations.values() if one.database == database]

    @property
    def places(self) -> dict[str, set[str]]:
        """Give the watched collections of each database."""
        places: defaultdict[str, set[str]] = defaultdict(set)
        for one in self._declarations.values():
            places[one.database].add(one.collection)
        return dict(places)

    def shortest_debounce(self, database: str) -> timedelta | None:
        """Tell which debounce of a database is the shortest."""
        return min((one.debounce for one in self.in_database(database)), default=None)

    def followed(self, database: str, collections: Iterable[str]) -> None:
        """Take note that changes in these collections, and no others, are seen from now on."""
        self._followed[database] = set(collections)

    def is_followed(self, declaration: Declaration) -> bool:
        """Tell whether no change of a task's documents is missed: only then can they be scanned."""
        return declaration.collection in self._followed.get(declaration.database, ())
