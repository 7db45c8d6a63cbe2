"""The shard key of the jobs collection, which every filter on it carries: the name.

With the name, a sharded cluster sends a command to the shard that has it, and to no other. A write
that finds and modifies one document is impossible without. `docs/scale.md` lists the commands that
ask all shards, and what each costs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from monque_core.store.expressions import one_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from monque_core.jobs.job import AnyJob
    from monque_core.store.driver import Document

BY_ID: Final = [("_id", 1)]
"""The hint of a command that lists ids.

An index that begins with the name fits such a filter, too. The planner would compare them at each
change of the data, and could choose to read every job of the name.
"""
_UNREADABLE: Final = "\N{REPLACEMENT CHARACTER}"


def of_names(names: Collection[object]) -> Document:
    """Match these names; match any if one is not as it is stored, as of a document by others."""
    if any(type(name) is not str or _UNREADABLE in name for name in names):
        return {}
    return {"name": one_of(list(dict.fromkeys(names)))}


def identified(jobs: Sequence[AnyJob]) -> Document:
    """Match these jobs."""
    return {"_id": one_of([job.id for job in jobs]), **of_names({job.name for job in jobs})}


def among(documents: Sequence[Document]) -> Document:
    """Match documents that were read with their ids and names."""
    ids = [document["_id"] for document in documents]
    return {"_id": {"$in": ids}, **of_names([document.get("name") for document in documents])}
