"""The reactive tasks of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from monque_core.errors import WorkerRegistrationError
from monque_core.scheduler.workers import Worker, Workers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from monque_core.tasks.definition import Definition

Namespace = tuple[str, str]
"""A source collection: the names of its database and its own."""


class TaskRegistry:
    """The tasks of this process, and the workers of each source collection."""

    def __init__(self) -> None:
        self._definitions: dict[str, Definition] = {}
        self._workers: dict[Namespace, Workers] = {}

    def add(self, definition: Definition, worker: Worker) -> None:
        """Register a task; names are unique across all collections."""
        if definition.name in self._definitions:
            raise WorkerRegistrationError(
                definition.name,
                f"a reactive task named {definition.name!r} is registered already; "
                "each needs a unique name, under which its records are stored",
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
        """Return the tasks by name, a live view."""
        return self._definitions

    @property
    def places(self) -> dict[Namespace, Workers]:
        """Return the workers of each source collection."""
        return dict(self._workers)


def place_of(definition: Definition) -> Namespace:
    """Return the source collection of a task."""
    return definition.declaration.database, definition.declaration.collection
