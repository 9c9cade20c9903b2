"""The site: its navigation holds every page once, and its pages are plain Markdown. `make docs` builds it and checks every link."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.source import ROOT
from tests.kit.reader import load_conf

DOCS = ROOT / "docs"
PAGES = sorted(str(path.relative_to(DOCS).with_suffix("")) for path in DOCS.rglob("*.md"))


conf = load_conf()


def below(page: str) -> list[str]:
    """The pages that the navigation has below one."""
    listed = conf.contents(page, (DOCS / f"{page}.md").read_text()).values()
    return [str(Path(page).parent / one) for pages in listed for one in pages]


def test_the_navigation_holds_every_page_once() -> None:
    found, rest = [], ["index"]
    while rest:
        found.append(rest.pop())
        rest += below(found[-1])
    assert sorted(found) == PAGES


def test_each_kind_of_page_has_its_section() -> None:
    captions = list(conf.contents("index", (DOCS / "index.md").read_text()))
    assert captions == ["Tutorial", "How-to", "Troubleshooting", "Reference", "Explanation", "To change Fusion"]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_one_title_and_no_directive_that_a_code_host_shows_as_text(page: str) -> None:
    text = (DOCS / f"{page}.md").read_text()
    assert text.startswith("# ")
    assert "```{" not in text and ":::" not in text


@pytest.mark.parametrize("page", PAGES)
def test_a_table_does_not_run_into_the_one_before(page: str) -> None:
    lines = (DOCS / f"{page}.md").read_text().splitlines()
    dashes = [number for number, line in enumerate(lines) if re.fullmatch(r"\|[ :-]*--[ :|-]*\|", line)]
    assert [number for number in dashes if number < 2 or lines[number - 2].startswith("|")] == []


def test_a_picture_is_one_for_each_scheme() -> None:
    picture = '<picture>\n<source media="x" srcset="dark.png">\n<img src="light.png" alt="A page">\n</picture>'
    light, dark = conf.pictures(picture).split("\n\n")
    assert light == ":::{image} light.png\n:alt: A page\n:class: only-light\n:::"
    assert dark == ":::{image} dark.png\n:alt: A page\n:class: only-dark\n:::"


def test_bold_names_between_the_marks_become_tabs() -> None:
    text = "before\n<!-- tabs -->\n**Flask**\n\none\n\n**FastAPI**\n\ntwo\n<!-- end of tabs -->\nafter\n"
    made = conf.tabs(text)
    assert made.count(":::{tab-item}") == 2
    assert made.index("before") < made.index(":::{tab-item} Flask\n:sync: flask") < made.index("one") < made.index("two")
    with pytest.raises(ValueError, match="begins with a bold name"):
        conf.tabs("<!-- tabs -->\nno name\n<!-- end of tabs -->\n")


def test_a_link_out_of_the_docs_is_a_file_of_the_site() -> None:
    assert conf.outside("cron", "[x](../README.md#run)") == "{download}`x <../README.md>`"
    assert conf.outside("adr/README", "[x](../cron.md)") == "[x](../cron.md)"
