"""New jobs: their defaults, and validation before MongoDB is called."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import ObjectId
from bson.codec_options import CodecOptions

from monque_core.errors import InvalidCronError, InvalidJobError, PayloadTooLargeError
from monque_core.jobs.draft import Limits, draft_job, draft_schedule, resolve_run_at
from tests.support.samples import NOW

CODEC: CodecOptions[dict[str, Any]] = CodecOptions(tz_aware=True)
LIMITS = Limits(CODEC, max_payload_size=100)


class TestJob:
    def test_is_pending_and_due_at_once(self) -> None:
        job = draft_job("send-email", {"to": "ada"}, {}, now=NOW, limits=LIMITS)
        assert isinstance(job.id, ObjectId)
        assert (job.name, job.data, job.status) == ("send-email", {"to": "ada"}, "pending")
        assert job.next_run_at == job.created_at == job.updated_at == NOW
        assert job.unique_key is None
        assert job.repeat_interval is None
        assert (job.priority, job.max_retries, job.timeout) == (0, None, None)
        assert (job.fail_count, job.claims) == (0, 0)

    def test_has_what_was_asked_for(self) -> None:
        job = draft_job(
            "send-email",
            None,
            {
                "delay": 60,
                "unique_key": "ada",
                "priority": 7,
                "max_retries": 3,
                "timeout": 1.5,
            },
            now=NOW,
            limits=LIMITS,
        )
        assert job.next_run_at == NOW + timedelta(minutes=1)
        assert (job.unique_key, job.priority, job.max_retries) == ("ada", 7, 3)
        assert job.timeout == timedelta(seconds=1.5)

    def test_has_an_id_of_its_own(self) -> None:
        one, other = (draft_job("a", None, {}, now=NOW, limits=LIMITS) for _ in range(2))
        assert one.id != other.id

    @pytest.mark.parametrize(
        ("field", "given"),
        [
            ("name", {"name": "send email"}),
            ("data", {"data": object()}),
            ("unique_key", {"unique_key": " "}),
            ("priority", {"priority": -1}),
            ("max_retries", {"max_retries": 0}),
            ("timeout", {"timeout": 0}),
            ("run_at", {"run_at": datetime(2026, 5, 5)}),
            ("run_at", {"run_at": NOW, "delay": 1}),
            ("delay", {"delay": -1}),
        ],
    )
    def test_is_refused_with_the_field_that_is_wrong(self, field: str, given) -> None:
        name, data = given.pop("name", "a"), given.pop("data", None)
        with pytest.raises(InvalidJobError) as caught:
            draft_job(name, data, given, now=NOW, limits=LIMITS)
        assert caught.value.field == field

    def test_with_too_much_data_is_refused(self) -> None:
        with pytest.raises(PayloadTooLargeError) as caught:
            draft_job("a", "x" * 200, {}, now=NOW, limits=LIMITS)
        assert caught.value.max_size == 100


class TestSchedule:
    def test_waits_for_its_next_tick(self) -> None:
        job = draft_schedule(
            "0 9 * * *", "report", {"for": "ada"}, now=NOW, limits=LIMITS, timezone="Europe/Berlin"
        )
        assert (job.repeat_interval, job.timezone) == ("0 9 * * *", "Europe/Berlin")
        assert job.next_run_at == datetime(2026, 5, 6, 7, 0, tzinfo=UTC)
        assert job.created_at == NOW
        assert (job.status, job.is_recurring, job.priority) == ("pending", True, 0)

    def test_has_the_key_and_priority_given(self) -> None:
        job = draft_schedule(
            "@daily", "report", None, now=NOW, limits=LIMITS, unique_key="mine", priority=4
        )
        assert (job.unique_key, job.priority) == ("mine", 4)

    def test_without_a_key_has_one_that_follows_from_what_it_does(self) -> None:
        def key(cron: str = "@daily", data: object = None, timezone: str = "UTC") -> str | None:
            return draft_schedule(
                cron, "report", data, now=NOW, limits=LIMITS, timezone=timezone
            ).unique_key

        assert key() is not None
        assert key(data={"a": 1, "b": 2}) == key(data={"b": 2, "a": 1})
        assert len({key(), key("@hourly"), key(data=1), key(timezone="Europe/Berlin")}) == 4

    def test_names_each_value_of_its_expression_once(self) -> None:
        twice = draft_schedule("0 9 * * 0,7", "report", None, now=NOW, limits=LIMITS)
        once = draft_schedule("0 9 * * 0", "report", None, now=NOW, limits=LIMITS)
        assert twice.repeat_interval == once.repeat_interval == "0 9 * * 0"
        assert twice.unique_key == once.unique_key

    def test_with_a_bad_expression_is_refused(self) -> None:
        with pytest.raises(InvalidCronError) as caught:
            draft_schedule("61 * * * *", "report", None, now=NOW, limits=LIMITS)
        assert caught.value.expression == "61 * * * *"

    @pytest.mark.parametrize(
        ("zone", "hint"),
        [
            ("Europe/Berlln", "did you mean 'Europe/Berlin'?"),
            ("berlin", "did you mean 'Europe/Berlin'?"),
            ("nowhere at all", "give one such as 'Europe/Berlin'"),
            ("", "give one such as 'Europe/Berlin'"),
        ],
    )
    def test_with_a_bad_time_zone_is_refused(self, zone: str, hint: str) -> None:
        with pytest.raises(InvalidJobError) as caught:
            draft_schedule("@daily", "report", None, now=NOW, limits=LIMITS, timezone=zone)
        assert str(caught.value) == f"timezone={zone!r} is not a known IANA name: {hint}"
        assert (caught.value.field, caught.value.value) == ("timezone", zone)

    def test_with_a_time_zone_that_is_no_name_is_refused(self) -> None:
        with pytest.raises(InvalidJobError, match="is of type timezone: give an IANA name"):
            draft_schedule("@daily", "report", None, now=NOW, limits=LIMITS, timezone=UTC)  # type: ignore[arg-type]  # the point

    @pytest.mark.parametrize(
        ("field", "given"),
        [
            ("name", {"name": ""}),
            ("data", {"data": {1, 2}}),
            ("unique_key", {"unique_key": "a\tb"}),
            ("priority", {"priority": 1.5}),
        ],
    )
    def test_is_refused_like_any_job(self, field: str, given) -> None:
        arguments = {"cron": "@daily", "name": "a", "data": None, "now": NOW, "limits": LIMITS}
        with pytest.raises(InvalidJobError) as caught:
            draft_schedule(**(arguments | given))
        assert caught.value.field == field


class TestRunAt:
    def test_is_now_unless_something_else_is_wanted(self) -> None:
        assert resolve_run_at(NOW, None, None) == NOW

    def test_may_be_any_aware_instant(self) -> None:
        assert resolve_run_at(NOW, NOW - timedelta(days=1), None) == NOW - timedelta(days=1)
        assert resolve_run_at(NOW, NOW + timedelta(days=1), None) == NOW + timedelta(days=1)

    def test_may_be_given_as_a_delay(self) -> None:
        assert resolve_run_at(NOW, None, 0) == NOW
        assert resolve_run_at(NOW, None, 1.5) == NOW + timedelta(seconds=1.5)
        assert resolve_run_at(NOW, None, timedelta(hours=1)) == NOW + timedelta(hours=1)

    def test_is_in_whole_milliseconds(self) -> None:
        assert resolve_run_at(NOW, None, 0.0015) == NOW + timedelta(milliseconds=1)

    @pytest.mark.parametrize("delay", [0, 5])
    def test_together_with_a_delay_is_refused(self, delay: int) -> None:
        with pytest.raises(InvalidJobError) as caught:
            resolve_run_at(NOW, NOW, delay)
        assert str(caught.value) == (
            "give run_at (a point in time) or delay (a duration), not both"
        )
        assert caught.value.field == "run_at"

    @pytest.mark.parametrize("delay", [-1, -0.001, timedelta(seconds=-1)])
    def test_a_negative_delay_is_refused(self, delay) -> None:
        with pytest.raises(InvalidJobError) as caught:
            resolve_run_at(NOW, None, delay)
        assert str(caught.value) == (
            f"delay={delay!r} is not allowed: it must be a duration that is not negative, "
            "in seconds or as a timedelta"
        )
        assert (caught.value.field, caught.value.value) == ("delay", delay)

    @pytest.mark.parametrize(
        ("delay", "problem"),
        [
            ("soon", "is neither a number of seconds nor a timedelta"),
            (True, "is neither a number of seconds nor a timedelta"),
            (float("nan"), "is neither a number of seconds nor a timedelta"),
            (1e12, "is too long"),
            (timedelta.max, "is too long"),
        ],
    )
    def test_a_delay_that_is_no_duration_is_refused(self, delay, problem: str) -> None:
        with pytest.raises(InvalidJobError, match=rf"^delay=.*; this {problem}$"):
            resolve_run_at(NOW, None, delay)

    def test_a_delay_past_the_end_of_time_is_refused(self) -> None:
        late = datetime(9999, 12, 31, tzinfo=UTC)
        with pytest.raises(InvalidJobError, match=r"^delay=172800 .* ends before the year 10000$"):
            resolve_run_at(late, None, 172_800)

    def test_a_naive_one_is_refused(self) -> None:
        with pytest.raises(InvalidJobError, match=r"^run_at=.*; this has no time zone$"):
            resolve_run_at(NOW, datetime(2026, 5, 5), None)
