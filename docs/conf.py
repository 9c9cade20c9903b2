"""The site of the documentation: `make docs` builds it into build/docs. Pages stay plain Markdown that a code host shows as well."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).parent
(_version,) = re.findall(r'^__version__ = "(.+)"', (DOCS.parent / "fusion" / "__init__.py").read_text(), re.MULTILINE)

project = "Fusion"
author = copyright = "Fusion contributors"
version = release = _version
extensions = ["myst_parser", "sphinx_design"]
exclude_patterns = ["examples", "_*"]
language = "en"

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 6

html_theme = "furo"
html_title = f"Fusion {version}"
html_show_sphinx = html_show_sourcelink = html_copy_source = False
html_permalinks_icon = "#"
html_search_scorer = str(DOCS / "_scorer.js")
templates_path: list[str] = []

#: A picture with a light and a dark file, as a code host wants it.
_PICTURE = re.compile(r'<picture>\s*<source [^>]*srcset="([^"]+)">\s*<img src="([^"]+)" alt="([^"]*)">\s*</picture>')
#: Tabs: between these marks each paragraph that is one bold name begins a tab.
_TABS = re.compile(r"^<!-- tabs -->\n(.*?)^<!-- end of tabs -->$", re.MULTILINE | re.DOTALL)
_TAB = re.compile(r"^\*\*([\w ]+)\*\*\n", re.MULTILINE)
#: A section of the index, and a page that it lists.
_SECTION = re.compile(r"^## (.+)\n((?:(?!^## ).*\n)*)", re.MULTILINE)
_ENTRY = re.compile(r"^- \[[^\]]+\]\(([\w./-]+)\.md\)", re.MULTILINE)
#: A link to a page of another folder than docs: the site has it as a file.
_OUTSIDE = re.compile(r"\[`?([^\]`]+)`?\]\(((?:\.\./)+[\w/.-]+\.md)(?:#[\w-]+)?\)")
#: Pages that list the pages of a folder -> what their links look like.
FOLDERS = {"internals": r"\]\((internals/[\w-]+)\.md\)", "adr/README": r"\]\((\d{4}-[\w-]+)\.md\)"}


def pictures(text: str) -> str:
    """Make two images of each picture, of which the theme shows one."""
    two = ":::{{image}} {}\n:alt: {}\n:class: only-{}\n:::"
    return _PICTURE.sub(lambda m: f"{two.format(m[2], m[3], 'light')}\n\n{two.format(m[1], m[3], 'dark')}", text)


def tabs(text: str) -> str:
    """Make a set of tabs of what stands between the marks. A tab that the reader chooses is chosen in all sets."""

    def tab_set(match: re.Match[str]) -> str:
        before, *rest = _TAB.split(match[1])
        if before.strip() or not rest:
            raise ValueError(f"a set of tabs begins with a bold name, not with {match[1][:60]!r}")
        items = [
            f":::{{tab-item}} {name}\n:sync: {name.lower()}\n{body}:::\n"
            for name, body in zip(rest[::2], rest[1::2], strict=True)
        ]
        return "::::{tab-set}\n:sync-group: framework\n\n" + "\n".join(items) + "::::"

    return _TABS.sub(tab_set, text)


def outside(page: str, text: str) -> str:
    """Make downloads of links to pages that are not in docs."""

    def link(match: re.Match[str]) -> str:
        path = (DOCS / page).parent.joinpath(match[2]).resolve()
        return match[0] if path.is_relative_to(DOCS) else f"{{download}}`{match[1]} <{match[2]}>`"

    return _OUTSIDE.sub(link, text)


def contents(page: str, text: str) -> dict[str, list[str]]:
    """Return the pages below this one, by the caption that the navigation gives them."""
    if page == "index":
        return {title: found for title, body in _SECTION.findall(text) if (found := _ENTRY.findall(body))}
    if page in FOLDERS:
        return {"": list(dict.fromkeys(re.findall(FOLDERS[page], text)))}
    return {"": _ENTRY.findall(text)} if page.endswith("/index") else {}


def navigation(page: str, text: str) -> str:
    """Add a table of contents to a page that lists others."""
    for caption, pages in contents(page, text).items():
        options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
        text += "\n".join(["", ":::{toctree}", *options, "", *pages, ":::", ""])
    return text


def _read(_: Sphinx, page: str, source: list[str]) -> None:
    source[0] = navigation(page, outside(page, tabs(pictures(source[0]))))


def _mark(_: Sphinx, page: str, template: str, context: dict[str, Any], tree: object) -> None:
    """Let Sphinx mark the words of a search in the text alone: in the theme's icons, which have titles, its script fails."""
    if "body" in context:
        context["body"] = f'<div class="body">{context["body"]}</div>'


def setup(app: Sphinx) -> None:
    """Let Sphinx read and write pages through the functions above."""
    app.connect("source-read", _read)
    app.connect("html-page-context", _mark)
