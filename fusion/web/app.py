"""The core turns a request into a response. It depends on no server and no framework; `wsgi` and `asgi` pass requests to it."""

from __future__ import annotations

import logging
import secrets
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlsplit

from redis.exceptions import RedisError

from fusion.exceptions import ConfigurationError, NoRedisError, NotAudited, SchemaMismatch, StoreUnavailable
from fusion.kernel.timeutil import now, to_iso
from fusion.store.client.classify import classify, one_line
from fusion.web import wsgi
from fusion.web.auth import Authenticator
from fusion.web.cors import Cors
from fusion.web.exchange import MAX_BODY, RETRY_AFTER, HttpError, Request, Response, plain
from fusion.web.export import exported
from fusion.web.hosts import Hosts
from fusion.web.routing import Route, Router

log = logging.getLogger("fusion.web")
_access = logging.getLogger("fusion.web.access")
_audit = logging.getLogger("fusion.web.audit")

#: Seconds between two log lines about an outage.
_OUTAGE_LINE = 10.0

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@dataclass(frozen=True, slots=True)
class AccessEntry:
    """One authorized request for a change: the caller, the action, its target and the status of the answer."""

    at: datetime
    actor: str
    client: str
    action: str
    target: str
    status: int


def log_audit(entry: AccessEntry) -> None:
    """Write one line to the log `fusion.web.audit`."""
    _audit.info(
        "audit: %s actor=%s client=%s action=%s target=%s status=%d",
        to_iso(entry.at),
        entry.actor,
        plain(entry.client),
        entry.action,
        plain(entry.target) or "-",
        entry.status,
    )


class App:
    """Answers requests by a table of routes. It is a WSGI application; `fusion.web.asgi.Asgi` makes an ASGI application of it.

    It checks in this order: route (404), Host (421), CORS preflight (204), method (405), token (401, 403, 429), the names of query parameters
    (422), the origin of a browser's request (403); then it calls the handler.
    """

    def __init__(
        self,
        routes: Iterable[Route],
        authenticate: Authenticator,
        *,
        hosts: Hosts | None = None,
        cors: Cors | None = None,
        max_body: int = MAX_BODY,
        audit: Callable[[AccessEntry], None] = log_audit,
        headers: Mapping[str, str] = _HEADERS,
    ) -> None:
        self._headers = headers
        self.router = Router(routes)
        self.max_body = max_body
        self._authenticate, self._hosts, self._audit = authenticate, hosts or Hosts(), audit
        self._cors = cors or Cors()
        self._told = float("-inf")

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        return wsgi.serve(self.handle, self.max_body, environ, start_response)

    def handle(self, request: Request) -> Response:
        """Return the answer, also for any error, and write one line to the access log."""
        began = time.perf_counter()
        try:
            response = self._route(request)
        except Exception as error:
            response = self.told(request, self._failed(error))
        return self._finish(request, response, time.perf_counter() - began)

    def refuse(self, error: HttpError, request: Request) -> Response:
        """Return the answer to a request that the server could not parse."""
        return self._finish(request, self.told(request, error), 0.0)

    def told(self, request: Request, error: HttpError) -> Response:
        """Return the answer for an error."""
        return Response.of(error)

    def check_change(self, request: Request) -> None:
        """Raise 403 for a change that comes from a page of another site, unless CORS allows its origin."""
        if not self._cors.allows(request):
            check_origin(request)

    def check_query(self, route: Route, request: Request) -> None:
        """Raise 422 for a query parameter that the route does not have. A filter that is ignored would not be noticed."""
        known = [param.name for param in route.query]
        for name in request.args():
            if name not in known:
                name, there = name[:80], " and ".join(known) or "none"
                raise HttpError(422, "invalid_value", f"there is no query parameter {name} here; there is {there}", field=name)

    def _route(self, request: Request) -> Response:
        methods, request.params = self.router.find(request.path)
        if not methods or any(route.scope for route in methods.values()):
            self._hosts.check(request.header("host"))
        if methods and (told := self._cors.preflight(request, methods)):
            return told
        route = self.router.choose(methods, request.method)
        if route.scope is not None:
            request.actor = self._authenticate(request)
            check_allowed(route, request)
        if request.query:
            self.check_query(route, request)
        if route.changes:
            return self._change(route, request)
        return exported(route, request) if route.rows else route.handler(request)

    def _change(self, route: Route, request: Request) -> Response:
        self.check_change(request)
        try:
            response = route.handler(request)
        except Exception as error:
            response = self.told(request, self._failed(error))
        actor = request.actor.name if request.actor else ""
        self._audit(AccessEntry(now(), actor, request.client, route.action, request.target, response.status))
        return response

    def _failed(self, error: Exception) -> HttpError:
        if isinstance(error, HttpError):
            return error
        if isinstance(error, SchemaMismatch):
            self._tell(error)
            return HttpError(503, "outdated", str(error))
        if isinstance(error, NotAudited):
            log.warning("answering 503: %s", one_line(error))
            return HttpError(
                503, "not_audited", "nothing is shown, because the audit can't be written; the server's log says why"
            )
        cause = error.__cause__ if isinstance(error, ConfigurationError) else error  # for example a refused login
        if isinstance(error, (StoreUnavailable, NoRedisError)) or (isinstance(cause, RedisError) and classify(cause) != "bug"):
            self._tell(error)
            return HttpError(
                503,
                "redis_unavailable",
                "Redis can't be reached or refuses; send the same request again a little later",
                headers={"Retry-After": str(RETRY_AFTER)},
            )
        number = secrets.token_hex(4)
        # Log neither the error's text nor any value: they may contain data of the caller.
        frames = traceback.extract_tb(error.__traceback__)
        where = " <- ".join(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in reversed(frames[-8:]))
        log.error("incident %s: %s.%s at %s", number, type(error).__module__, type(error).__qualname__, where)
        return HttpError(500, "internal", f"internal error; the log has details under incident {number}")

    def _tell(self, error: Exception) -> None:
        moment = time.monotonic()
        if moment - self._told > _OUTAGE_LINE:
            self._told = moment
            log.warning("answering 503: %s", one_line(error))

    def _finish(self, request: Request, response: Response, took: float) -> Response:
        response.headers = {**self._headers, **response.headers}
        self._cors.mark(request, response)
        _access.info(
            "%s %s %s %s %d %dB %.1fms",
            plain(request.client) or "-",
            request.actor.name if request.actor else "-",
            plain(request.method, 20) or "-",
            plain(quote(request.path)) or "-",
            response.status,
            len(response.body),
            took * 1000,
        )
        return response


def check_allowed(route: Route, request: Request) -> None:
    """Raise 403 unless the caller may use this route."""
    if route.scope is not None:
        request.require(route.scope)
    if not (route.by_queue or request.scope.all):
        raise HttpError(
            403, "all_queues", "this concerns all queues, and this token is restricted to some; use an unrestricted token"
        )


def check_origin(request: Request) -> None:
    """Raise 403 for a change that comes from a page of another site. Programs send neither of the two headers."""
    site, origin = request.header("sec-fetch-site"), request.header("origin")
    foreign = site not in ("same-origin", "none") if site else bool(origin) and urlsplit(origin).netloc != request.header("host")
    if foreign:
        raise HttpError(
            403,
            "cross_site",
            "this request comes from a page of another site; only programs and this service's own pages may change something",
        )
