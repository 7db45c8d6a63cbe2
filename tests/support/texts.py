"""What MongoDB and Node see of a text."""

from __future__ import annotations

import unicodedata


def is_control(character: str) -> bool:
    """Return whether this is a control character."""
    return unicodedata.category(character) == "Cc"


def is_storable(text: str) -> bool:
    """Return whether UTF-8 has a form of this text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def utf16_units(text: str) -> int:
    """Return the length by which Node counts."""
    return sum(2 if ord(character) > 0xFFFF else 1 for character in text)
