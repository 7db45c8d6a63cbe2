"""The options of an instance: defaults and validation."""

from __future__ import annotations

import math
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monque_core import Clock, JobRetention, MonqueOptions, ReactiveOptions, ServerClock
from monque_core.display import brief_repr
from monque_core.options import Options

quick = settings(max_examples=100)

DEFAULTS = {
    "collection_name": "monque_jobs",
    "poll_interval": timedelta(seconds=1),
    "safety_poll_interval": timedelta(seconds=30),
    "max_retries": 10,
    "base_retry_interval": timedelta(seconds=1),
    "max_backoff_delay": timedelta(hours=24),
    "retry_jitter": 0,
    "shutdown_timeout": timedelta(seconds=30),
    "worker_concurrency": 5,
    "instance_concurrency": None,
    "lock_timeout": timedelta(minutes=30),
    "heartbeat_interval": timedelta(seconds=30),
    "recover_stale_jobs": True,
    "job_retention": None,
    "skip_index_creation": False,
    "max_payload_size": None,
    "stats_cache_ttl": timedelta(seconds=5),
    "reactive_options": ReactiveOptions(),
}
MADE_PER_INSTANCE = {"scheduler_instance_id", "clock"}
DURATIONS = [name for name, value in DEFAULTS.items() if isinstance(value, timedelta)]


class TestDefaults:
    @pytest.mark.parametrize("name", DEFAULTS)
    def test_are_those_of_the_specification(self, name: str) -> None:
        assert getattr(Options.parse({}), name) == DEFAULTS[name]

    def test_cover_every_option(self) -> None:
        assert {field.name for field in fields(Options)} == DEFAULTS.keys() | MADE_PER_INSTANCE
        assert MonqueOptions.__annotations__.keys() == DEFAULTS.keys() | MADE_PER_INSTANCE

    def test_give_each_instance_a_random_id_and_the_clock_of_the_server(self) -> None:
        one, other = Options.parse({}), Options.parse({})
        assert UUID(one.scheduler_instance_id) != UUID(other.scheduler_instance_id)
        assert isinstance(one.clock, ServerClock)
        assert one.clock is not other.clock

    def test_keep_finished_jobs_for_ever_and_look_every_hour(self) -> None:
        retention = JobRetention()
        assert retention.ages == {}
        assert retention.interval == timedelta(hours=1)


class TestValues:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("collection_name", "jobs.of-mine"),
            ("max_retries", 1),
            ("retry_jitter", 0),
            ("retry_jitter", 0.5),
            ("worker_concurrency", 1000),
            ("instance_concurrency", 1),
            ("instance_concurrency", None),
            ("recover_stale_jobs", False),
            ("scheduler_instance_id", "worker-1"),
            ("job_retention", JobRetention(completed=60)),
            ("skip_index_creation", True),
            ("max_payload_size", 1),
            ("reactive_options", ReactiveOptions(flush_size=10)),
            ("clock", ServerClock()),
        ],
    )
    def test_are_taken_as_given(self, name: str, value: object) -> None:
        assert getattr(Options.parse({name: value}), name) == value

    @pytest.mark.parametrize("name", DURATIONS)
    @pytest.mark.parametrize("value", [120, 120.0, timedelta(minutes=2)])
    def test_of_durations_are_seconds_or_a_timedelta(self, name: str, value: object) -> None:
        options = Options.parse({"heartbeat_interval": 1, name: value})
        assert getattr(options, name) == timedelta(minutes=2)

    @quick
    @given(st.floats(0.001, 1e9))
    def test_of_durations_keep_their_fractions(self, seconds: float) -> None:
        assert Options.parse({"poll_interval": seconds}).poll_interval == timedelta(seconds=seconds)

    @pytest.mark.parametrize("name", ["shutdown_timeout", "stats_cache_ttl"])
    def test_may_be_nothing_where_that_means_at_once(self, name: str) -> None:
        assert getattr(Options.parse({name: 0}), name) == timedelta(0)

    def test_may_be_a_clock_of_ones_own(self) -> None:
        class Stopped:
            def now(self) -> datetime:
                return datetime(2026, 5, 5, tzinfo=UTC)

        clock: Clock = Stopped()
        assert Options.parse({"clock": clock}).clock.now() == datetime(2026, 5, 5, tzinfo=UTC)

    def test_decide_after_how_much_silence_an_instance_counts_as_dead(self) -> None:
        assert Options.parse({"heartbeat_interval": 2}).stale_after == timedelta(seconds=6)


