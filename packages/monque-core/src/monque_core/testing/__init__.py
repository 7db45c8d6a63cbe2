"""Help for tests of code that uses monque: fixtures for pytest, assertions, a clock to move.

`pytest_plugins = ["monque_core.testing"]` in the topmost `conftest.py` turns the fixtures on. No
entry point does it: pytest would then import monque in every run of every project that has it.

PYTEST_DONT_REWRITE: a `conftest.py` may both name this as a plugin and import from it.
"""

from monque_core.testing.assertions import assert_enqueued, assert_not_enqueued, run_until_idle
from monque_core.testing.clock import MovableClock
from monque_core.testing.jobs import make_job

__all__ = [
    "MovableClock",
    "assert_enqueued",
    "assert_not_enqueued",
    "make_job",
    "run_until_idle",
]

pytest_plugins = ("monque_core.testing.fixtures",)
