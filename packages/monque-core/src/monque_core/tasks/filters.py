"""The filter of a task: an ordinary query without operators that planning cannot evaluate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from monque_core.display import brief_repr
from monque_core.tasks.documents import plain
from monque_core.validation import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bson.codec_options import CodecOptions

_NO_DISTANCE: Final = (
    "sorts by distance, which a $match stage cannot; use $geoWithin with $centerSphere"
)
_REFUSED: Final = {
    "$where": "runs JavaScript, which a $match stage cannot; use $expr",
    "$near": _NO_DISTANCE,
    "$nearSphere": _NO_DISTANCE,
    "$text": "works in the first stage of a pipeline only, which monque needs itself; use $regex",
}
_QUOTED: Final = frozenset({"$literal", "$jsonSchema"})
"""Keys inside of these are not operators."""


def check_filter(filter: object, codec: CodecOptions[Any]) -> dict[str, Any]:
    """Return a filter in plain BSON types; None matches every document."""
    if filter is None:
        return {}
    if not isinstance(filter, Mapping):
        raise refusal("filter", filter, "None or a MongoDB query such as {'status': 'paid'}")
    checked = plain("filter", filter, codec)
    for path in _keys(checked):
        reason = _REFUSED.get(path[-1])
        if reason:
            raise ValueError(
                f"option filter={brief_repr(filter)} is not allowed: {'.'.join(path)} {reason}"
            )
    return checked


def _keys(document: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the path to every key that may be an operator."""
    level: list[tuple[tuple[str, ...], Any]] = [((), document)]
    while level:
        path, value = level.pop()
        if isinstance(value, dict):
            for key, child in value.items():
                yield (*path, key)
                if key not in _QUOTED:
                    level.append(((*path, key), child))
        elif isinstance(value, list):
            level.extend(((*path, str(index)), child) for index, child in enumerate(value))
