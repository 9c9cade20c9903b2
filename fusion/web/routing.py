"""The table of routes: paths, handlers and the scopes that callers need."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from fusion.kernel.actions import ACTIONS
from fusion.views.base import schema
from fusion.web.exchange import HttpError, Request, Response, listed

Handler = Callable[[Request], Response]

#: Scopes from the weakest; each includes those before it.
SCOPES = ("read", "operate", "admin")
#: Methods that change nothing.
SAFE = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter of a route's query. `kind`: `string`, `integer` (0 to `most`) or `boolean`; `choices`: its allowed values; `about`: its
    meaning, for the reference."""

    name: str
    about: str
    kind: str = "string"
    default: str | int | None = None
    most: int | None = None
    choices: tuple[str, ...] = ()


#: File formats of a list. Rows of a file without `limit`, and the most.
FORMATS, ROWS, MOST = ("json", "csv", "jsonl"), 10_000, 100_000
#: A further parameter of every list.
_FORMAT = Param("format", f"As a file: of up to `limit` rows, {ROWS} unless given, {MOST} at most.", choices=FORMATS)


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a route's requests: its name in the reference and its JSON Schema. Without `needed` it may be left out."""

    name: str
    schema: dict[str, Any]
    needed: bool = True


@dataclass(frozen=True, slots=True)
class Route:
    """One route. In `path`, like `/api/v1/jobs/{id}`, a name in braces stands for one segment, `{key}` for one or more. With `slashes` every
    name may stand for several, if no other path matches: queues of other programs may have a `/` in their names. `scope`: the scope that a
    caller needs; None means that anybody may call it, with any Host. `action` names it in the logs. A GET answers HEAD too.

    `by_queue`: it never shows or changes anything of queues that the caller may not see (see `within.py`). A token that is restricted to some
    queues is refused by every other route with a scope.

    `rows`: the field of its answer that is a list. Such a route can be exported with `?format=csv` or `jsonl` (`export.py`), page by page if it
    has a parameter `after` or `offset`.

    `params`: those of the query. `fusion.web.app` refuses any other name.

    Only for the reference: its `body`; `answer`: the view, or the union of views, of its answer, None for any JSON;
    `statuses` of a successful answer; `keyed`: a repeated request with the same Idempotency-Key takes effect once; `called`: its name there, if
    another route has the same action.
    """

    method: str
    path: str
    handler: Handler
    scope: str | None
    action: str
    params: tuple[Param, ...] = ()
    body: Body | None = None
    answer: Any = None
    statuses: tuple[int, ...] = (200,)
    keyed: bool = False
    called: str = ""
    by_queue: bool = False
    rows: str | None = None
    slashes: bool = False

    def __post_init__(self) -> None:
        if self.scope is not None and self.scope not in SCOPES:
            raise ValueError(f"route {self.path}: scope {self.scope!r}; use one of {', '.join(SCOPES)}, or None")
        if self.scope is None and self.method not in SAFE:
            raise ValueError(f"route {self.method} {self.path} changes something: give it a scope")

    @property
    def query(self) -> tuple[Param, ...]:
        """All parameters of its query."""
        return (*self.params, _FORMAT) if self.rows else self.params

    @property
    def answer_schema(self) -> dict[str, Any]:
        """The JSON Schema of its answer."""
        return {} if self.answer is None else schema(self.answer)

    @property
    def changes(self) -> bool:
        """True if a call of it may change something."""
        return self.method not in SAFE


def change(path: str, handler: Handler, action: str, *, method: str = "POST", **more: Any) -> Route:
    """Make the route of an action, with its scope from `kernel.actions`."""
    return Route(method, path, handler, ACTIONS[action].scope, action, **more)


def paging(rows: str, page: int, most: int) -> tuple[Param, ...]:
    """Return the parameters of a list that is read by `offset` and `limit`."""
    return (
        Param("offset", f"{rows} to leave out.", "integer", 0, 10**9),
        Param("limit", f"{rows} of one page.", "integer", page, most),
    )


class Router:
    """Finds routes by path and method. ValueError for two routes with the same path and method."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._paths: dict[str, tuple[re.Pattern[str], dict[str, Route]]] = {}
        for route in self.routes:
            _, methods = self._paths.setdefault(route.path, (_pattern(route.path, "[^/]+"), {}))
            if route.method in methods:
                raise ValueError(f"two routes for {route.method} {route.path}")
            methods[route.method] = route
        # Paths that end with a verb come first, because the verb is no part of the name.
        wide = sorted({route.path for route in self.routes if route.slashes}, key=lambda path: (path.endswith("}"), path))
        self._wide = [(_pattern(path), self._paths[path][1]) for path in wide]

    def find(self, path: str) -> tuple[dict[str, Route], dict[str, str]]:
        """Return the routes of a path by method, and the values of its names in braces; both empty if there is no route."""
        for pattern, methods in (*self._paths.values(), *self._wide):
            if found := pattern.fullmatch(path):
                return methods, found.groupdict()
        return {}, {}

    @staticmethod
    def choose(methods: dict[str, Route], method: str) -> Route:
        """Return the route of a method; 404 without any routes, 405 if the method has none."""
        if not methods:
            raise HttpError(404, "not_found", "there is nothing at this path; docs/http.md lists all paths")
        route = methods.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = listed({*methods, *(["HEAD"] if "GET" in methods else [])})
            raise HttpError(405, "method_not_allowed", f"this path answers {allowed}", headers={"Allow": allowed})
        return route


def _pattern(path: str, kind: str = ".+") -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", path)
    return re.compile(
        "".join(f"(?P<{part}>{'.+' if part == 'key' else kind})" if n % 2 else re.escape(part) for n, part in enumerate(parts))
    )
