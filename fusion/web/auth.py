"""Bearer tokens. A file holds their names, scopes, queues, ends and hashes; who reads it learns no token.

The hash is a bare SHA-256, since tokens are 256 random bits that nobody can guess; never write the hash of a chosen password there.
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
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Protocol

from fusion.exceptions import ConfigurationError, InvalidName
from fusion.kernel import program
from fusion.kernel.scope import EVERYTHING, Scope
from fusion.kernel.timeutil import now, parse_moment
from fusion.store.layout.names import check_queue_name, is_pattern
from fusion.web.exchange import Actor, HttpError, Request
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
    """The hash of a secret text, as files and Redis hold it."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _with_weaker(scopes: Iterable[str]) -> frozenset[str]:
    strongest = max(SCOPES.index(scope) for scope in scopes)
    return frozenset(SCOPES[: strongest + 1])


def new_actor(name: str, scope: str, *, called: str = "") -> Actor:
    """Who has this scope and those weaker, on every queue. ValueError for an unknown one."""
    if scope not in SCOPES:
        raise ValueError(f"scope {scope!r}: use {', '.join(SCOPES)}")
    return Actor(name, _with_weaker([scope]), called=called)


ANONYMOUS = Actor("anonymous", frozenset(SCOPES), anonymous=True)


def new_token(name: str, scopes: Iterable[str], queues: Iterable[str] = (), expires: datetime | None = None) -> tuple[str, str]:
    """A new token, and the line of the file that makes it known. `queues`: names and wildcards to which it is restricted; none: it is not.
    ValueError for a name, scope or queue that can't stand there."""
    token = _PREFIX + secrets.token_urlsafe(32)
    within = "+".join(dict.fromkeys(queues))
    end = expires and f":expires={expires.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
    line = f"{name}:{','.join(dict.fromkeys(scopes))}{within and '@' + within}:{digest_of(token)}{end or ''}"
    parse_line(line)
    return token, line


@dataclass(frozen=True, slots=True)
class Token:
    """A known token: whose it is, the hash of its text, and until when it counts (None: for ever)."""

    actor: Actor
    digest: str
    expires: datetime | None = None

    @property
    def mark(self) -> str:
        """By which others may know it: nobody comes from it to the hash that stands in the file."""
        return self.seal("token")

    def seal(self, *texts: str) -> str:
        """A signature of these texts, by a key that only the token or its line in the file gives."""
        whole = json.dumps(texts).encode()
        return hmac.new(f"fusion:{self.digest}".encode(), whole, hashlib.sha256).hexdigest()


def parse_line(line: str) -> Token:
    """One line `name:scope[,scope][@queue+queue]:sha256hex[:expires=time]`. ValueError says what is wrong, without the hash."""
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
    """All lines; empty ones and those that begin with # don't count. ConfigurationError names the line. Two of one name, like an old token
    and the one that follows it, see the same queues: by their name requests are known again, and changes are recorded."""
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
            raise ConfigurationError(f"tokens file {where}, line {number}: {error}") from None
    return tokens


class TokenFile:
    """The tokens of a file, read again whenever it was changed, so that revoking one needs no restart.

    A change that can't be read is logged, and leaves those that were known. ConfigurationError if it can't be read at first.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._state = self._look()
        self._tokens = self._read()

    def __len__(self) -> int:
        return len(self._tokens)

    def names(self) -> list[str]:
        """Whose tokens are known."""
        return [token.actor.name for token in self._current()]

    def find(self, token: str) -> Token | None:
        """What is known of this token, also if it has expired. All are compared, each in constant time: how long it takes tells nothing."""
        digest, found = digest_of(token), None
        for known in self._current():
            if hmac.compare_digest(known.digest, digest):
                found = known
        return found

    def marked(self, mark: str) -> Token | None:
        """The token of this mark."""
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
                f"--file {self.path}"
            ) from None


class Authenticator(Protocol):
    """Identifies the caller, or raises HttpError."""

    def __call__(self, request: Request) -> Actor: ...


class Bearer:
    """`Authorization: Bearer TOKEN`. 401 for none, a wrong or an expired one, 429 for a client's eleventh wrong one within a minute.

    A right token always passes: behind a proxy all clients are one, and nobody shall lock out the others.
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
                    f"this token expired at {known.expires:%Y-%m-%dT%H:%M:%S%z}; have a new one made with: {program.name()} server token",
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
    """For a service that only this machine can reach."""
    return ANONYMOUS
