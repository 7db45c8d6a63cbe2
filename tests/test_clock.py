"""Where "now" comes from."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone

import bson
import pytest
from bson.codec_options import CodecOptions
from hypothesis import given, settings
from hypothesis import strategies as st

from monque_core import Clock, ServerClock
from monque_core.clock import StorableClock, truncate

quick = settings(max_examples=80)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND_NS = 1_000_000_000
MILLISECOND = timedelta(milliseconds=1)
zones = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
instants = st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=zones)


@pytest.fixture
def uptime(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the reading of the monotonic clock, in nanoseconds; tests change it in place."""
    shown = [1_000 * SECOND_NS]
    monkeypatch.setattr(time, "monotonic_ns", lambda: shown[0])
    return shown


class TestServerClock:
    def test_is_a_clock(self) -> None:
        assert isinstance(ServerClock(), Clock)

    def test_shows_the_time_of_this_machine_until_it_knows_better(self) -> None:
        assert abs(ServerClock().now() - datetime.now(UTC)) < timedelta(seconds=5)

    def test_shows_utc_in_whole_milliseconds(self, uptime: list[int]) -> None:
        clock = ServerClock()
        for step in (1, 999_999, 1_234_567):
            uptime[0] += step
            now = clock.now()
            assert now.tzinfo is UTC
            assert now == truncate(now)

    def test_takes_over_the_first_reading_of_the_server(self, uptime: list[int]) -> None:
        clock = ServerClock()
        server_time = datetime(2040, 1, 1, tzinfo=UTC)
        clock.adjust(server_time, asked_ns=uptime[0], answered_ns=uptime[0])
        assert clock.now() == server_time

    def test_runs_on_with_the_monotonic_clock(self, uptime: list[int], monkeypatch) -> None:
        clock = ServerClock()
        server_time = datetime(2040, 1, 1, tzinfo=UTC)
        clock.adjust(server_time, uptime[0], uptime[0])
        monkeypatch.setattr(time, "time_ns", lambda: 0)
        uptime[0] += 90 * SECOND_NS
        assert clock.now() == server_time + timedelta(seconds=90)

    def test_takes_the_reading_to_be_of_the_middle_of_the_round_trip(
        self, uptime: list[int]
    ) -> None:
        clock = ServerClock()
        server_time = datetime(2040, 1, 1, tzinfo=UTC)
        asked = uptime[0]
        uptime[0] += 2 * SECOND_NS
        clock.adjust(server_time, asked, uptime[0])
        assert clock.now() == server_time + timedelta(seconds=1)

    def test_is_not_spoiled_by_a_slow_answer(self, uptime: list[int]) -> None:
        clock = ServerClock()
        server_time = datetime(2040, 1, 1, tzinfo=UTC)
        clock.adjust(server_time, uptime[0], uptime[0])
        asked = uptime[0]
        uptime[0] += 2 * SECOND_NS
        clock.adjust(server_time, asked, uptime[0])
        assert clock.now() == server_time + timedelta(seconds=2)

    @pytest.mark.parametrize(("ahead", "shown"), [(30, 30), (-30, -28)])
    def test_follows_a_server_that_was_set_no_farther_than_it_must(
        self, uptime: list[int], ahead: int, shown: int
    ) -> None:
        clock = ServerClock()
        server_time = datetime(2040, 1, 1, tzinfo=UTC)
        clock.adjust(server_time, uptime[0], uptime[0])
        asked = uptime[0]
        uptime[0] += 2 * SECOND_NS
        clock.adjust(server_time + timedelta(seconds=ahead), asked, uptime[0])
        assert clock.now() == server_time + timedelta(seconds=shown)

    @pytest.mark.parametrize("ahead", [3, -3])
    def test_is_not_spoiled_by_a_slow_answer_of_a_new_primary(
        self, uptime: list[int], ahead: int
    ) -> None:
        clock = ServerClock()
        server_time = datetime(2040, 1, 1, tzinfo=UTC)
        clock.adjust(server_time, uptime[0], uptime[0])
        asked = uptime[0]
        uptime[0] += 8 * SECOND_NS
        difference = timedelta(milliseconds=ahead)
        read = server_time + (timedelta(seconds=8) if ahead > 0 else timedelta(0)) + difference
        clock.adjust(read, asked, uptime[0])
        assert abs(clock.now() - server_time - timedelta(seconds=8)) <= 2 * abs(difference)

    def test_is_old_until_it_was_read_and_after_a_while(self, uptime: list[int]) -> None:
        clock = ServerClock()
        assert clock.is_old
        clock.adjust(datetime.now(UTC), uptime[0], uptime[0])
        assert not clock.is_old
        uptime[0] += 61 * SECOND_NS
        assert clock.is_old

    def test_has_jumped_when_this_machine_has_slept(self, monkeypatch) -> None:
        clock = ServerClock()
        clock.adjust(datetime.now(UTC), time.monotonic_ns(), time.monotonic_ns())
        assert not clock.has_jumped
        awake = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: awake() + 5 * SECOND_NS)
        assert clock.has_jumped

    @quick
    @given(
        start=st.integers(0, 10**15),
        trips=st.lists(
            st.tuples(st.integers(0, 5 * 10**6), st.integers(0, 5 * 10**6)), min_size=1, max_size=20
        ),
    )
    def test_is_never_further_off_than_the_best_reading_can_tell(
        self, start: int, trips: list[tuple[int, int]]
    ) -> None:
        clock, uptime = ServerClock(), 0
        for there, back in trips:
            server_ms = (start + uptime + there) // 1_000_000
            reading = EPOCH + timedelta(milliseconds=server_ms)
            clock.adjust(reading, uptime, uptime + there + back)
            uptime += there + back + 12_345
        best = min(there + back for there, back in trips)
        # Half of the round trip, and half of the millisecond that the server's reading may be off.
        assert abs(clock._zero_ns - start) <= (best + 1_000_000) / 2 + 1

    def test_follows_a_server_whose_clock_drifts(self, uptime: list[int]) -> None:
        clock, server_time = ServerClock(), datetime(2040, 1, 1, tzinfo=UTC)
        for hour in range(1000):
            uptime[0] += 3600 * SECOND_NS
            drifted = server_time + hour * timedelta(hours=1, microseconds=400)
            clock.adjust(truncate(drifted), uptime[0] - 300_000, uptime[0])
            assert abs(clock.now() - drifted) <= 2 * MILLISECOND

    def test_is_never_turned_back_by_a_small_correction(self, uptime: list[int]) -> None:
        clock = ServerClock()
        server_time = datetime(2040, 1, 1, tzinfo=UTC)
        clock.adjust(server_time, uptime[0], uptime[0])
        shown = clock.now()
        clock.adjust(server_time - timedelta(milliseconds=50), uptime[0], uptime[0])
        assert clock.now() == shown
        uptime[0] += SECOND_NS // 40
        assert clock.now() == shown
        uptime[0] += SECOND_NS
        assert clock.now() == server_time + timedelta(milliseconds=975)

    def test_follows_a_server_that_was_set_back_by_much(self, uptime: list[int]) -> None:
        clock = ServerClock()
        server_time = datetime(2040, 1, 1, tzinfo=UTC)
        clock.adjust(server_time, uptime[0], uptime[0])
        clock.now()
        clock.adjust(server_time - timedelta(days=1), uptime[0], uptime[0])
        assert clock.now() == server_time - timedelta(days=1)

    def test_tells_how_far_the_server_is_ahead_of_this_machine(self) -> None:
        clock = ServerClock()
        asked = time.monotonic_ns()
        clock.adjust(datetime.now(UTC) + timedelta(hours=1), asked, time.monotonic_ns())
        assert abs(clock.offset - timedelta(hours=1)) < timedelta(seconds=5)


