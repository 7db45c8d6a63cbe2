"""Which reactive tasks this process runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monque_core.errors import WorkerRegistrationError
from monque_core.scheduler.workers import Worker, Workers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from monque_core.tasks.definition import Definition

Namespace = tuple[str, str]
"""A source collection: the names of its database and of itself."""


class TaskRegistry:
    """The tasks of this process, and the workers of each source collection."""

    def __init__(self) -> None:
        self._definitions: dict[str, Definition] = {}
        self._workers: dict[Namespace, Workers] = {}

    def add(self, definition: Definition, worker: Worker) -> None:
        """Register a task; its name must be its own, whatever collection it watches."""
        if definition.name in self._definitions:
            raise WorkerRegistrationError(
                definition.name,
                f"a reactive task named {definition.name!r} is registered already; "
                "each needs a name of its own, for its records are kept under it",
            )
        self._definitions[definition.name] = definition
        self._workers.setdefault(place_of(definition), Workers()).add(worker, replace=False)

    def __len__(self) -> int:
        return len(self._definitions)

    def __iter__(self) -> Iterator[Definition]:
        return iter(list(self._definitions.values()))

    def __getitem__(self, name: str) -> Definition:
        return self._definitions[name]

    def __contains__(self, name: object) -> bool:
        return name in self._definitions

    @property
    def definitions(self) -> Mapping[str, Definition]:
        """Give the tasks by their names; those that come later are in it, too."""
        return self._definitions

    @property
    def places(self) -> dict[Namespace, Workers]:
        """Give the workers of each source collection."""
        return dict(self._workers)


def place_of(definition: Definition) -> Namespace:
    """Tell where the documents of a task are."""
    return definition.declaration.database, definition.declaration.collection
