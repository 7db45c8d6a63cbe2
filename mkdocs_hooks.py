"""MkDocs hooks: adapt pages that are written for GitHub to the documentation site."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

_ROOT = Path(__file__).parent
_EXAMPLES = "examples.md"
_KIND = re.compile(r"^(```\w+) [a-z]+$", re.MULTILINE)
_YAML = re.compile(r"^```yaml\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_TO_EXAMPLES = re.compile(r"\]\((?:\.\./)+examples/([^)]+)\)")
_BETWEEN_EXAMPLES = re.compile(r"\]\(([^)#:]+\.py)\)")
_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?:packages|tests)[^)]*\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page with the README and the sources of the examples."""
    place = _ROOT / "examples"
    text = (place / "README.md").read_text(encoding="utf-8")
    text = _BETWEEN_EXAMPLES.sub(lambda link: f"](#{_anchor(link[1])})", text)
    sources = "".join(
        f"### `{path.relative_to(place).as_posix()}`\n\n"
        f"```python\n{path.read_text(encoding='utf-8')}```\n\n"
        for path in sorted(place.rglob("*.py"))
    )
    content = f"{text}\n## Sources\n\n{sources}"
    files.append(File.generated(config, _EXAMPLES, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Remove markup for the test suite, and rewrite links to files outside of `docs/`.

    The second word of a code fence is for the test suite. Links to files that are not on the site
    become plain text.
    """
    for block in _YAML.findall(markdown):
        try:
            yaml.safe_load(block)
        except yaml.YAMLError as error:
            raise PluginError(f"{page.file.src_uri} contains invalid YAML: {error}") from error
    up = "../" * page.file.src_uri.count("/")

    def rewrite(link: re.Match[str]) -> str:
        anchor = "" if link[1] == "README.md" else f"#{_anchor(link[1])}"
        return f"]({up}{_EXAMPLES}{anchor})"

    return _OUTSIDE.sub(r"\1", _TO_EXAMPLES.sub(rewrite, _KIND.sub(r"\1", markdown)))


def slugify(heading: str, separator: str) -> str:
    """Return the anchor of a heading, as GitHub generates it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def _anchor(path: str) -> str:
    return slugify(path, "-")
