"""What the documentation site needs beyond Markdown, so that the pages read well on GitHub too."""

from __future__ import annotations

import re

_KIND = re.compile(r"^(```\w+) [a-z]+$", re.MULTILINE)
_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?:examples|packages|tests)[^)]*\)")


def on_page_markdown(markdown: str, **_: object) -> str:
    """Drop what only the test suite and GitHub understand.

    A second word after the language of a fence tells the suite how to run it. Links to files
    outside of `docs/` lead nowhere on the site.
    """
    return _OUTSIDE.sub(r"\1", _KIND.sub(r"\1", markdown))


def slugify(heading: str, separator: str) -> str:
    """Name an anchor as GitHub does."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)
