"""Render pages: the templates, their filters, and the frame around every page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from fusion.dashboard import charts, filters, json_tree
from fusion.dashboard.page import GROUPS, undoing
from fusion.dashboard.static_files import address_of
from fusion.exceptions import ConfigurationError
from fusion.kernel import program
from fusion.views.base import View as Shown
from fusion.views.base import described

if TYPE_CHECKING:
    from jinja2 import Environment

    from fusion.dashboard.page import Page, PageRequest, Said


@cache
def environment() -> Environment:
    """Return the Jinja2 environment, with autoescape on. ConfigurationError without Jinja2."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ModuleNotFoundError:
        raise ConfigurationError(
            "the dashboard needs Jinja2; install it with: pip install 'fusion-queue[web]'", code="FUS-214"
        ) from None
    made = Environment(
        loader=PackageLoader("fusion.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(filters.FILTERS)
    made.globals.update(
        filters.GLOBALS,
        program=program.name(),
        drawn=charts.drawn,
        sparkline=charts.sparkline,
        tree=json_tree.tree,
        pretty=json_tree.pretty,
    )
    return made


class Frame:
    """The frame around every page: the navigation, the viewer's name, links of the surrounding application."""

    def __init__(self, pages: Iterable[Page], links: Iterable[tuple[str, str]] = (), *, sessions: bool = False) -> None:
        self._nav = [page for page in pages if page.nav]
        self._groups = [(group, [page for page in self._nav if page.group == group]) for group in GROUPS]
        self._links, self._sessions = tuple(links), sessions

    def render(self, view: PageRequest, page: Page, context: Mapping[str, Any], said: Said | None = None) -> bytes:
        """Return the page; for a refresh by its script, only the content."""
        here = quote(view.request.path) + (f"?{view.request.query}" if view.request.query else "")
        part = view.request.header("hx-request") == "true"
        around = {
            "view": view,
            "page": page,
            "layout": "part.html" if part else "frame.html",
            "nav": self._groups,
            "under": self._under(page),
            "links": self._links,
            "said": said,
            "undo": undoing(said, view) if said else None,
            "still": False,
            "leftovers": (),
            "logout": self._sessions,
            "here": view.request.prefix + here,
            "here_path": here,
            "static": lambda name: view.request.prefix + address_of(name),
        }
        shown = context.get(page.noun) if page.shows else None
        if page.shows and shown:
            around["leftovers"] = leftovers(environment(), page.template, page.noun, page.shows, shown)
        return environment().get_template(page.template).render({**around, **context}).encode("utf-8", "replace")

    def bare(self, template: str, prefix: str, **context: Any) -> bytes:
        """Return a page without the frame: the login, an error."""
        around = {"prefix": prefix, "static": lambda name: prefix + address_of(name)}
        return environment().get_template(template).render({**around, **context}).encode("utf-8", "replace")

    def _under(self, page: Page) -> str:
        """Return the path of the page in the navigation to which this page belongs; empty for one that belongs to none."""
        paths = [
            one.path for one in self._nav if page.path == one.path or (one.path != "/" and page.path.startswith(one.path + "/"))
        ]
        return max(paths, key=len, default="")


# -- the fields of a view that a page's template does not place, for "All fields"


#: Fields that change with every read, so that a page with them would never stay the same.
_MOVING = frozenset({"last_updated", "heartbeat_age", "oldest_age"})


class Leftover(NamedTuple):
    """A field that the template does not place."""

    name: str
    meaning: str
    value: str


def leftovers(environment: Environment, template: str, noun: str, kind: type[Shown], shown: Mapping[str, Any]) -> list[Leftover]:
    """Return the fields of `shown`, the JSON of a view of this kind, that the template does not mention as `noun.name`."""
    placed = _placed(environment, template, noun)
    return [
        Leftover(one.name, described(one), _value(shown[one.name]))
        for one in kind.FIELDS
        if one.name in shown and one.name not in placed and one.name not in _MOVING
    ]


@cache
def _placed(environment: Environment, template: str, noun: str) -> frozenset[str]:
    assert environment.loader is not None
    source, _, _ = environment.loader.get_source(environment, template)
    return frozenset(re.findall(rf'\b{noun}(?:\.get\("|\["|\.)(\w+)', source))


def _value(value: Any) -> str:
    if value is None:
        return "\u2013"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