NO_DURATION = ["1", None, True, math.nan, math.inf, 1e300, [1]]
NO_COUNT = [0, -1, 1.0, True, "5"]


class TestRefusal:
    @pytest.mark.parametrize(
        ("name", "values", "allowed"),
        [
            *(
                (name, [0, -1, 0.0005, timedelta(0), *NO_DURATION], "a duration of at least")
                for name in (
                    "poll_interval",
                    "safety_poll_interval",
                    "base_retry_interval",
                    "max_backoff_delay",
                    "lock_timeout",
                )
            ),
            ("heartbeat_interval", [0, 0.05, *NO_DURATION], "a duration of at least 0:00:00.1"),
            *(
                (name, [-1, timedelta(seconds=-1), *NO_DURATION], "a duration that is not negative")
                for name in ("shutdown_timeout", "stats_cache_ttl")
            ),
            *(
                (name, [None, *NO_COUNT], "a whole number of at least 1")
                for name in ("max_retries", "worker_concurrency")
            ),
            *(
                (name, NO_COUNT, "a whole number of at least 1")
                for name in ("instance_concurrency", "max_payload_size")
            ),
            (
                "retry_jitter",
                [-0.1, 0.51, math.nan, True, "0.1", None],
                "a share between 0 and 0.5",
            ),
            *(
                (name, [0, 1, None, "yes"], "True or False")
                for name in ("recover_stale_jobs", "skip_index_creation")
            ),
            (
                "scheduler_instance_id",
                ["", "  ", None, 7, "x" * 256, "a\0b", "a\nb", "\x1b[2J", "\u202ea", "\ud800"],
                "a non-blank text of at most 255 characters, none of them a control character",
            ),
            (
                "collection_name",
                ["", "a$b", "a\0b", ".a", "a.", "a..b", "system.jobs", "x" * 201, "\ud800", None],
                "a MongoDB collection name: not empty",
            ),
            (
                "job_retention",
                [60, {"completed": 60}, "1h", JobRetention],
                "None or JobRetention(completed=…, failed=…, cancelled=…)",
            ),
            (
                "reactive_options",
                [None, 60, {"flush_size": 10}, ReactiveOptions],
                "ReactiveOptions(visibility_timeout=…, leader_lease=…, …)",
            ),
            ("clock", [None, 5, "now", datetime], "an object whose now() gives an aware datetime"),
        ],
    )
    def test_names_the_option_the_value_and_what_is_allowed(
        self, name: str, values: list[object], allowed: str
    ) -> None:
        for value in values:
            with pytest.raises(ValueError) as caught:  # noqa: PT011  # the text is compared below
                Options.parse({name: value})
            message = str(caught.value)
            assert message.startswith(
                f"option {name}={brief_repr(value)} is not allowed: it must be {allowed}"
            )

    def test_covers_every_option(self) -> None:
        tested = {
            name
            for mark in self.test_names_the_option_the_value_and_what_is_allowed.pytestmark  # type: ignore[attr-defined]  # set by parametrize
            for name, *_ in mark.args[1]
        }
        assert tested == {field.name for field in fields(Options)}

    def test_says_why_something_is_no_duration(self) -> None:
        with pytest.raises(ValueError, match="this is neither a number of seconds nor a timedelta"):
            Options.parse({"poll_interval": "1s"})
        with pytest.raises(ValueError, match="this is too long"):
            Options.parse({"poll_interval": 1e300})

    @pytest.mark.parametrize(
        "given", [{"heartbeat_interval": 700}, {"lock_timeout": 89}, {"lock_timeout": 0.2}]
    )
    def test_meets_a_lock_timeout_below_three_heartbeats(self, given: dict[str, float]) -> None:
        with pytest.raises(
            ValueError,
            match=r"^option lock_timeout=.* is not allowed: "
            r"it must be at least 3 × heartbeat_interval \(.*\)$",
        ):
            Options.parse(given)
        Options.parse({"lock_timeout": 90, "heartbeat_interval": 30})

    @pytest.mark.parametrize("name", ["completed", "failed", "cancelled"])
    def test_meets_bad_ages_as_soon_as_they_are_given(self, name: str) -> None:
        with pytest.raises(
            ValueError,
            match=rf"^option job_retention\.{name}=-1 is not allowed: "
            "it must be a duration that is not negative",
        ):
            JobRetention(**{name: -1})

    def test_meets_a_retention_that_would_never_rest(self) -> None:
        with pytest.raises(
            ValueError, match=r"^option job_retention\.interval=0 is not allowed: .* at least 0:00"
        ):
            JobRetention(interval=0)


