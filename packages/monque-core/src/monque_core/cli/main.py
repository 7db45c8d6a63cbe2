"""The entry point: run a command, and turn errors into a message and an exit code."""

from __future__ import annotations

import io
import sys
from typing import Final, NoReturn

from pymongo.errors import ConfigurationError, ConnectionFailure, PyMongoError

from monque_core.display import escape_lines
from monque_core.errors import (
    AggregationTimeoutError,
    JobStateError,
    MonqueConnectionError,
    MonqueError,
)

REFUSED: Final = 1
"""Not found, not possible in the current state, or not confirmed."""
USAGE: Final = 2
NO_CONNECTION: Final = 3
_NO_EXTRA = "the monque command needs typer and rich: pip install 'monque-core[cli]'"


def main() -> NoReturn:
    """Run the command line and exit."""
    try:
        from monque_core.cli.app import app  # noqa: PLC0415  # the extra may be missing
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in {"typer", "rich"}:
            raise
        sys.exit(_print_error(_NO_EXTRA, USAGE))
    if isinstance(sys.stdout, io.TextIOWrapper):
        # As on standard error: characters that the terminal cannot encode must not fail a command.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="monque")
    except (MonqueError, PyMongoError) as error:
        sys.exit(_print_error(_short(error), _code(error)))
    sys.exit(0)


def _code(error: Exception) -> int:
    match error:
        case MonqueConnectionError() | ConnectionFailure():
            return NO_CONNECTION
        case JobStateError() | AggregationTimeoutError():
            return REFUSED
        case ConfigurationError() | MonqueError():
            return USAGE
    return REFUSED


def _short(error: Exception) -> str:
    """Return the text of an error without the topology description of the driver."""
    return str(error).partition(", Timeout: ")[0].partition(" (configured timeouts:")[0]


def _print_error(message: str, code: int) -> int:
    sys.stderr.write(f"monque: {escape_lines(message)}\n")
    return code
