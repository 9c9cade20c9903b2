"""The dashboard as an application: pages, actions, login and logout, static files."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable, Iterable, Sequence

from redis import Redis

from fusion.dashboard.access import Sessions, cookie_of, set_cookie
from fusion.dashboard.calls import Calls
from fusion.dashboard.frame import Frame
from fusion.dashboard.page import Again, Page, PageAction, PageRequest, Said, said_cookie, said_of
from fusion.dashboard.pages import ALL
from fusion.dashboard.static_files import accepts_gzip, serve
from fusion.settings import get_settings
from fusion.store.client.connections import url_of
from fusion.web.api import Api
from fusion.web.app import App
from fusion.web.auth import Authenticator
from fusion.web.exchange import HttpError, Request, Response
from fusion.web.hosts import Hosts
from fusion.web.routing import Route, Router

#: Only this service's own files may be run or shown, and requests may only go to this service.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Cache-Control": "private, no-cache",
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_HTML = "text/html; charset=utf-8"
#: The cookie with an action's message for the next page.
_SAID = "fusion_said"


class DashboardApp(App):
    """The application of the pages. `authenticate`: identifies the viewer; `Sessions` let viewers log in. `tasks`: as for `Api`; by default the
    setting."""

    def __init__(
        self,
        connection: Redis,
        authenticate: Authenticator,
        *,
        read_only: bool = False,
        hosts: Hosts | None = None,
        links: Iterable[tuple[str, str]] = (),
        url_prefix: str = "",
        tasks: Sequence[str] | None = None,
    ) -> None:
        self._sessions = authenticate if isinstance(authenticate, Sessions) else None
        self._connection = connection
        self._calls = Calls(Router(Api(connection, get_settings().tasks if tasks is None else tasks).routes()))
        self._read_only, self._prefix = read_only, url_prefix.rstrip("/")
        pages = [page for page in ALL if isinstance(page, Page)]
        self._frame = Frame(pages, links, sessions=self._sessions is not None)
        routes = [
            Route("GET", "/static/{file}", serve, None, "static"),
            Route("GET", "/export/{format}/{key}", self._calls.export, "read", "export", by_queue=True),
            *(
                Route("GET", page.path, self._shown(page), page.scope, "page", by_queue=not page.fleet, slashes=_slashes(page))
                for page in pages
            ),
            *(
                Route("POST", one.path, self._done(one), one.scope, one.path, by_queue=not one.fleet, slashes=_slashes(one))
                for one in ALL
                if isinstance(one, PageAction)
            ),
        ]
        if self._sessions is not None:
            routes.append(Route("GET", "/login", self._login, None, "login"))
        super().__init__(routes, authenticate, hosts=hosts, headers=_HEADERS)

    def handle(self, request: Request) -> Response:
        """Return the answer, also for any error."""
        if self._prefix and (request.path + "/").startswith(self._prefix + "/"):  # some frameworks leave the prefix in the path
            request.prefix, request.path = request.prefix + self._prefix, request.path[len(self._prefix) :] or "/"
        if self._sessions is not None and request.method == "POST" and request.path in ("/login", "/logout"):
            return self._finish_entry(request)
        return _packed(request, super().handle(request))

    def told(self, request: Request, error: HttpError) -> Response:
        """Return an error as a page; without a session, redirect to the login."""
        if error.status == 401 and self._sessions is not None:
            to = f"{request.prefix}/login"
            if request.header("hx-request") == "true":
                return Response(200, b"", {"HX-Redirect": to})
            return Response(303, b"", {"Location": to})
        away = error.code == "redis_unavailable"
        where = url_of(self._connection) if away and request.actor else ""  # strangers get no address
        again = request.path if request.method == "GET" else "/"
        body = self._frame.bare(
            "error.html", request.prefix, status=error.status, message=str(error), away=away, where=where, again=again
        )
        return Response(error.status, body, {"Content-Type": _HTML, **error.headers})

    def check_change(self, request: Request) -> None:
        """Raise 403 for a change that does not come from a page of this service. Browsers, unlike programs, send the origin of a form."""
        site, origin, host = (request.header(name) for name in ("sec-fetch-site", "origin", "host"))
        if site == "same-origin" or (not site and host and origin.partition("://")[2] == host):
            return
        raise HttpError(403, "cross_site", "this was not sent from a page of this dashboard; open the page and press its button")

    def check_query(self, route: Route, request: Request) -> None:
        """Accept any query: a page reads what it knows."""

    def _shown(self, page: Page) -> Callable[[Request], Response]:
        def show(request: Request) -> Response:
            view = PageRequest(request, self._calls, self._read_only)
            if not view.may(page.scope):  # actions always change something
                raise _read_only()
            raw = cookie_of(request, _SAID)
            context = page.load(view)
            body = self._frame.render(view, page, context, said_of(raw) if raw else None)
            tag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
            headers = {"Content-Type": _HTML, "ETag": tag, "Vary": "HX-Request, Cookie, Accept-Encoding"}
            if raw:
                headers["Set-Cookie"] = set_cookie(request, _SAID, "", 0)
            if request.header("if-none-match").removeprefix("W/") == tag:
                return Response(304, b"", headers)
            return Response(context.get("status", 200), body, headers)

        return show

    def _done(self, action: PageAction) -> Callable[[Request], Response]:
        def do(request: Request) -> Response:
            view = PageRequest(request, self._calls, self._read_only)
            if self._read_only:
                raise _read_only()
            try:
                told: str | Said | Again = action.act(view)
            except HttpError as error:
                if error.status not in (404, 409, 413, 422, 429):
                    raise
                told = Said(str(error), wrong=True)
            if isinstance(told, Again):
                body = self._frame.render(view, told.page, told.context, told.said)
                kept = {"Cache-Control": "private, no-store"} if told.secret else {}
                return Response(told.status, body, {"Content-Type": _HTML, **kept})
            said = Said(told) if isinstance(told, str) else told
            to = said.to or _local(view.field("back"))
            return Response(
                303, b"", {"Location": request.prefix + to, "Set-Cookie": set_cookie(request, _SAID, said_cookie(said), 30)}
            )

        return do

    def _login(self, request: Request) -> Response:
        self._hosts.check(request.header("host"))
        return Response(200, self._frame.bare("login.html", request.prefix, wrong=""), {"Content-Type": _HTML})

    def _finish_entry(self, request: Request) -> Response:
        """Answer login and logout, which need no session."""
        return self._finish(request, self._entry(request), 0.0)

    def _entry(self, request: Request) -> Response:
        assert self._sessions is not None
        try:
            self._hosts.check(request.header("host"))
            self.check_change(request)
            if request.path == "/logout":
                return Response(303, b"", {"Location": f"{request.prefix}/login", "Set-Cookie": self._sessions.close(request)})
            cookie = self._sessions.open(request, PageRequest(request, self._calls).field("token"))
            return Response(303, b"", {"Location": f"{request.prefix}/", "Set-Cookie": cookie})
        except Exception as error:
            told = self._failed(error)
            if told.status not in (401, 429):
                return self.told(request, told)
            body = self._frame.bare("login.html", request.prefix, wrong=str(told))
            return Response(told.status, body, {"Content-Type": _HTML, **told.headers})


def _slashes(of: Page | PageAction) -> bool:
    """Return True for paths with a queue's name: queues of other programs may have a `/` in their names."""
    return of.path.startswith("/queues/{name}")


def _read_only() -> HttpError:
    return HttpError(403, "read_only", "this dashboard only shows; it was started read-only")


def _local(path: str) -> str:
    """Return the path that a form named, if it is one of this service, else the first page."""
    return path if path.startswith("/") and path[1:2] not in ("/", "\\") and path.isprintable() and path.isascii() else "/"


def _packed(request: Request, response: Response) -> Response:
    """Return the answer, compressed if the browser accepts that and it saves enough."""
    headers = response.headers
    if len(response.body) > 1000 and headers.get("Content-Type") == _HTML and accepts_gzip(request):
        response.body = gzip.compress(response.body, 5, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return response
