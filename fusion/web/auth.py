"""Bearer tokens. A file holds their names, scopes, queues, expiry times and hashes, but not the tokens themselves.

The hash is plain SHA-256, because tokens are 256 random bits that nobody can guess. Never store the hash of a chosen password there.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Protocol

from fusion.exceptions import ConfigurationError, InvalidName
from fusion.kernel import program
from fusion.kernel.scope import EVERYTHING, Scope
from fusion.kernel.timeutil import now, parse_moment
from fusion.store.layout.names import check_queue_name, is_pattern
from fusion.web.exchange import Actor, HttpError, Request
from fusion.web.hosts import is_local
from fusion.web.limiter import FailureLimiter
from fusion.web.routing import SCOPES

log = logging.getLogger("fusion.web")

_LINE = re.compile(
    r"(?P<name>[A-Za-z0-9_.-]{1,64}):(?P<scopes>[a-z]+(?:,[a-z]+)*)(?:@(?P<queues>[^:\s]{1,4000}))?:(?P<digest>[0-9a-f]{64})"
    r"(?::expires=(?P<expires>[0-9A-Z:.+-]{1,40}))?"
)
_PATTERN = re.compile(r"[A-Za-z0-9_.*?\[\]!-]{1,128}")
_PREFIX = "fusion_"


def digest_of(token: str) -> str:
    """Return the hash of a secret text, as files and Redis store it."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _with_weaker(scopes: Iterable[str]) -> frozenset[str]:
    strongest = max(SCOPES.index(scope) for scope in scopes)
    return frozenset(SCOPES[: strongest + 1])


def new_actor(name: str, scope: str, *, called: str = "") -> Actor:
    """Return an actor with this scope and all weaker ones, for every queue. ValueError for an unknown scope."""
    if scope not in SCOPES:
        raise ValueError(f"scope {scope!r}: use {', '.join(SCOPES)}")
    return Actor(name, _with_weaker([scope]), called=called)


ANONYMOUS = Actor("anonymous", frozenset(SCOPES), anonymous=True)


def new_token(name: str, scopes: Iterable[str], queues: Iterable[str] = (), expires: datetime | None = None) -> tuple[str, str]:
    """Make a token; return it and its line for the tokens file. `queues`: names and wildcards to which it is restricted; empty: not restricted.
    ValueError for an invalid name, scope or queue."""
    token = _PREFIX + secrets.token_urlsafe(32)
    within = "+".join(dict.fromkeys(queues))
    end = expires and f":expires={expires.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
    line = f"{name}:{','.join(dict.fromkeys(scopes))}{within and '@' + within}:{digest_of(token)}{end or ''}"
    parse_line(line)
    return token, line


@dataclass(frozen=True, slots=True)
class Token:
    """A known token: its owner, the hash of its text, and when it expires (None: never)."""

    actor: Actor
    digest: str
    expires: datetime | None = None

    @property
    def mark(self) -> str:
        """An identifier of the token that is safe to store: nobody can derive the hash in the tokens file from it."""
        return self.seal("token")

    def seal(self, *texts: str) -> str:
        """Return a signature of these texts. Its key can only be derived from the token or from its line in the file."""
        whole = json.dumps(texts).encode()
        return hmac.new(f"fusion:{self.digest}".encode(), whole, hashlib.sha256).hexdigest()


def parse_line(line: str) -> Token:
    """Parse one line `name:scope[,scope][@queue+queue]:sha256hex[:expires=time]`. A ValueError names the mistake, but not the hash."""
    found = _LINE.fullmatch(line)
    if found is None:
        raise ValueError(
            "use name:scope[,scope][@queue+queue]:sha256hex[:expires=2030-01-31T00:00Z], as "
            f"`{program.name()} server token NAME --scope read` prints it"
        )
    scopes = found["scopes"].split(",")
    if unknown := [scope for scope in scopes if scope not in SCOPES]:
        raise ValueError(f"scope {unknown[0]!r}: use {', '.join(SCOPES)}")
    queues = Scope(tuple(check_queue(name) for name in found["queues"].split("+"))) if found["queues"] else EVERYTHING
    expires = None if found["expires"] is None else parse_moment(found["expires"])
    return Token(Actor(found["name"], _with_weaker(scopes), queues), found["digest"], expires)


def check_queue(name: str) -> str:
    """Return the name of a queue, or a wildcard, or raise ValueError."""
    if is_pattern(name):
        if not _PATTERN.fullmatch(name):
            raise ValueError(f"queues {name[:80]!r}: use 1 to 128 of the characters A-Z a-z 0-9 _ . - * ? [ ] !")
        return name
    try:
        return check_queue_name(name)
    except InvalidName as error:
        raise ValueError(str(error)) from None


