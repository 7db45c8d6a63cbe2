"""Bulk encoding of jobs that differ only in their data."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import bson
import pytest
from bson import ObjectId
from bson.codec_options import CodecOptions

from monque_core.jobs.job import AnyJob, twin
from monque_core.store.documents import BulkEncoder, to_document
from tests.support.payloads import ONE_OF_EACH
from tests.support.samples import a_job, a_schedule

CODEC: CodecOptions[dict[str, Any]] = CodecOptions(tz_aware=True, tzinfo=UTC)


@pytest.mark.parametrize("first", [a_job(), a_schedule(priority=3, max_retries=4)])
@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_are_those_that_each_job_has_by_itself(first: AnyJob, kind: str) -> None:
    job = twin(first)
    job.id, job.data = ObjectId(), ONE_OF_EACH[kind]
    written = BulkEncoder(first, CODEC).document(job).raw
    alone = bson.encode(to_document(job), codec_options=CODEC)
    # They differ in the order of their fields: data is the last.
    assert len(written) == len(alone)
    assert bson.decode(written, CODEC) == bson.decode(alone, CODEC)
