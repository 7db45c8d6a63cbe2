"""Writing down many jobs that differ in their ids and data alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import bson
from bson.raw_bson import RawBSONDocument

from monque_core.store.documents import to_document

if TYPE_CHECKING:
    from bson.codec_options import CodecOptions

    from monque_core.jobs.job import AnyJob

_SIZE_BYTES = 4
_ID = b"\x07_id\x00"
"""What comes before the twelve bytes of an ObjectId called `_id`."""


class BulkEncoder:
    """The document of a job but for its id and data, encoded once for all that are like it."""

    def __init__(self, job: AnyJob, codec: CodecOptions[Any]) -> None:
        self._codec = codec
        shared = to_document(job)
        del shared["_id"], shared["data"]
        self._shared = bson.encode(shared, codec_options=codec)[_SIZE_BYTES:-1]
        self._size = len(_ID) + len(job.id.binary) + len(self._shared)

    def document(self, job: AnyJob) -> RawBSONDocument:
        """Give the document of one of them, as the driver sends it."""
        data = bson.encode({"data": job.data}, codec_options=self._codec)
        size = (self._size + len(data)).to_bytes(_SIZE_BYTES, "little")
        # The data comes last, and brings along the end of the whole.
        return RawBSONDocument(
            b"".join((size, _ID, job.id.binary, self._shared, data[_SIZE_BYTES:]))
        )
