"""Job documents: camelCase in MongoDB, `Job` in Python."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import bson
from bson import ObjectId
from bson.raw_bson import RawBSONDocument

from monque_core.errors import InvalidJobError, MonqueError
from monque_core.jobs.cron import check_cron
from monque_core.jobs.fields import FIELDS
from monque_core.jobs.job import AnyJob, Job
from monque_core.store.lenient_decoding import Undecodable, undecodable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bson.codec_options import CodecOptions

    from monque_core.store.driver import Document

_SIZE_BYTES = 4
_ID = b"\x07_id\x00"
"""What BSON has before the twelve bytes of an ObjectId called `_id`."""
_READERS: Final = {field.key: (field.name, field.kind.exact, field.kind.read) for field in FIELDS}
_REQUIRED: Final = {field.name: field.key for field in FIELDS if field.is_required}
_REQUIRED_NAMES: Final = frozenset(_REQUIRED)
_NOTHING_KNOWN: Final[Mapping[str, Any]] = MappingProxyType({})


def _compile_writer() -> Callable[[AnyJob], Document]:
    """Return the function that writes every field of the table.

    It is compiled from source, as `dataclasses` does for `__init__`: a loop over the table takes
    twice as long, and every enqueued job pays for it.
    """
    always = ", ".join(
        f"{field.key!r}: job.{field.name}" for field in FIELDS if field.always_stored
    )
    lines = ["def write(job):", f"    document = {{{always}}}"]
    functions: dict[str, Any] = {}
    for field in FIELDS:
        if field.always_stored:
            continue
        value = "value"
        if field.kind.write is not None:
            functions[f"write_{field.name}"] = field.kind.write
            value = f"write_{field.name}(value)"
        test = "is not None" if field.default is None else f"!= {field.default!r}"
        lines.append(f"    if (value := job.{field.name}) {test}:")
        lines.append(f"        document[{field.key!r}] = {value}")
    lines.append("    return document")
    exec("\n".join(lines), functions)
    write: Callable[[AnyJob], Document] = functions["write"]
    return write


_write: Final = _compile_writer()


def to_document(job: AnyJob) -> Document:
    """Return the document of a job; an optional field with its default is absent, never null."""
    return _write(job)


def to_job(
    document: Mapping[str, Any],
    *,
    known: Mapping[str, Any] = _NOTHING_KNOWN,
    deduplicated: bool = False,
) -> AnyJob:
    """Return the job of a document; a stored null counts as absent.

    The attributes that are known already replace what the document has of them. Raise
    `InvalidJobError` for a document that cannot be a job.
    """
    if type(document) is Undecodable:
        raise undecodable(document["data"], document["_id"])
    # Calling Job(...) takes several times as long. Absent fields have their default in the class.
    job: AnyJob = object.__new__(Job)
    values = job.__dict__
    values["data"] = None
    for key, value in document.items():
        if value is not None and key in _READERS:
            name, exact, read = _READERS[key]
            if type(value) is exact or read is None:
                values[name] = value
            else:
                try:
                    values[name] = read(value)
                except ValueError:
                    raise unreadable(key, value, document.get("_id")) from None
    values.update(known)
    if not values.keys() >= _REQUIRED_NAMES:
        _complete(values)
    if deduplicated:
        values["deduplicated"] = True
    return job


def attributes(document: Document) -> dict[str, Any]:
    """Return fields that this instance has written as attributes of a job."""
    return {_READERS[key][0]: value for key, value in document.items()}


def _complete(values: dict[str, Any]) -> None:
    """Fill in what other programs leave out; raise `InvalidJobError` for anything else."""
    job_id = values.setdefault("id", None)
    if isinstance(job_id, ObjectId):
        values.setdefault("created_at", job_id.generation_time)
        values.setdefault("updated_at", job_id.generation_time)
    for name, key in _REQUIRED.items():
        if name not in values:
            raise unreadable(key, None, job_id)


class BulkEncoder:
    """Encodes many jobs that differ in their ids and data only; the rest is encoded once."""

    def __init__(self, job: AnyJob, codec: CodecOptions[Any]) -> None:
        self._codec = codec
        shared = to_document(job)
        del shared["_id"], shared["data"]
        self._shared = bson.encode(shared, codec_options=codec)[_SIZE_BYTES:-1]
        self._size = len(_ID) + len(job.id.binary) + len(self._shared)

    def document(self, job: AnyJob) -> RawBSONDocument:
        """Return the document of one of the jobs, encoded as the driver sends it."""
        data = bson.encode({"data": job.data}, codec_options=self._codec)
        size = (self._size + len(data)).to_bytes(_SIZE_BYTES, "little")
        # The data comes last: its encoding ends with the byte that ends the document.
        return RawBSONDocument(
            b"".join((size, _ID, job.id.binary, self._shared, data[_SIZE_BYTES:]))
        )


def unreadable(field: str, value: object, job_id: object) -> InvalidJobError:
    """Return the error for a document that is not a job because of one field."""
    return InvalidJobError(
        field,
        value,
        f"the stored job cannot be read: {field} is {_described(value)}, "
        f"in the document {_brief(job_id)}",
    )


def schedule_problem(job_id: object, cron: object, timezone: object) -> InvalidJobError | None:
    """Return why this instance cannot compute the next run of a stored schedule, None if it can.

    Values that are not texts are left to `to_job`, which refuses the whole document.
    """
    if type(cron) is not str or (timezone is not None and type(timezone) is not str):
        return None
    try:
        check_cron(cron, timezone or "UTC")
    except MonqueError as error:
        problem = InvalidJobError(
            "repeatInterval",
            cron,
            f"the stored schedule {_brief(job_id)} cannot be read here and is left to workers that "
            f"can: {error}",
        )
        problem.__cause__ = error
        return problem
    return None


def _described(value: object) -> str:
    return "missing" if value is None else f"{_brief(value)} ({type(value).__name__})"


def _brief(value: object) -> str:
    return repr(str(value)[:50])
