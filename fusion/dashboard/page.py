"""Pages and actions: what the modules of `pages/` consist of, and what they are given."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import parse_qs, urlencode

from fusion.dashboard.calls import KEPT, Calls
from fusion.views.base import View as Shown
from fusion.web.exchange import HttpError, Request

#: Bytes of a form.
MAX_FORM = 256 * 1024
#: Characters of what is told on the next page.
_SAID = 400


@dataclass(frozen=True, slots=True)
class Page:
    """One page: `load` asks the API for what its template shows; `status` among it is the answer's, with `still` it does not refresh itself.
    `nav`: its name in the navigation; empty: it stands under that page whose path its own begins with.
    `fleet`: it is about all queues, and closed to who may see some alone.

    `shows`: the view that it is about, which stands in its context as `noun`. Fields that its template does not place follow below it, under
    "All fields"."""

    path: str
    template: str
    title: str
    load: Callable[[View], Mapping[str, Any]]
    nav: str = ""
    scope: str = "read"
    fleet: bool = False
    shows: type[Shown] | None = None
    noun: str = "one"


@dataclass(frozen=True, slots=True)
class Action:
    """What a form does: `act` calls the API, and what it returns is told at the top of the page that comes next, the one that the form was on
    unless `Said` names another."""

    path: str
    act: Callable[[View], str | Said | Again]
    scope: str = "operate"
    fleet: bool = False


@dataclass(frozen=True, slots=True)
class Said:
    """The result of an action. `to`: the path of the page to go on to, without the prefix; `wrong`: it did not do what was asked."""

    text: str
    to: str = ""
    wrong: bool = False


@dataclass(frozen=True, slots=True)
class Again:
    """A page's form once more, with what was entered into it: `said` tells what is wrong with that."""

    page: Page
    context: Mapping[str, Any]
    said: Said


class View:
    """What a page or an action is made from: the request of a person, and the API as they may use it."""

    def __init__(self, request: Request, calls: Calls, read_only: bool = False) -> None:
        self.request, self._calls, self._read_only = request, calls, read_only

    @property
    def params(self) -> dict[str, str]:
        """What the braces of the path stand for."""
        return self.request.params

    @cached_property
    def args(self) -> dict[str, str]:
        """The query, the last of each name."""
        return self.request.args()

    @cached_property
    def form(self) -> dict[str, list[str]]:
        """The fields of a form that was sent. HttpError 400, 413 or 415."""
        kind = self.request.header("content-type").partition(";")[0].strip().lower()
        if kind != "application/x-www-form-urlencoded":
            raise HttpError(415, "not_a_form", "send this from the form of its page")
        self.request.max_body = MAX_FORM
        try:
            return parse_qs(self.request.body().decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=2000)
        except ValueError:
            raise HttpError(400, "bad_form", "the form has too many fields; select fewer rows") from None

    def field(self, name: str, default: str = "") -> str:
        """One field of the form."""
        return self.form.get(name, [default])[-1]

    def may(self, scope: str) -> bool:
        """True if the viewer has this scope and the dashboard is not read-only."""
        actor = self.request.actor
        return actor is not None and scope in actor.scopes and (scope == "read" or not self._read_only)

    @property
    def knows(self) -> bool:
        """Whether they may know what jobs are about, be it that this dashboard changes nothing."""
        return self.request.actor is not None and "operate" in self.request.actor.scopes

    @property
    def sees_all(self) -> bool:
        """Whether they may see every queue."""
        return self.request.scope.all

    def get(self, path: str, *, kept: float = KEPT, **args: object) -> Any:
        """The document of a GET of the API, `/api/v1` left out of its path; not to be changed. HttpError as the API tells it."""
        return self._calls.get(self.request, f"/api/v1{path}", args, kept)

    def ask(self, path: str, *, kept: float = KEPT, **args: object) -> Any:
        """The same; None if the viewer may not see it."""
        try:
            return self.get(path, kept=kept, **args)
        except HttpError as error:
            if error.status == 403:
                return None
            raise

    def post(self, path: str, body: object = None, *, key: str = "") -> Any:
        """The document of a POST. A page's form may have a field `once`, so that it counts once, however often it is sent."""
        return self._change("POST", path, body, key or (self.field("once") if self._is_form else ""))

    def put(self, path: str, body: object = None) -> Any:
        """The document of a PUT."""
        return self._change("PUT", path, body)

    def delete(self, path: str, body: object = None) -> Any:
        """The document of a DELETE."""
        return self._change("DELETE", path, body)

    def url(self, path: str, **args: object) -> str:
        """The address of a page in this mount. Arguments that are None or empty are left out."""
        query = urlencode({name: value for name, value in args.items() if value not in (None, "")})
        return f"{self.request.prefix}{path}{'?' if query else ''}{query}"

    @property
    def _is_form(self) -> bool:
        return self.request.header("content-type").startswith("application/x-www-form-urlencoded")

    def _change(self, method: str, path: str, body: object, key: str = "") -> Any:
        if self._read_only:
            raise HttpError(403, "read_only", "this dashboard only shows; it was started read-only")
        return self._calls.change(self.request, method, f"/api/v1{path}", body, key=key)


def said_cookie(said: Said) -> str:
    """What is told on the next page, as text for a cookie."""
    raw = json.dumps([said.text[:_SAID], said.wrong], ensure_ascii=False).encode("utf-8", "replace")
    return urlsafe_b64encode(raw).decode()  # a browser keeps no cookie over 4 KB


def said_of(raw: str) -> Said | None:
    """That of a cookie; None for none."""
    try:
        text, wrong = json.loads(urlsafe_b64decode(raw))
        return Said(str(text)[:_SAID], wrong=bool(wrong)) if raw else None
    except (ValueError, TypeError, RecursionError):
        return None
