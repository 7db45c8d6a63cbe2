"""Tools to test code that uses monque: pytest fixtures, assertions and a movable clock.

What lives here: `fixtures` is the pytest plugin, `assertions` and `sync` hold the async and the
blocking assertions, `clock` the movable clock, and `jobs` makes jobs without MongoDB. An
assertion reads all jobs (`jobs`, too), compares them with an `expectation`, and raises an
`AssertionError` with the most similar jobs (`messages`). Reading changes nothing in the database.

`pytest_plugins = ["monque_core.testing"]` in the topmost `conftest.py` enables the fixtures. There
is no entry point: pytest would import monque in every project that has it installed.

PYTEST_DONT_REWRITE: a `conftest.py` may name this as a plugin and import from it.
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
