"""Declarations of reactive tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monque_core.tasks.definition import define

if TYPE_CHECKING:
    from monque_core.tasks.definition import Declaration


def a_declaration(
    database: str = "shop", collection: str = "orders", name: str = "invoice", **options: Any
) -> Declaration:
    """Return the declaration of a task."""
    return define(database, collection, name=name, **options).declaration
