"""Pages and actions, the parts of the modules in `pages/`, and the `View` that they receive."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, urlencode

from fusion.dashboard.calls import KEPT, Calls
from fusion.views.base import View as Shown
from fusion.web.exchange import HttpError, Request

#: Most bytes of a form.
MAX_FORM = 256 * 1024
#: Most characters of a message on the next page.
_SAID = 400
#: The groups of the navigation.
GROUPS = ("Work", "Plan", "System")


@dataclass(frozen=True, slots=True)
class Page:
    """One page. `load` returns the context of its template, read from the API. In it, `status` sets the answer's status, and `still` stops the
    automatic refresh. `nav`: its name in the navigation, in the group `group`; empty: it belongs to the page whose path its own path begins
    with.
    `fleet`: it concerns all queues, and is closed to viewers who are restricted to some.

    `shows`: the view that it shows, which its context has as `noun`. Fields that its template does not place are listed at the end under
    "All fields"."""

    path: str
    template: str
    title: str
    load: Callable[[PageRequest], Mapping[str, Any]]
    nav: str = ""
    group: str = "Work"
    scope: str = "read"
    fleet: bool = False
    shows: type[Shown] | None = None
    noun: str = "one"


@dataclass(frozen=True, slots=True)
class PageAction:
    """The action of a form. `act` calls the API and returns a message. The message is shown at the top of the next page, which is the page of the
    form unless `Said` names another."""

    path: str
    act: Callable[[PageRequest], str | Said | Again]
    scope: str = "operate"
    fleet: bool = False


@dataclass(frozen=True, slots=True)
class Said:
    """The result of an action. `to`: the path of the next page, without the prefix; `wrong`: the action failed. `undo`: what takes it back, a
    name in `UNDO`, and of what."""

    text: str
    to: str = ""
    wrong: bool = False
    undo: tuple[str, tuple[str, ...]] = ("", ())


#: The paths of the actions that take another one back, and the scope that they need. A message names one of these, never a path: a browser keeps it.
UNDO = {
    "pause": ("/queues/{}/resume", "admin"),
    "resume": ("/queues/{}/pause", "admin"),
    "key_pause": ("/limit/{}/resume", "admin"),
    "key_resume": ("/limit/{}/pause", "admin"),
    "cron_pause": ("/cron/{}/resume", "admin"),
    "cron_resume": ("/cron/{}/pause", "admin"),
    "quiet": ("/workers/{}/unquiet", "admin"),
    "unquiet": ("/workers/{}/quiet", "admin"),
    "delete": ("/jobs/{}/restore", "operate"),
    "delete_many": ("/trash/restore", "operate"),
}
#: Most characters of the ids in a message: a browser keeps no cookie over 4 KB.
_UNDONE = 1800


class Undoing(NamedTuple):
    """The form of an undo: its path, and the ids that it sends."""

    path: str
    ids: tuple[str, ...]


def undoing(said: Said, view: PageRequest) -> Undoing | None:
    """Return what takes the action of a message back; None if nothing does, or this viewer may not."""
    path, scope = UNDO.get(said.undo[0], ("", ""))
    if not path or not said.undo[1] or not view.may(scope):
        return None
    if "{}" in path:
        return Undoing(path.format(quote(said.undo[1][0], safe="")), ())
    return Undoing(path, said.undo[1])


@dataclass(frozen=True, slots=True)
class Again:
    """Show a page as the answer to its form, mostly again with the entered values. `said`: the error message, or another with a `status` that
    is none of an error. `secret`: no cache may keep it."""

    page: Page
    context: Mapping[str, Any]
    said: Said
    status: int = 422
    secret: bool = False


class PageRequest:
    """The input of a page or an action: the viewer's request, and the API with the viewer's rights."""

    def __init__(self, request: Request, calls: Calls, read_only: bool = False) -> None:
        self.request, self._calls, self._read_only = request, calls, read_only

    @property
    def params(self) -> dict[str, str]:
        """The values of the names in braces in the path."""
        return self.request.params

    @cached_property
    def args(self) -> dict[str, str]:
        """The query parameters; of a repeated name, the last."""
        return self.request.args()

    @cached_property
    def form(self) -> dict[str, list[str]]:
        """The fields of the submitted form. HttpError 400, 413 or 415."""
        kind = self.request.header("content-type").partition(";")[0].strip().lower()
        if kind != "application/x-www-form-urlencoded":
            raise HttpError(415, "not_a_form", "send this from the form of its page")
        self.request.max_body = MAX_FORM
        try:
            return parse_qs(self.request.body().decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=2000)
        except ValueError:
            raise HttpError(400, "bad_form", "the form has too many fields; select fewer rows") from None

    def field(self, name: str, default: str = "") -> str:
        """Return one field of the form."""
        return self.form.get(name, [default])[-1]

    def may(self, scope: str) -> bool:
        """Return True if the viewer has this scope and the dashboard is not read-only."""
        actor = self.request.actor
        return actor is not None and scope in actor.scopes and (scope == "read" or not self._read_only)

    @property
    def knows(self) -> bool:
        """True if the viewer may see the data of jobs; a read-only dashboard shows them too."""
        return self.request.actor is not None and "operate" in self.request.actor.scopes

    @property
    def may_reveal(self) -> bool:
        """True if the viewer may see the masked values of jobs."""
        actor = self.request.actor
        return self.may("admin") and actor is not None and (actor.local or not actor.anonymous)

    @property
    def sees_all(self) -> bool:
        """True if the viewer may see every queue."""
        return self.request.scope.all

    def get(self, path: str, *, kept: float = KEPT, **args: object) -> Any:
        """Return the document of a GET of the API, whose path is given without `/api/v1`. The document must not be modified. Raises the API's
        HttpError."""
        return self._calls.get(self.request, f"/api/v1{path}", args, kept)

    def ask(self, path: str, *, kept: float = KEPT, **args: object) -> Any:
        """Return the same document; None if the viewer may not see it."""
        try:
            return self.get(path, kept=kept, **args)
        except HttpError as error:
            if error.status == 403:
                return None
            raise

    def post(self, path: str, body: object = None, *, key: str = "") -> Any:
        """Make a POST and return its document. A form with a field `once` takes effect once, however often it is sent."""
        return self._change("POST", path, body, key or (self.field("once") if self._is_form else ""))

    def put(self, path: str, body: object = None) -> Any:
        """Make a PUT and return its document."""
        return self._change("PUT", path, body)

    def delete(self, path: str, body: object = None) -> Any:
        """Make a DELETE and return its document."""
        return self._change("DELETE", path, body)

    def url(self, path: str, **args: object) -> str:
        """Return the address of a page in this mount. Arguments that are None or empty are left out."""
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
    """Return a message for the next page as the text of a cookie."""
    name, ids = said.undo if sum(map(len, said.undo[1])) <= _UNDONE else ("", ())
    raw = json.dumps([said.text[:_SAID], said.wrong, name, *ids], ensure_ascii=False).encode("utf-8", "replace")
    return urlsafe_b64encode(raw).decode()  # a browser keeps no cookie over 4 KB


def said_of(raw: str) -> Said | None:
    """Return the message in a cookie; None if there is none."""
    try:
        text, wrong, name, *ids = json.loads(urlsafe_b64decode(raw))
        return Said(str(text)[:_SAID], wrong=bool(wrong), undo=(str(name), tuple(map(str, ids))))
    except (ValueError, TypeError, RecursionError):
        return None