class TestReactiveOptions:
    def test_have_the_defaults_of_the_specification(self) -> None:
        pace = ReactiveOptions()
        assert pace.visibility_timeout == timedelta(seconds=60)
        assert pace.leader_lease == timedelta(seconds=30)
        assert (pace.flush_size, pace.flush_interval) == (1000, timedelta(milliseconds=500))
        assert pace.cleanup_interval == timedelta(hours=1)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("visibility_timeout", 0.1),
            ("leader_lease", 0),
            ("flush_size", 0),
            ("flush_size", 1.5),
            ("flush_interval", -1),
            ("cleanup_interval", "1h"),
        ],
    )
    def test_are_checked_as_soon_as_they_are_given(self, name: str, value: Any) -> None:
        with pytest.raises(
            ValueError, match=rf"^option reactive_options\.{name}=.* is not allowed"
        ):
            ReactiveOptions(**{name: value})


class TestUnknownOption:
    @pytest.mark.parametrize("name", [*DEFAULTS, *sorted(MADE_PER_INSTANCE)])
    def test_with_a_letter_missing_is_recognized(self, name: str) -> None:
        with pytest.raises(ValueError) as caught:  # noqa: PT011  # the text is compared below
            Options.parse({name[:-2] + name[-1]: 1})
        assert str(caught.value) == (
            f"unknown option {name[:-2] + name[-1]!r}: did you mean {name!r}?"
        )

    @pytest.mark.parametrize(
        ("name", "meant"),
        [
            ("pollInterval", "poll_interval"),
            ("heartbeat", "heartbeat_interval"),
            ("concurrency", "worker_concurrency"),
            ("retention", "job_retention"),
            ("collection", "collection_name"),
        ],
    )
    def test_that_is_close_is_recognized(self, name: str, meant: str) -> None:
        with pytest.raises(ValueError, match=rf"^unknown option '{name}': did you mean '{meant}'"):
            Options.parse({name: 1})

    def test_that_resembles_none_gets_a_list_of_known_ones(self) -> None:
        with pytest.raises(ValueError) as caught:  # noqa: PT011  # the text is compared below
            Options.parse({"zzz": 1})
        known = ", ".join(sorted([*DEFAULTS, *sorted(MADE_PER_INSTANCE)]))
        assert str(caught.value) == f"unknown option 'zzz': known are {known}"


class TestRetention:
    def test_has_ages_for_the_statuses_that_were_given_one(self) -> None:
        retention = JobRetention(completed=60, cancelled=timedelta(days=1), interval=5)
        assert retention.ages == {
            "completed": timedelta(minutes=1),
            "cancelled": timedelta(days=1),
        }
        assert retention.interval == timedelta(seconds=5)

    def test_may_delete_at_once(self) -> None:
        assert JobRetention(failed=0).ages == {"failed": timedelta(0)}
