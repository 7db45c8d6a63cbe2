"""The command line: `python -m monque_core.demo --seconds 20`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from monque_core import process
from monque_core.demo.demo import run_demo
from monque_core.demo.view import PlainView
from monque_core.errors import MonqueConnectionError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from monque_core.demo.demo import Report
    from monque_core.demo.view import View

_NO_RICH = (
    "The live view needs rich (pip install 'monque-core[demo]'); printing plain lines instead."
)
_FAILED, _CANNOT_START, _INTERRUPTED = 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration; return the exit code, 0 if every job ran exactly once."""
    options = _parse(arguments)
    print("Starting a temporary MongoDB …", flush=True)
    try:
        report = process.run(run_demo(options.seconds, _choose_view(plain=options.plain)))
    except MonqueConnectionError as error:
        print(error, file=sys.stderr)
        return _CANNOT_START
    except KeyboardInterrupt:
        print("Interrupted before the jobs were finished.", file=sys.stderr)
        return _INTERRUPTED
    _print_summary(report)
    return 0 if report.result.is_good else _FAILED


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m monque_core.demo",
        description="Watch jobs run on a temporary MongoDB. Ends by itself; fails if a job was "
        "lost or ran twice.",
    )
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=20.0,
        help=("how many seconds to enqueue jobs (default: 20)"),
    )
    parser.add_argument("--plain", action="store_true", help="print lines even on a terminal")
    return parser.parse_args(arguments)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 3600")
    return seconds


def _choose_view(*, plain: bool) -> Callable[[], View]:
    if plain or not sys.stdout.isatty():
        return PlainView
    try:
        from rich.console import Console  # noqa: PLC0415  # rich is optional

        from monque_core.demo.live_view import LiveView  # noqa: PLC0415  # it needs rich
    except ModuleNotFoundError:
        print(_NO_RICH, file=sys.stderr)
        return PlainView
    console = Console()
    return PlainView if console.is_dumb_terminal else lambda: LiveView(console)


def _print_summary(report: Report) -> None:
    counts = ", ".join(f"{jobs:,} {status}" for status, jobs in sorted(report.counts.items()))
    metrics = report.metrics
    print()
    print(f"Summary after {report.seconds:.1f} s")
    print(f"  {report.total:,} jobs enqueued; in the collection: {counts}")
    print(f"  {metrics.retried.total():,} failed runs were retried")
    print(f"  {report.schedule_runs} run(s) of the schedule, which is pending for the next minute")
    print(f"  {metrics.average_rate:.0f} jobs/s on average; due to running {metrics.latency()}")
    if metrics.errors:
        print(f"  {metrics.errors} unexpected error(s)")
    print(f"  {report.result}")


if __name__ == "__main__":
    sys.exit(main())
