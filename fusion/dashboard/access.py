"""Access to pages: by a session that was opened with a token, or by the application in which the dashboard is mounted."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from dataclasses import replace

from redis import Redis

from fusion.kernel.timeutil import now
from fusion.store.access import session_broker_of
from fusion.web.auth import Token, TokenFile, digest_of, new_actor
from fusion.web.exchange import Actor, HttpError, Request, plain
from fusion.web.hosts import LOOPBACK, host_of
from fusion.web.limiter import FailureLimiter

#: Seconds that a session lasts.
SESSION = 12 * 3600
COOKIE = "fusion_session"

#: The surrounding application's answer for a request: an Actor, a scope (`read`, `operate`, `admin`), or None for no access.
HostAuth = Callable[[Request], "Actor | str | None"]


class Sessions:
    """Sessions of 12 hours, opened with a token. A session ends earlier when its user logs out, or when its token expires or is removed from the
    file.

    Redis stores each session with a seal that only the server can make. So a client that can write to Redis can't create, take over, prolong or
    extend a session."""

    def __init__(self, connection: Redis, tokens: TokenFile, limiter: FailureLimiter | None = None) -> None:
        self._connection, self._tokens, self._limiter = connection, tokens, limiter or FailureLimiter()

    def __call__(self, request: Request) -> Actor:
        """Return the viewer; HttpError 401 without a session."""
        secret = cookie_of(request, COOKIE)
        known = self._known(digest_of(secret)) if secret else None
        if known is None or (known.expires is not None and known.expires <= now()):
            raise HttpError(401, "no_session", "log in with a token")
        return known.actor

    def _known(self, session: str) -> Token | None:
        """Return the token that opened a session; None if the session is over."""
        broker = session_broker_of(self._connection)
        record = broker.find_session(session)
        until = record.get("until", "")
        known = self._tokens.marked(record.get("token", "").encode("ascii", "replace").decode())
        if known is None or not hmac.compare_digest(
            _seal(known, broker.key(session), until), record.get("seal", "").encode("ascii", "replace")
        ):
            return None
        return known if now().timestamp() < float(until) else None

    def open(self, request: Request, token: str) -> str:
        """Open a session and return its cookie. HttpError 401 for an invalid token, 429 for a client's eleventh one within a minute."""
        known = self._tokens.find(token.strip())
        if known is None or (known.expires is not None and known.expires <= now()):
            if wait := self._limiter.failed(request.client):
                headers = {"Retry-After": str(wait)}
                raise HttpError(429, "too_many_failures", f"too many wrong tokens; wait {wait} s", headers=headers)
            raise HttpError(401, "unknown_token", "this token is not known, or has expired")
        secret, until = secrets.token_urlsafe(32), f"{now().timestamp() + SESSION:.0f}"
        broker, session = session_broker_of(self._connection), digest_of(secret)
        seal = _seal(known, broker.key(session), until).decode()
        broker.open_session(session, {"token": known.mark, "until": until, "seal": seal}, SESSION)
        return set_cookie(request, COOKIE, secret, SESSION)

    def close(self, request: Request) -> str:
        """End the session, and return a cookie that removes it from the browser."""
        if secret := cookie_of(request, COOKIE):
            session_broker_of(self._connection).close_session(digest_of(secret))
        return set_cookie(request, COOKIE, "", 0)


def _seal(token: Token, key: str, until: str) -> bytes:
    """Return the seal of a session: it covers the token's line in the file, the session's key and its end."""
    actor = token.actor
    queues = [] if actor.scope.queues is None else sorted(actor.scope.queues)
    return token.seal("session", key, until, actor.name, *sorted(actor.scopes), "of", *queues).encode()


class Host:
    """Access as the surrounding application decides. Without its function, or if that returns None, there is no access. `actor`: the name for the
    audit."""

    def __init__(self, auth: HostAuth | None, actor: Callable[[Request], str] | None) -> None:
        self._auth, self._actor = auth, actor

    def __call__(self, request: Request) -> Actor:
        """Return the viewer; HttpError 403 if there is none."""
        if self._auth is None:
            raise HttpError(
                403,
                "closed",
                "this dashboard is closed: mount it with auth=, a function of the request that returns the viewer's rights",
            )
        found = self._auth(request)
        if not found:
            raise HttpError(403, "no_access", "you have no access to this dashboard")
        called = plain(self._actor(request) or "", 100) if self._actor else ""  # the name is written to logs
        if isinstance(found, Actor):
            name = plain(found.name, 100)
            return replace(found, name=name, called=called or plain(found.called, 100) or name)
        return new_actor(called or "host", found, called=called or "application")


def cookie_of(request: Request, name: str) -> str:
    """Return a cookie of the request; empty if missing."""
    pairs = (part.strip().partition("=") for part in request.header("cookie").split(";"))
    return next((value for key, _, value in pairs if key == name), "")


def set_cookie(request: Request, name: str, value: str, seconds: int) -> str:
    """Return a `Set-Cookie` for this mount, closed to scripts and other sites. It is only sent over TLS, except on this machine."""
    loopback = host_of(request.header("host")) in LOOPBACK
    parts = [f"{name}={value}", f"Path={request.prefix or '/'}", f"Max-Age={seconds}", "HttpOnly", "SameSite=Strict"]
    return "; ".join(parts if loopback else [*parts, "Secure"])
