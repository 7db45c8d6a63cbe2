"""What the documentation site needs beyond Markdown, so that the pages read well on GitHub too."""

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
_AMONG_EXAMPLES = re.compile(r"\]\(([^)#:]+\.py)\)")
_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?:packages|tests)[^)]*\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the examples: what their README says, and the sources that it links to."""
    place = _ROOT / "examples"
    text = (place / "README.md").read_text(encoding="utf-8")
    text = _AMONG_EXAMPLES.sub(lambda link: f"](#{_anchor(link[1])})", text)
    sources = "".join(
        f"### `{path.relative_to(place).as_posix()}`\n\n"
        f"```python\n{path.read_text(encoding='utf-8')}```\n\n"
        for path in sorted(place.rglob("*.py"))
    )
    content = f"{text}\n## Sources\n\n{sources}"
    files.append(File.generated(config, _EXAMPLES, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Drop what only the test suite and GitHub understand, and lead links to where things are.

    A second word after the language of a fence tells the suite how to run it. Other files outside
    of `docs/` are not on the site.
    """
    for block in _YAML.findall(markdown):
        try:
            yaml.safe_load(block)
        except yaml.YAMLError as error:
            raise PluginError(f"{page.file.src_uri} shows what is no YAML: {error}") from error
    up = "../" * page.file.src_uri.count("/")

    def lead(link: re.Match[str]) -> str:
        anchor = "" if link[1] == "README.md" else f"#{_anchor(link[1])}"
        return f"]({up}{_EXAMPLES}{anchor})"

    return _OUTSIDE.sub(r"\1", _TO_EXAMPLES.sub(lead, _KIND.sub(r"\1", markdown)))


def slugify(heading: str, separator: str) -> str:
    """Name an anchor as GitHub does."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def _anchor(path: str) -> str:
    return slugify(path, "-")
