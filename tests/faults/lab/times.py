"""How the lab writes times: nanoseconds since 1970, by the one clock of this machine."""

from __future__ import annotations

SECOND = 1_000_000_000
MILLISECONDS = 5_000_000
"""What the server's time in whole milliseconds may differ from that of a process."""
CLOCK_READING = 150_000_000
"""How far off a process may read the server's clock, over a network that is slow on purpose.

Mostly it is a millisecond; the first reading of a process is as good as its first answer is quick.
"""
