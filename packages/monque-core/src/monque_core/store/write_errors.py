"""Writes that the server refuses because of the document they are for, not because of others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pymongo import UpdateOne
from pymongo.errors import BulkWriteError, DocumentTooLarge, OperationFailure, WriteError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from monque_core.store.driver import Collection
    from monque_core.store.transitions import Transition

_TOO_LARGE: Final = frozenset({10334, 17419, 17420})
_BAD_VALUE: Final = 2
# A validator of the collection forbids it, or the server's cache cannot take it.
_UNFIT: Final = frozenset({121, 388})


@dataclass(frozen=True, slots=True)
class RejectedWrite:
    """A document that the server did not let us change, and why."""

    id: object
    error: WriteError


def is_too_large(error: BaseException) -> bool:
    """Tell whether a document would have grown beyond what MongoDB stores."""
    if isinstance(error, WriteError) and error.code == _BAD_VALUE:
        # What an insert is told, under a code that means many other things.
        return "too large" in str(error)
    return isinstance(error, DocumentTooLarge) or _has_only(error, _TOO_LARGE)


def is_document_error(error: BaseException) -> bool:
    """Tell whether a write was refused for what a document is, so that others may pass."""
    return is_too_large(error) or _has_only(error, _TOO_LARGE | _UNFIT)


async def write_each(
    collection: Collection, ids: Sequence[object], step: Transition
) -> tuple[int, list[RejectedWrite]]:
    """Do to each by itself what was refused for all; tell how many matched, and what was refused.

    Still one round trip: an update of many ends with the first refusal, these go on.
    """
    requests = [UpdateOne({**step.filter, "_id": one}, step.update) for one in ids]
    try:
        matched, _ = await collection.bulk_write(requests)
    except BulkWriteError as error:
        failures = error.details.get("writeErrors") or []
        if not failures:
            raise
        refused = [
            RejectedWrite(ids[one["index"]], WriteError(one["errmsg"], one["code"], one))
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
