"""Units and tolerances of times: nanoseconds since 1970, by the one clock of this machine."""

from __future__ import annotations

SECOND = 1_000_000_000
CLOCK_ROUNDING = 5_000_000
"""The difference between the server's time in whole milliseconds and that of a process."""
CLOCK_ERROR = 150_000_000
"""The largest error with which a process reads the server's clock over a slowed network.

It is usually a millisecond; the error of the first reading is as large as its round trip.
"""
