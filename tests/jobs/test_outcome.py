"""What the end of a run means for its job."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monque_core.jobs.outcome import (
    COMPLETED,
    RELEASED,
    UNREADABLE_PAUSE,
    Advanced,
    Failed,
    OccurrenceFailed,
    Outcome,
    Retrying,
    after_exhaustion,
    after_failure,
    after_success,
    failure_reason,
    settled,
    truncated,
)
from monque_core.jobs.retry import Exponential
from tests.support.samples import NOW, a_job, a_schedule

RETRY = Exponential(2, max_attempts=10)
LATER = NOW + timedelta(seconds=5)
quick = settings(max_examples=60)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


class TestSuccess:
    def test_completes_a_one_off_job(self) -> None:
        assert after_success(a_job(fail_count=3), NOW) == COMPLETED

    def test_moves_a_recurring_job_to_its_next_tick(self) -> None:
        job = a_schedule(repeat_interval="0 * * * *")
        assert after_success(job, utc("2026-05-05 12:00:30")) == Advanced(utc("2026-05-05 13:00"))

    def test_on_the_very_tick_counts_from_after_it(self) -> None:
        job = a_schedule(repeat_interval="0 * * * *")
        assert after_success(job, utc("2026-05-05 12:00")) == Advanced(utc("2026-05-05 13:00"))

    def test_after_many_missed_ticks_makes_up_for_none(self) -> None:
        job = a_schedule(repeat_interval="0 * * * *", next_run_at=utc("2026-05-01 07:00"))
        assert after_success(job, utc("2026-05-05 12:10")) == Advanced(utc("2026-05-05 13:00"))

    def test_reckons_the_tick_in_the_time_zone_of_the_schedule(self) -> None:
        job = a_schedule(repeat_interval="0 9 * * *", timezone="Europe/Berlin")
        assert after_success(job, utc("2026-05-05 12:00")) == Advanced(utc("2026-05-06 07:00"))

    def test_without_a_stored_time_zone_means_utc(self) -> None:
        job = a_schedule(repeat_interval="0 9 * * *", timezone=None)
        assert after_success(job, utc("2026-05-05 12:00")) == Advanced(utc("2026-05-06 09:00"))

    @pytest.mark.parametrize(
        "fields",
        [{"repeat_interval": "every tuesday"}, {"timezone": "Mars/Olympus"}],
    )
    def test_of_a_schedule_that_cannot_be_read_keeps_it_for_those_who_can(
        self, fields: dict[str, str]
    ) -> None:
        outcome = after_success(a_schedule(**fields), NOW)
        assert isinstance(outcome, Advanced)
        assert outcome.at == NOW + UNREADABLE_PAUSE
        assert next(iter(fields.values())) in str(outcome.problem)


class TestFailure:
    @pytest.mark.parametrize(("fail_count", "seconds"), [(0, 2), (1, 4), (2, 8), (8, 512)])
    def test_is_retried_after_two_to_the_power_of_failures_so_far(
        self, fail_count: int, seconds: int
    ) -> None:
        outcome = after_failure(a_job(fail_count=fail_count), "boom", NOW, RETRY)
        assert outcome == Retrying("boom", NOW + timedelta(seconds=seconds))

    def test_waits_no_longer_than_the_cap(self) -> None:
        retry = Exponential(2, cap=3, max_attempts=10)
        assert after_failure(a_job(fail_count=5), "boom", NOW, retry) == Retrying(
            "boom", NOW + timedelta(seconds=3)
        )

    def test_is_spread_by_the_jitter(self) -> None:
        retry = Exponential(timedelta(hours=2), jitter=0.5)
        outcomes = [after_failure(a_job(), "boom", NOW, retry) for _ in range(50)]
        times = {outcome.at for outcome in outcomes if isinstance(outcome, Retrying)}
        assert len(times) > 1
        assert all(timedelta(hours=1) <= at - NOW <= timedelta(hours=3) for at in times)

    def test_is_final_once_the_job_has_failed_as_often_as_it_may(self) -> None:
        assert after_failure(a_job(fail_count=9), "boom", NOW, RETRY) == Failed("boom")
        assert after_failure(a_job(fail_count=40), "boom", NOW, RETRY) == Failed("boom")

    def test_counts_by_the_limit_of_the_job_if_it_has_one(self) -> None:
        assert after_failure(a_job(max_retries=1), "boom", NOW, RETRY) == Failed("boom")
        patient = a_job(fail_count=10, max_retries=12)
        assert isinstance(after_failure(patient, "boom", NOW, RETRY), Retrying)

    def test_of_the_last_run_of_an_occurrence_moves_the_schedule_on(self) -> None:
        job = a_schedule(fail_count=9)
        assert after_failure(job, "boom", utc("2026-05-05 12:10"), RETRY) == OccurrenceFailed(
            "boom", utc("2026-05-05 13:00")
        )

    def test_of_an_earlier_run_of_an_occurrence_is_retried_like_any_other(self) -> None:
        assert after_failure(a_schedule(), "boom", NOW, RETRY) == Retrying(
            "boom", NOW + timedelta(seconds=2)
        )

    def test_that_exhausts_a_schedule_that_cannot_be_read_does_not_end_it(self) -> None:
        outcome = after_exhaustion(a_schedule(repeat_interval="never"), "boom", NOW)
        assert isinstance(outcome, OccurrenceFailed)
        assert outcome.at == NOW + UNREADABLE_PAUSE
        assert str(outcome.reason).startswith("boom; and its next tick is not known: ")
        assert "'never'" in str(outcome.reason)

    @quick
    @given(
        st.integers(0, 60),
        st.integers(1, 50),
        st.timedeltas(timedelta(milliseconds=1), timedelta(days=30)),
        st.timedeltas(timedelta(milliseconds=1), timedelta(days=30)),
        st.floats(0, 0.5),
    )
    def test_is_either_final_or_retried_later_in_whole_milliseconds(
        self, fail_count: int, limit: int, base: timedelta, cap: timedelta, jitter: float
    ) -> None:
        retry = Exponential(min(base, cap), cap=cap, jitter=jitter, max_attempts=limit)
        outcome = after_failure(a_job(fail_count=fail_count), "boom", NOW, retry)
        if fail_count + 1 >= limit:
            assert outcome == Failed("boom")
        else:
            assert isinstance(outcome, Retrying)
            assert outcome.at > NOW
            assert (outcome.at - NOW) % timedelta(milliseconds=1) == timedelta(0)


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class NotTextError(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]  # noqa: PLE0307  # the point


class TestReason:
    def test_is_the_type_and_the_message(self) -> None:
        assert failure_reason(ValueError("bad address")) == "ValueError: bad address"

    def test_is_the_type_alone_if_there_is_no_message(self) -> None:
        assert failure_reason(TimeoutError()) == "TimeoutError"

    @pytest.mark.parametrize("error", [UnspeakableError(), NotTextError()])
    def test_exists_even_if_the_message_cannot_be_read(self, error: Exception) -> None:
        assert failure_reason(error) == f"{type(error).__name__}: (its message cannot be read)"

    def test_is_storable_whatever_the_message_holds(self) -> None:
        assert failure_reason(ValueError("half \ud83d of a pair")) == "ValueError: half ? of a pair"

    def test_is_cut_if_it_is_very_long(self) -> None:
        reason = failure_reason(ValueError("x" * 1_000_000))
        assert len(reason) == 8_000
        assert reason.startswith("ValueError: xxx")
        assert reason.endswith("x…")

    @quick
    @given(st.text(st.characters(categories=None), max_size=9_000))
    def test_is_never_empty_and_never_unstorable(self, message: str) -> None:
        reason = failure_reason(ValueError(message))
        assert reason.startswith("ValueError")
        assert len(reason) <= 8_000
        reason.encode()


class TestSettledJob:
    """The job as it is stored; tests/store/test_outcomes.py compares this with MongoDB."""

    def claimed(self, **fields) -> dict:
        claim = {
            "status": "processing",
            "claimed_by": "me",
            "locked_at": NOW,
            "last_heartbeat": NOW,
            "heartbeat_interval": 30_000,
            "claims": 3,
            "fail_count": 2,
            "fail_reason": "before",
        }
        return claim | fields

    @pytest.mark.parametrize(
        "outcome",
        [
            COMPLETED,
            RELEASED,
            Advanced(LATER),
            Retrying("boom", LATER),
            Failed("boom"),
            OccurrenceFailed("boom", LATER),
        ],
    )
    def test_has_no_claim_left(self, outcome) -> None:
        job = settled(a_schedule(**self.claimed()), outcome, LATER)
        assert job.status != "processing"
        assert job.updated_at == LATER
        claim = (job.claimed_by, job.locked_at, job.last_heartbeat, job.heartbeat_interval)
        assert claim == (None, None, None, None)

    @pytest.mark.parametrize(
        ("outcome", "status", "next_run_at", "fail_count", "fail_reason", "claims"),
        [
            (COMPLETED, "completed", NOW, 2, None, 3),
            (RELEASED, "pending", NOW, 2, "before", 2),
            (Advanced(LATER), "pending", LATER, 0, None, 0),
            (Retrying("boom", LATER), "pending", LATER, 3, "boom", 3),
            (Failed("boom"), "failed", NOW, 3, "boom", 3),
            (OccurrenceFailed("boom", LATER), "pending", LATER, 0, "boom", 0),
        ],
    )
    def test_is_as_the_outcome_says(
        self, outcome, status, next_run_at, fail_count, fail_reason, claims
    ) -> None:
        job = settled(a_schedule(**self.claimed()), outcome, LATER)
        assert job.status == status
        assert job.next_run_at == next_run_at
        assert job.fail_count == fail_count
        assert job.fail_reason == fail_reason
        assert job.claims == claims

    def test_leaves_the_snapshot_alone(self) -> None:
        job = a_job(**self.claimed())
        settled(job, COMPLETED, LATER)
        assert job.status == "processing"
        assert job.claimed_by == "me"


class TestAbridged:
    @pytest.mark.parametrize(
        "outcome",
        [Failed("x" * 9000), Retrying("x" * 9000, NOW), OccurrenceFailed("x" * 9000, NOW)],
    )
    def test_has_a_shorter_reason_then_none_and_then_is_no_more(self, outcome: Outcome) -> None:
        shorter = truncated(outcome)
        assert isinstance(shorter, type(outcome))
        reason = getattr(shorter, "reason", None)
        assert 0 < len(str(reason)) <= 200
        assert str(reason).endswith("…")
        bare = truncated(shorter)
        assert bare is not None
        assert getattr(bare, "reason", "") is None
        assert truncated(bare) is None

    @pytest.mark.parametrize("outcome", [COMPLETED, RELEASED, Advanced(NOW)])
    def test_of_what_has_no_reason_there_is_none(self, outcome: Outcome) -> None:
        assert truncated(outcome) is None
