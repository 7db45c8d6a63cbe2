"""What reactive tasks are tested with: a source collection, and a pace that suits tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from monque_core import MonqueOptions, ReactiveOptions

if TYPE_CHECKING:
    from pymongo.asynchronous.collection import AsyncCollection
    from pymongo.asynchronous.database import AsyncDatabase


@pytest.fixture
def monque_options() -> MonqueOptions:
    """Let changes be planned at once."""
    return {"reactive_options": ReactiveOptions(flush_interval=0.01)}


@pytest.fixture
def orders(db: AsyncDatabase[dict[str, Any]]) -> AsyncCollection[dict[str, Any]]:
    """Give the source collection of most tests."""
    return db["orders"]
