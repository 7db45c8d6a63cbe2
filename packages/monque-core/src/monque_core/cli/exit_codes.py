"""The exit codes of the command."""

from typing import Final

REFUSED: Final = 1
"""Not found, not possible in the current state, or not confirmed."""
USAGE: Final = 2
NO_CONNECTION: Final = 3
