"""The watched fields of a task: it runs again only when they change."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from monque_core.display import brief_repr
from monque_core.tasks.documents import PLAIN, plain
from monque_core.validation import is_text, refusal

if TYPE_CHECKING:
    from bson.codec_options import CodecOptions

WatchSpec: TypeAlias = Collection[str] | Mapping[str, object]


@dataclass(frozen=True)
class Watch:
    """The watched part of a document, as a projection; without one, the whole document."""

    fields: Mapping[str, Any] | None = None
    """By dotted path: 1 for a field, otherwise an expression; never the `_id`."""

    @classmethod
    def parse(cls, spec: WatchSpec | None, codec: CodecOptions[Any] = PLAIN) -> Watch:
        """Return the watch of an option. The order of fields does not matter.

        The `_id` never changes, so a task that watches only the `_id` runs once per document.
        """
        if spec is None:
            return cls()
        given = _read(spec, codec)
        _refuse_collisions(path for path, _ in given)
        values = {path: value for path, value in given if not _is_of_id(path)}
        included = sorted(path for path, value in values.items() if _is_inclusion(value))
        # Computed fields have this order in the snapshot; fields of the document keep theirs.
        computed = {path: value for path, value in values.items() if not _is_inclusion(value)}
        return cls(dict.fromkeys(included, 1) | computed)

    def projection(self) -> dict[str, Any] | None:
        """Return the specification of a `$project` stage, None for the whole document."""
        return None if self.fields is None else {"_id": 1, **self.fields}


def _read(spec: object, codec: CodecOptions[Any]) -> list[tuple[str, Any]]:
    """Return the watched paths, each with 1 or its expression."""
    if isinstance(spec, str):
        raise refusal("watch", spec, f"a list of fields; did you mean [{brief_repr(spec)}]?")
    if not isinstance(spec, (Mapping, list, tuple, set, frozenset)):
        raise refusal("watch", spec, "None, a list of fields or a projection of them")
    if not spec:
        raise refusal("watch", spec, "None for the whole document, or hold at least one field")
    if isinstance(spec, Mapping):
        return list(_flattened(plain("watch", spec, codec)))
    return [(_check_path(path), 1) for path in spec]


def _flattened(projection: dict[str, Any], parent: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every path with its value, also those of nested documents."""
    for key, value in projection.items():
        path = _check_path(f"{parent}{key}")
        if isinstance(value, dict) and value and not any(key.startswith("$") for key in value):
            yield from _flattened(value, f"{path}.")
        else:
            yield path, _check_value(path, value)


def _check_path(path: object) -> str:
    allowed = "a field such as 'total' or 'customer.address'"
    if not is_text(path) or not path.strip():
        raise refusal("watch", path, allowed)
    for segment in path.split("."):
        if not segment.strip():
            raise refusal("watch", path, f"{allowed}, with a name before and after each dot")
        if segment.startswith("$"):
            raise refusal("watch", path, f"{allowed}; a name cannot begin with '$'")
        if "\0" in segment:
            raise refusal("watch", path, f"{allowed}, without a null character")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise refusal("watch", path, f"{allowed}, in characters that UTF-8 has") from None
    return path


def _check_value(path: str, value: object) -> object:
    """Return 1 or an expression; refuse exclusions, and what would never change."""
    option = f"watch[{brief_repr(path)}]"
    if _is_of_id(path) and value != 1:
        raise refusal(option, value, "1 or left out, since an _id never changes")
    if isinstance(value, (bool, int, float)):
        if value == 0:
            allowed = "1, since exclusions are refused: name the fields to watch instead"
            raise refusal(option, value, allowed)
        if value != 1:
            raise refusal(option, value, "1 to watch the field, or an expression")
    elif isinstance(value, str):
        if len(value) < 2 or not value.startswith("$"):
            hint = f"; did you mean '${value}'?" if value.strip("$ ") else ""
            raise refusal(option, value, f"1 or an expression, and no constant{hint}")
    elif isinstance(value, dict):
        if len(value) != 1:
            raise refusal(option, value, "1 or an expression, which has one operator")
    elif not isinstance(value, list) or not value:
        raise refusal(option, value, "1 or an expression, and no constant")
    return value


def _is_of_id(path: str) -> bool:
    return path.partition(".")[0] == "_id"


def _is_inclusion(value: object) -> bool:
    return isinstance(value, (bool, int, float))


def _refuse_collisions(paths: Iterable[str]) -> None:
    """Refuse a path given twice, and one inside of another."""
    seen: set[str] = set()
    for path in sorted(paths):
        if path in seen:
            raise ValueError(f"option watch names {brief_repr(path)} twice: name it once")
        segments = path.split(".")
        for end in range(1, len(segments)):
            above = ".".join(segments[:end])
            if above in seen:
                raise ValueError(
                    f"option watch names {brief_repr(above)} and {brief_repr(path)} inside of it: "
                    "name only one of them"
                )
        seen.add(path)
