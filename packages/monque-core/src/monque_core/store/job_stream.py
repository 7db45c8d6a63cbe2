"""The change stream of the jobs collection: which jobs become due, and when."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from monque_core.jobs.job import JobStatus
from monque_core.store.change_stream import ChangeStream, await_seconds, opened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from monque_core.store.driver import Collection, Document


@dataclass(frozen=True, slots=True)
class JobChange:
    """A job was inserted, became pending, or was moved in time."""

    job_id: str
    name: str
    due_at: datetime
    is_insert: bool


class JobStreams:
    """Opens change streams on the jobs collection."""

    def __init__(
        self, collection: Collection, *, blocking: bool, socket_timeout: float | None
    ) -> None:
        self._collection = collection
        self._await_ms = int(1000 * await_seconds(blocking=blocking, socket_timeout=socket_timeout))
        self._blocking = blocking

    async def open(self, names: Sequence[str]) -> JobStream:
        """Open a change stream on the jobs of these names, from now on."""
        native = await opened(self._collection.watch(_pipeline(names), self._await_ms))
        return JobStream(self._collection, native, blocking=self._blocking)


class JobStream(ChangeStream):
    """One open change stream on the jobs collection."""

    async def next(self) -> JobChange | None:
        """Return the next change, None if there was none for a while.

        Raise `EOFError` when the server has ended the stream, for example because the collection
        was dropped.
        """
        event = await self._next_event()
        if event is None:
            return None
        due_at, name = event.get("nextRunAt"), event.get("name")
        if not isinstance(due_at, datetime) or not isinstance(name, str):
            return None
        is_insert = event["operationType"] == "insert"
        return JobChange(str(event["documentKey"]["_id"]), name, due_at, is_insert)


def _pipeline(names: Sequence[str]) -> list[Document]:
    """Filter on the server: send only changes that make a job of these names due."""
    return [
        {
            "$match": {
                "$or": [
                    {"operationType": {"$in": ["insert", "replace"]}},
                    {
                        "operationType": "update",
                        "$or": [
                            {"updateDescription.updatedFields.status": JobStatus.PENDING},
                            {"updateDescription.updatedFields.nextRunAt": {"$exists": True}},
                        ],
                    },
                    {"operationType": {"$in": ["invalidate", "drop", "rename", "dropDatabase"]}},
                ]
            }
        },
        {
            "$match": {
                "$or": [
                    {
                        "fullDocument.name": {"$in": list(names)},
                        "fullDocument.status": JobStatus.PENDING,
                    },
                    {"operationType": {"$in": ["invalidate", "drop", "rename", "dropDatabase"]}},
                ]
            }
        },
        {
            "$project": {
                "operationType": 1,
                "documentKey": 1,
                "name": "$fullDocument.name",
                "nextRunAt": "$fullDocument.nextRunAt",
            }
        },
    ]
