"""A Monque with a reactive task in a process of its own, which tests kill and freeze."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.worker_process import WorkerProcess

if TYPE_CHECKING:
    from typing import Literal

    Handler = Literal["quick", "waits", "kills"]


class ReactiveProcess(WorkerProcess):
    """`reactive_program`: one task, whose handler is quick, waits, or kills the process."""

    program = "tests.support.reactive_program"

    def __init__(
        self,
        uri: str,
        database: str,
        handler: Handler,
        *,
        pace: dict[str, Any],
        collection: str = "orders",
        **options: Any,
    ) -> None:
        super().__init__(uri, database)
        self._settings = {
            "uri": uri,
            "database": database,
            "handler": handler,
            "pace": pace,
            "collection": collection,
            "options": {"name": "invoice", "debounce": 0, **options},
        }
