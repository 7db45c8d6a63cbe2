"""Classification of write errors: whether one document is the cause."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pymongo import UpdateOne
from pymongo.errors import BulkWriteError, DocumentTooLarge, OperationFailure, WriteError

from monque_core.store.shard_key import BY_ID

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from monque_core.store.driver import Collection
    from monque_core.store.transitions import Transition

_TOO_LARGE: Final = frozenset({10334, 17419, 17420})
_BAD_VALUE: Final = 2
# The collection's validator refuses it, or it does not fit into the server's cache.
_UNFIT: Final = frozenset({121, 388})


@dataclass(frozen=True, slots=True)
class RejectedWrite:
    """A document that the server refused to change, and why."""

    position: int
    id: object
    error: WriteError


def is_too_large(error: BaseException) -> bool:
    """Whether a document would have exceeded the size limit of MongoDB."""
    if isinstance(error, WriteError) and error.code == _BAD_VALUE:
        # Inserts fail with this code, which also means many other things.
        return "too large" in str(error)
    return isinstance(error, DocumentTooLarge) or _has_only(error, _TOO_LARGE)


def is_document_error(error: BaseException) -> bool:
    """Whether a write was refused because of the document, so that others may succeed."""
    return is_too_large(error) or _has_only(error, _TOO_LARGE | _UNFIT)


async def write_each(
    collection: Collection, ids: Sequence[object], step: Transition
) -> tuple[int, list[RejectedWrite]]:
    """Repeat a refused update for each document by itself; return the matches and the refusals.

    This takes one round trip. An `update_many` ends at the first refusal, a bulk write does not.
    """
    requests = [UpdateOne({**step.filter, "_id": one}, step.update, hint=BY_ID) for one in ids]
    try:
        matched, _ = await collection.bulk_write(requests)
    except BulkWriteError as error:
        failures = error.details.get("writeErrors") or []
        if not failures:
            raise
        refused = [
            RejectedWrite(
                one["index"],
                ids[one["index"]],
                WriteError(one["errmsg"], one["code"], one),
            )
            for one in failures
        ]
        return int(error.details.get("nMatched", 0)), refused
    return matched, []


def _has_only(error: BaseException, codes: frozenset[int]) -> bool:
    found = list(_codes(error))
    return bool(found) and all(code in codes for code in found)


def _codes(error: BaseException) -> Iterable[int | None]:
    if isinstance(error, BulkWriteError):
        return [one.get("code") for one in error.details.get("writeErrors") or []]
    return [error.code] if isinstance(error, OperationFailure) else []
