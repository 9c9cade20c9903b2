"""Render pages: the templates, their filters, and the frame around every page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fusion.dashboard import filters
from fusion.dashboard.leftover import leftovers
from fusion.dashboard.static_files import address_of
from fusion.exceptions import ConfigurationError
from fusion.kernel import program

if TYPE_CHECKING:
    from jinja2 import Environment

    from fusion.dashboard.page import Page, Said, View


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
    made.globals.update(filters.GLOBALS, program=program.name())
    return made


class Frame:
    """The frame around every page: the navigation, the viewer's name, links of the surrounding application."""

    def __init__(self, pages: Iterable[Page], links: Iterable[tuple[str, str]] = (), *, sessions: bool = False) -> None:
        self._nav = [page for page in pages if page.nav]
        self._links, self._sessions = tuple(links), sessions

    def render(self, view: View, page: Page, context: Mapping[str, Any], said: Said | None = None) -> bytes:
        """Return the page; for a refresh by its script, only the content."""
        here = quote(view.request.path) + (f"?{view.request.query}" if view.request.query else "")
        part = view.request.header("hx-request") == "true"
        around = {
            "view": view,
            "page": page,
            "layout": "part.html" if part else "frame.html",
            "nav": self._nav,
            "under": self._under(page),
            "links": self._links,
            "said": said,
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
        """Return the path of the page in the navigation to which this page belongs."""
        paths = [one.path for one in self._nav if (page.path + "/").startswith(one.path.rstrip("/") + "/")]
        return max(paths, key=len, default="/")
