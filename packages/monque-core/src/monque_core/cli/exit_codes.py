"""What the exit code of a command tells."""

from typing import Final

REFUSED: Final = 1
"""Something is not there, or cannot be done in its state, or a question was answered with no."""
USAGE: Final = 2
NO_CONNECTION: Final = 3
