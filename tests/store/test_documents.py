"""The job document and `Job` hold the same data under different names."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import bson
import pytest
from bson import DatetimeMS, Decimal128, Int64, ObjectId
from bson.codec_options import CodecOptions, DatetimeConversion
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monque_core.errors import InvalidJobError
from monque_core.jobs.job import JobStatus
from monque_core.store.documents import to_document, to_job
from monque_core.store.driver import Driver
from tests.support.payloads import ONE_OF_EACH, instants, object_ids, payloads, texts
from tests.support.samples import NOW, a_job

if TYPE_CHECKING:
    from pymongo.asynchronous.database import AsyncDatabase

    from monque_core.jobs.job import AnyJob

quick = settings(max_examples=60)
on_mongodb = settings(
    max_examples=20,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
CODEC: CodecOptions[Any] = CodecOptions(
    tz_aware=True, tzinfo=UTC, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
counts = st.integers(0, 2**53)
jobs = st.builds(
    a_job,
    id=object_ids,
    name=texts,
    data=payloads,
    status=st.sampled_from(JobStatus.ALL),
    next_run_at=instants,
    created_at=instants,
    updated_at=instants,
    fail_count=counts,
    fail_reason=st.none() | texts,
    locked_at=st.none() | instants,
    claimed_by=st.none() | texts,
    last_heartbeat=st.none() | instants,
    heartbeat_interval=st.none() | st.integers(1, 2**40),
    repeat_interval=st.none() | texts,
    timezone=st.none() | texts,
    unique_key=st.none() | texts,
    claim_token=st.none() | object_ids,
    claims=counts,
    priority=counts,
    max_retries=st.none() | counts,
    timeout=st.none() | st.integers(1, 10**14).map(lambda ms: timedelta(milliseconds=ms)),
)
FIELDS = {
    "name": "name",
    "data": "data",
    "status": "status",
    "nextRunAt": "next_run_at",
    "createdAt": "created_at",
    "updatedAt": "updated_at",
    "failCount": "fail_count",
    "failReason": "fail_reason",
    "lockedAt": "locked_at",
    "claimedBy": "claimed_by",
    "lastHeartbeat": "last_heartbeat",
    "heartbeatInterval": "heartbeat_interval",
    "repeatInterval": "repeat_interval",
    "timezone": "timezone",
    "uniqueKey": "unique_key",
    "claimToken": "claim_token",
    "claims": "claims",
    "priority": "priority",
    "maxRetries": "max_retries",
}


def a_document(**fields: object) -> dict[str, Any]:
    return to_document(a_job()) | fields


class TestRoundTrip:
    @quick
    @given(jobs)
    def test_through_a_document_changes_nothing(self, job: AnyJob) -> None:
        assert to_job(to_document(job)) == job

    @quick
    @given(jobs)
    def test_through_bson_changes_nothing(self, job: AnyJob) -> None:
        encoded = bson.encode(to_document(job), codec_options=CODEC)
        assert to_job(bson.decode(encoded, CODEC)) == job

    @on_mongodb
    @given(jobs)
    async def test_through_mongodb_changes_nothing(
        self, db: AsyncDatabase[dict[str, Any]], job: AnyJob
    ) -> None:
        collection = Driver(db).collection("monque_jobs")
        await collection.delete_many({"_id": job.id})
        await collection.insert_one(to_document(job))
        (document,) = await collection.find({"_id": job.id})
        assert to_job(document) == job

    async def test_through_mongodb_keeps_data_of_every_type(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        collection = Driver(db).collection("monque_jobs")
        for kind, data in ONE_OF_EACH.items():
            job = a_job(data=data)
            await collection.insert_one(to_document(job))
            (document,) = await collection.find({"_id": job.id})
            read = to_job(document).data
            assert read == data, kind
            assert type(read) is type(data), kind

    async def test_through_mongodb_gives_aware_utc_in_whole_milliseconds(
        self, db: AsyncDatabase[dict[str, Any]]
    ) -> None:
        collection = Driver(db).collection("monque_jobs")
        at = datetime(2026, 5, 5, 12, 0, 0, 123_456, tzinfo=UTC)
        await collection.insert_one(to_document(a_job(next_run_at=at, locked_at=at)))
        (document,) = await collection.find({})
        job = to_job(document)
        assert job.next_run_at == job.locked_at == at.replace(microsecond=123_000)
        for instant in (job.next_run_at, job.locked_at, job.created_at, job.updated_at):
            assert instant is not None
            assert instant.tzinfo is UTC


class TestDocument:
    def test_spells_every_field_in_camel_case(self) -> None:
        full = a_job(
            fail_count=1,
            fail_reason="boom",
            locked_at=NOW,
            claimed_by="me",
            last_heartbeat=NOW,
            heartbeat_interval=30_000,
            repeat_interval="@daily",
            timezone="Europe/Berlin",
            unique_key="key",
            claim_token=ObjectId(),
            claims=2,
            priority=3,
            max_retries=4,
            timeout=timedelta(seconds=1.5),
        )
        document = to_document(full)
        assert document.pop("_id") == full.id
        assert document.pop("timeoutMs") == 1500
        assert document == {field: getattr(full, name) for field, name in FIELDS.items()}

    def test_leaves_out_what_is_unset(self) -> None:
        assert to_document(a_job()).keys() == {
            "_id",
            "name",
            "data",
            "status",
            "nextRunAt",
            "failCount",
            "createdAt",
            "updatedAt",
        }

    @quick
    @given(jobs)
    def test_holds_no_null_but_in_the_data(self, job: AnyJob) -> None:
        document = to_document(job)
        del document["data"]
        assert None not in document.values()

    def test_keeps_data_that_is_null(self) -> None:
        assert to_document(a_job(data=None))["data"] is None

    def test_never_stores_whether_a_job_was_already_there(self) -> None:
        assert to_document(a_job(deduplicated=True)).keys() == to_document(a_job()).keys()


class TestReading:
    def test_takes_a_stored_null_for_unset(self) -> None:
        job = a_job()
        required = {"_id", "name", "data", "status", "nextRunAt", "createdAt", "updatedAt"}
        nulls = dict.fromkeys([*FIELDS, "timeoutMs"])
        document = nulls | {
            field: value for field, value in to_document(job).items() if field in required
        }
        assert None in document.values()
        assert to_job(document) == job

    def test_takes_whole_floats_for_whole_numbers(self) -> None:
        job = to_job(
            a_document(failCount=2.0, claims=3.0, priority=4.0, maxRetries=5.0, timeoutMs=1500.0)
        )
        read = (job.fail_count, job.claims, job.priority, job.max_retries)
        assert read == (2, 3, 4, 5)
        assert all(type(value) is int for value in read)
        assert job.timeout == timedelta(seconds=1.5)

    def test_takes_long_integers_for_integers(self) -> None:
        job = to_job(a_document(failCount=Int64(2), claims=Int64(3)))
        assert (type(job.fail_count), type(job.claims)) == (int, int)
        assert (job.fail_count, job.claims) == (2, 3)

    @pytest.mark.parametrize("field", ["createdAt", "updatedAt"])
    def test_takes_a_missing_birth_date_from_the_id(self, field: str) -> None:
        document = a_document()
        del document[field]
        assert getattr(to_job(document), FIELDS[field]) == document["_id"].generation_time

    def test_needs_no_data(self) -> None:
        document = a_document()
        del document["data"]
        assert to_job(document).data is None

    def test_passes_over_fields_of_other_programs(self) -> None:
        document = a_document()
        assert to_job(document | {"traceId": "abc", "tags": ["a"]}) == to_job(document)

    def test_notes_whether_the_job_was_already_there(self) -> None:
        assert to_job(a_document(), deduplicated=True).deduplicated
        assert not to_job(a_document()).deduplicated

    @pytest.mark.parametrize(
        ("field", "values"),
        [
            ("_id", [{}, {"a": 1}, [1]]),
            ("name", [None, 5, ["send-email"], b"send-email"]),
            ("status", [None, "done", "Pending", ["pending"], 1]),
            ("nextRunAt", [None, "2026-05-05", 5, DatetimeMS(2**62), [NOW]]),
            ("createdAt", ["2026-05-05", 5, DatetimeMS(-(2**62))]),
            ("updatedAt", ["2026-05-05", 5, DatetimeMS(2**62)]),
            *(
                (field, [-1, 1.5, math.nan, math.inf, 1e300, "3", True, Decimal128("1"), [1]])
                for field in ("failCount", "claims", "priority", "maxRetries")
            ),
            ("timeoutMs", [0, -5, "1s", True, math.nan, math.inf, 1e300, Decimal128("1")]),
            ("repeatInterval", [5, ["@daily"]]),
            ("timezone", [5, ["UTC"]]),
            ("claimToken", ["token", 5, {}]),
        ],
    )
    def test_refuses_an_invalid_document_and_names_the_field(
        self, field: str, values: list[object]
    ) -> None:
        for value in values:
            with pytest.raises(InvalidJobError) as caught:
                to_job(a_document(**{field: value}))
            assert caught.value.field == field
            assert caught.value.value is value
            assert str(caught.value).startswith(f"the stored job cannot be read: {field} is ")

    def test_says_that_a_field_is_missing(self) -> None:
        document = a_document()
        del document["nextRunAt"]
        with pytest.raises(InvalidJobError, match=r"nextRunAt is missing, in the document"):
            to_job(document)

    @quick
    @given(st.dictionaries(st.sampled_from([*FIELDS, "timeoutMs"]), payloads, max_size=6))
    def test_of_anything_at_all_gives_a_job_or_says_why_not(
        self, fields: dict[str, object]
    ) -> None:
        try:
            job = to_job(a_document(**fields))
        except InvalidJobError:
            return
        assert isinstance(job.name, str)
        assert job.status in JobStatus.ALL
        assert isinstance(job.next_run_at, datetime)
        assert min(job.fail_count, job.claims, job.priority) >= 0
