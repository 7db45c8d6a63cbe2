"""House rules for the packages that no linter checks."""

from __future__ import annotations

import ast
import re

from tests.support.pages import ROOT

_LONGEST_MODULE = 400
_MODULES = sorted(ROOT.glob("packages/*/src/**/*.py"))
_VAGUE_OPENING = re.compile(r"(Tell|Give|Say)s?\b")
_VAGUE_NAME = re.compile(r"helper|util|manager|misc")


def test_there_are_modules_to_check() -> None:
    assert {path.relative_to(ROOT / "packages").parts[0] for path in _MODULES} >= {
        "monque-core",
        "monque-di",
    }


def test_no_docstring_begins_with_tell_give_or_say() -> None:
    vague = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.value.value.splitlines()[0]}"
        for path in _MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        # Docstrings of attributes, too.
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        and _VAGUE_OPENING.match(node.value.value)
    ]
    assert vague == []


def test_no_module_is_longer_than_400_lines() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in _MODULES
    }
    too_long = {path: length for path, length in lengths.items() if length > _LONGEST_MODULE}
    assert too_long == {}


def test_no_module_has_a_vague_name() -> None:
    vague = [
        path
        for module in _MODULES
        for path in [module.relative_to(ROOT / "packages")]
        if any(_VAGUE_NAME.search(part) for part in path.parts)
    ]
    assert vague == []
