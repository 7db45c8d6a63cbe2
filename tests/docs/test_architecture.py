"""The page on the architecture names every module, and no other."""

from __future__ import annotations

import re

from tests.support.pages import ROOT, page_text

_PAGE = "docs/architecture.md"
_PACKAGES = (
    ROOT / "packages/monque-core/src/monque_core",
    ROOT / "packages/monque-di/src/monque_di",
)
_NOT_LISTED = {"__init__.py", "__main__.py"}


def _modules() -> list[str]:
    return sorted(
        module.relative_to(package).as_posix()
        for package in _PACKAGES
        for module in package.rglob("*.py")
        if module.name not in _NOT_LISTED
    )


def _listed() -> list[str]:
    """Return the modules of the map, with the folder that the heading of a table names."""
    _, _, page = page_text(_PAGE).partition("\n## Modules\n")
    listed: list[str] = []
    folder = ""
    for line in page.splitlines():
        if heading := re.match(r"### (.+)", line):
            single = re.fullmatch(r"`([\w/]+)`", heading[1])
            folder = f"{single[1]}/" if single else ""
        elif line.startswith("| `"):
            listed += [folder + name for name in re.findall(r"`([\w/]+\.py)`", line.split("|")[1])]
    return listed


def test_the_map_lists_every_module_once_and_no_other() -> None:
    assert sorted(_listed()) == _modules()


def test_every_module_named_above_the_map_exists() -> None:
    text, _, _ = page_text(_PAGE).partition("\n## Modules\n")
    folders = "jobs|tasks|store|scheduler|reactive"
    named = set(re.findall(rf"\b((?:{folders})/[\w/]+?)(?:\.py)?(?=[`\s])", text))

    assert named
    assert {name for name in named if f"{name}.py" not in _modules()} == set()
