"""The data of a job arrives unchanged on the other side, whatever its type."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from bson import (
    Binary,
    Code,
    DBRef,
    Decimal128,
    Int64,
    MaxKey,
    MinKey,
    ObjectId,
    Regex,
    Timestamp,
    encode,
)
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument

from monque_core import Job, Monque
from tests.support.happenings import Happenings
from tests.support.tally import Tally

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from tests.interop.conftest import StartNodeWorker

_SAMPLES: dict[str, object] = {
    "double": 0.1,
    "whole double": 3.0,
    "infinity": float("-inf"),
    "string": "für Zoë 🚀",
    "empty string": "",
    "document": {"b": 1, "a": {"deep": [1, {"er": None}]}},
    "array": [1, "two", 3.5, []],
    "binary": Binary(b"\x00\xff\x10"),
    "old binary": Binary(b"abc", 2),
    "uuid": Binary(bytes(range(16)), 4),
    "old uuid": Binary(bytes(range(16)), 3),
    "user binary": Binary(b"mine", 128),
    "object id": ObjectId("6afa6f77d8b2ec0d89c0c50d"),
    "true": True,
    "false": False,
    "date": datetime(2026, 11, 18, 4, 5, 6, 789000, tzinfo=UTC),
    "early date": datetime(1931, 5, 17, tzinfo=UTC),
    "null": None,
    "regex": Regex("^a.b$", "im"),
    "code": Code("function () { return 1; }"),
    "code with scope": Code("function () { return n; }", {"n": 1}),
    "int": 2**31 - 1,
    "timestamp": Timestamp(1794967944, 7),
    "long": Int64(5),
    "longest": Int64(-(2**63)),
    "beyond JavaScript": Int64(2**53 + 1),
    "decimal": Decimal128("12345678901234567890.123456789"),
    "decimal nan": Decimal128("NaN"),
    "min key": MinKey(),
    "max key": MaxKey(),
    "reference": DBRef("customers", ObjectId("6afa6f77d8b2ec0d89c0c50e")),
}


def _alike(value: object, other: object) -> bool:
    """Compare as MongoDB stores: 3.0 differs from 3, and the order of keys matters."""
    return encode({"": value}) == encode({"": other})


async def _stored_bytes(db: AsyncDatabase[dict[str, Any]]) -> dict[object, bytes]:
    raw = CodecOptions(document_class=RawBSONDocument)
    jobs = db.get_collection("monque_jobs", codec_options=raw)
    return {
        job["_id"]: encode({"data": job["data"]}, codec_options=raw) async for job in jobs.find()
    }


async def test_every_type_survives_from_python_to_node(
    start_node_worker: StartNodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    node_worker = await start_node_worker(exact=True)
    jobs = await Monque(db).enqueue_many("sample", list(_SAMPLES.values()))
    names = dict(zip([job.id for job in jobs], _SAMPLES, strict=True))
    before = await _stored_bytes(db)

    await node_worker.work("sample", concurrency=5)
    await node_worker.hear("ended", len(_SAMPLES))

    got = {names[run["id"]]: run["data"] for run in node_worker.of("started")}
    assert got.keys() == _SAMPLES.keys()
    assert [name for name in _SAMPLES if not _alike(got[name], _SAMPLES[name])] == []
    assert await _stored_bytes(db) == before


async def test_every_type_survives_from_node_to_python(
    start_node_worker: StartNodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    node_worker = await start_node_worker()
    names = {
        (await node_worker.enqueue("sample", sample))["_id"]: name
        for name, sample in _SAMPLES.items()
    }
    before = await _stored_bytes(db)

    runs: Tally[Job[Any]] = Tally()
    monque = Monque(db)
    happenings = Happenings(monque)
    monque.worker("sample", runs.add)
    await monque.run_until_idle()

    got = {names[run.id]: run.data for run in runs}
    assert got.keys() == _SAMPLES.keys()
    assert [name for name in _SAMPLES if not _alike(got[name], _SAMPLES[name])] == []
    assert await _stored_bytes(db) == before
    assert happenings.of("job:error") == []


def _element(kind: int, body: bytes) -> bytes:
    """Return the BSON of a document whose "old" has a type that drivers can read but not write."""
    content = bytes([kind]) + b"old\x00" + body
    return struct.pack("<i", len(content) + 5) + content + b"\x00"


_TEXT = struct.pack("<i", 4) + b"abc\x00"
_READ_ONLY = {
    "undefined": (_element(0x06, b""), None),
    "pointer": (
        _element(0x0C, _TEXT + bytes(range(12))),
        DBRef("abc", ObjectId(bytes(range(12)))),
    ),
    "symbol": (_element(0x0E, _TEXT), "abc"),
}


@pytest.mark.parametrize("name", _READ_ONLY)
async def test_types_that_drivers_no_longer_write_are_read_and_kept(
    name: str, start_node_worker: StartNodeWorker, db: AsyncDatabase[dict[str, Any]]
) -> None:
    written, read = _READ_ONLY[name]
    monque = Monque(db)
    runs: Tally[Job[Any]] = Tally()
    monque.worker("for-python", runs.add)
    await monque.enqueue("for-python", RawBSONDocument(written))
    await monque.enqueue("for-node", RawBSONDocument(written))
    before = await _stored_bytes(db)
    assert all(written in document for document in before.values())

    await monque.run_until_idle()
    node_worker = await start_node_worker()
    await node_worker.work("for-node")
    await node_worker.hear("ended")

    assert [run.data for run in runs] == [{"old": read}]
    assert await _stored_bytes(db) == before
    assert await db["monque_jobs"].count_documents({"status": "completed"}) == 2