def parse_tokens(text: str, where: str) -> list[Token]:
    """Parse all lines; empty lines and those that begin with # are ignored. A ConfigurationError names the line. Tokens of the same name, like
    an old token and its successor, must have the same queues: the name identifies repeated requests, and the author of recorded changes."""
    tokens: list[Token] = []
    queues: dict[str, Scope] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            token = parse_line(line.strip())
            if queues.setdefault(token.actor.name, token.actor.scope) != token.actor.scope:
                raise ValueError(
                    f"another token of the name {token.actor.name!r} is for other queues; give each a name of its own"
                )
            tokens.append(token)
        except ValueError as error:
            raise ConfigurationError(f"tokens file {where}, line {number}: {error}", code="FUS-218") from None
    return tokens


class TokenFile:
    """The tokens of a file. It is read again whenever it has changed, so a token can be revoked without a restart.

    If a changed file can't be read, that is logged and the known tokens stay valid. ConfigurationError if the first read fails.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._state = self._look()
        self._tokens = self._read()

    def __len__(self) -> int:
        return len(self._tokens)

    def names(self) -> list[str]:
        """Return the names of the known tokens."""
        return [token.actor.name for token in self._current()]

    def find(self, token: str) -> Token | None:
        """Return the known token with this text, even if it has expired. All are compared in constant time, so the duration reveals nothing."""
        digest, found = digest_of(token), None
        for known in self._current():
            if hmac.compare_digest(known.digest, digest):
                found = known
        return found

    def marked(self, mark: str) -> Token | None:
        """Return the token with this mark; None if there is none."""
        return next((token for token in self._current() if hmac.compare_digest(token.mark, mark)), None)

    def _current(self) -> list[Token]:
        state = self._look()
        if state != self._state:
            with self._lock:
                self._state = state
                try:
                    self._tokens = self._read()
                    log.info("tokens file read again: %d tokens", len(self._tokens))
                except ConfigurationError as error:
                    log.error("%s; the tokens known before stay valid", error)
        return self._tokens

    def _look(self) -> tuple[int, ...]:
        try:
            found = os.stat(self.path)
        except OSError:
            return ()
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> list[Token]:
        try:
            with open(self.path, encoding="utf-8") as file:
                return parse_tokens(file.read(), self.path)
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8 text"
            raise ConfigurationError(
                f"tokens file {self.path!r} can't be read: {reason}; make one with: {program.name()} server token NAME --scope read "
                f"--file {self.path}",
                code="FUS-218",
            ) from None


class Authenticator(Protocol):
    """Identifies the caller, or raises HttpError."""

    def __call__(self, request: Request) -> Actor: ...


class Bearer:
    """Authenticates by `Authorization: Bearer TOKEN`. 401 for a missing, wrong or expired token; 429 for a client's eleventh wrong one in a minute.

    A right token always passes. Behind a proxy all clients have one address, and none of them must be able to lock out the others.
    """

    def __init__(self, tokens: TokenFile, limiter: FailureLimiter | None = None) -> None:
        self.tokens, self.limiter = tokens, limiter or FailureLimiter()

    def __call__(self, request: Request) -> Actor:
        scheme, _, token = request.header("authorization").partition(" ")
        if not scheme:
            raise _unauthorized("this needs a token; send Authorization: Bearer TOKEN", "")
        known = self.tokens.find(token.strip()) if scheme.lower() == "bearer" else None
        if known is not None:
            if known.expires is not None and known.expires <= now():
                raise _unauthorized(
                    f"this token expired at {known.expires:%Y-%m-%dT%H:%M:%S%z}; make a new one with: {program.name()} server token",
                    "invalid_token",
                )
            return known.actor
        if wait := self.limiter.failed(request.client):
            raise HttpError(429, "too_many_failures", f"too many wrong tokens; wait {wait} s", headers={"Retry-After": str(wait)})
        raise _unauthorized(
            "this token is not known; send Authorization: Bearer TOKEN with one of the tokens file", "invalid_token"
        )


def _unauthorized(message: str, error: str) -> HttpError:
    challenge = 'Bearer realm="fusion"' + (f', error="{error}"' if error else "")
    return HttpError(401, "unauthorized", message, headers={"WWW-Authenticate": challenge})


def no_auth(request: Request) -> Actor:
    """Let every caller in: for a service that only this machine can reach. One that a proxy let through is not `local`."""
    return replace(ANONYMOUS, local=is_local(request))
