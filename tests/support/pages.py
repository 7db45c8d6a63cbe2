"""The pages of the documentation and the code in them.

A `python` fence holds a complete program, which is run; a `text` fence right after it is its
output. `python service` is a program that prints a line when it is up and ends with SIGTERM.
`python fragment` cannot run alone and is only compiled. `python tests` is a module for pytest; the
`text` after it is how its one test fails. `python conftest` holds fixtures that a test uses, and
`python file` is one file of an application that consists of all such blocks of a page.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block."""

    page: str
    line: int
    kind: str
    code: str
    output: str | None = None
    """The output of the program according to the page."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def page_paths() -> list[Path]:
    """Return the README and every page of `docs/`."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def page_text(page: str) -> str:
    """Return the text of a page, named by its path from the root."""
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(*kinds: str) -> list[Block]:
    """Return the blocks of these kinds on all pages, in order."""
    return [block for path in page_paths() for block in _blocks(path) if block.kind in kinds]


@cache
def _blocks(path: Path) -> list[Block]:
    text = path.read_text(encoding="utf-8")
    fences = list(_FENCE.finditer(text))
    found = []
    for fence, following in zip_longest(fences, fences[1:]):
        line = text.count("\n", 0, fence.start()) + 1
        page = path.relative_to(ROOT).as_posix()
        output = None
        if following and following["info"] == "text":
            between = text[fence.end() : following.start()]
            output = None if between.strip() else following["body"]
        found.append(Block(page, line, fence["info"].strip(), fence["body"], output))
    return found