class Watch:
    """A custom clock that shows a fixed time."""

    def __init__(self, shown: datetime) -> None:
        self._shown = shown

    def now(self) -> datetime:
        return self._shown


class TestStorableClock:
    def test_cuts_another_clock_to_what_can_be_stored(self) -> None:
        berlin = timezone(timedelta(hours=2))
        clock = StorableClock(Watch(datetime(2026, 5, 5, 14, 0, 0, 1_999, tzinfo=berlin)))
        assert clock.now() == datetime(2026, 5, 5, 12, 0, 0, 1_000, tzinfo=UTC)
        assert clock.now().tzinfo is UTC

    def test_refuses_a_naive_time(self) -> None:
        clock = StorableClock(Watch(datetime(2026, 5, 5)))
        with pytest.raises(ValueError, match="which has no time zone"):
            clock.now()


class TestTruncate:
    @quick
    @given(instants)
    def test_gives_the_instant_as_it_is_read_back_from_bson(self, instant: datetime) -> None:
        cut = truncate(instant)
        codec: CodecOptions[dict[str, datetime]] = CodecOptions(tz_aware=True)
        assert bson.decode(bson.encode({"at": cut}), codec)["at"] == cut

    @quick
    @given(instants)
    def test_goes_back_by_less_than_a_millisecond(self, instant: datetime) -> None:
        cut = truncate(instant)
        assert cut.tzinfo is UTC
        assert timedelta(0) <= instant - cut < MILLISECOND
        assert (cut - EPOCH) % MILLISECOND == timedelta(0)
