"""Who may open pages: a session that a token of the tokens file opened, or whoever the application around the dashboard says."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace

from redis import Redis

from fusion.kernel.timeutil import now
from fusion.store.access import session_broker_of
from fusion.web.auth import TokenFile, digest_of, new_actor
from fusion.web.exchange import Actor, HttpError, Request, plain
from fusion.web.hosts import LOOPBACK, host_of
from fusion.web.limiter import FailureLimiter

#: Seconds of a session.
SESSION = 12 * 3600
COOKIE = "fusion_session"

#: What the application around says of a request: who it is, or the scope that they have (`read`, `operate`, `admin`), or None for no access.
HostAuth = Callable[[Request], "Actor | str | None"]


class Sessions:
    """People give a token once and have a session for 12 hours. It is over before when they log out, or when the token's line leaves the file or
    its time is over."""

    def __init__(self, connection: Redis, tokens: TokenFile, limiter: FailureLimiter | None = None) -> None:
        self._connection, self._tokens, self._limiter = connection, tokens, limiter or FailureLimiter()

    def __call__(self, request: Request) -> Actor:
        """Who asks; HttpError 401 without a session."""
        secret = cookie_of(request, COOKIE)
        digest = session_broker_of(self._connection).find_session(digest_of(secret)) if secret else None
        known = self._tokens.known(digest) if digest else None
        if known is None or (known.expires is not None and known.expires <= now()):
            raise HttpError(401, "no_session", "log in with a token")
        return known.actor

    def open(self, request: Request, token: str) -> str:
        """Open a session and return its cookie. HttpError 401 for a token that does not count, 429 for a client's eleventh within a minute."""
        known = self._tokens.find(token.strip())
        if known is None or (known.expires is not None and known.expires <= now()):
            if wait := self._limiter.failed(request.client):
                headers = {"Retry-After": str(wait)}
                raise HttpError(429, "too_many_failures", f"too many wrong tokens; wait {wait} s", headers=headers)
            raise HttpError(401, "unknown_token", "this token is not known, or its time is over")
        secret = secrets.token_urlsafe(32)
        session_broker_of(self._connection).open_session(digest_of(secret), known.digest, SESSION)
        return set_cookie(request, COOKIE, secret, SESSION)

    def close(self, request: Request) -> str:
        """End the session, and return the cookie that has the browser forget it."""
        if secret := cookie_of(request, COOKIE):
            session_broker_of(self._connection).close_session(digest_of(secret))
        return set_cookie(request, COOKIE, "", 0)


class Host:
    """Who the application around the dashboard says it is. No function, or no answer: no access. `actor`: the name under which changes stand in
    the audit."""

    def __init__(self, auth: HostAuth | None, actor: Callable[[Request], str] | None) -> None:
        self._auth, self._actor = auth, actor

    def __call__(self, request: Request) -> Actor:
        """Who asks; HttpError 403 if that is nobody."""
        if self._auth is None:
            raise HttpError(
                403,
                "closed",
                "this dashboard is closed: mount it with auth=, a function of the request that says who may do what",
            )
        found = self._auth(request)
        if not found:
            raise HttpError(403, "no_access", "you have no access to this dashboard")
        called = plain(self._actor(request) or "", 100) if self._actor else ""  # it stands in logs
        if isinstance(found, Actor):
            name = plain(found.name, 100)
            return replace(found, name=name, called=called or plain(found.called, 100) or name)
        return new_actor(called or "host", found, called=called or "application")


def cookie_of(request: Request, name: str) -> str:
    """A cookie of the request; empty without it."""
    pairs = (part.strip().partition("=") for part in request.header("cookie").split(";"))
    return next((value for key, _, value in pairs if key == name), "")


def set_cookie(request: Request, name: str, value: str, seconds: int) -> str:
    """A `Set-Cookie` of this mount that no script reads and no other site sends; over TLS alone, unless it is this machine."""
    loopback = host_of(request.header("host")) in LOOPBACK
    parts = [f"{name}={value}", f"Path={request.prefix or '/'}", f"Max-Age={seconds}", "HttpOnly", "SameSite=Strict"]
    return "; ".join(parts if loopback else [*parts, "Secure"])
