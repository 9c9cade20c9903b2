"""Requests, responses, and errors that are turned into responses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from fusion.exceptions import DeserializationError
from fusion.kernel import defaults, program
from fusion.kernel.scope import EVERYTHING, Scope
from fusion.kernel.serializers import JSONSerializer
from fusion.views.base import NOBODY, View, to_json

if TYPE_CHECKING:
    from fusion.audit import AuditedChange

#: Most bytes of a body: the largest payload plus the overhead of JSON.
MAX_BODY = 2 * defaults.MAX_PAYLOAD
#: Seconds after which a client may try again when Redis can't be reached, or a queue is full.
RETRY_AFTER = 5
#: Most characters of an error's message, which may quote the request.
_LONGEST_MESSAGE = 500

REASONS = {
    200: "OK",
    201: "Created",
    202: "Accepted",
    204: "No Content",
    303: "See Other",
    304: "Not Modified",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    411: "Length Required",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    421: "Misdirected Request",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
}


class HttpError(Exception):
    """Ends a request with this answer. `code` is for programs and never changes; `message` is for people and names the fix."""

    def __init__(
        self, status: int, code: str, message: str, *, field: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.field, self.headers = status, code, field, dict(headers or {})


@dataclass(frozen=True, slots=True)
class Actor:
    """The caller: its name for the logs, its scopes, and the queues that it may see."""

    name: str
    scopes: frozenset[str]
    scope: Scope = EVERYTHING
    #: True without a token: the service was started without authentication.
    anonymous: bool = False
    #: True for an anonymous caller whose connection and Host are this machine's: without a token, only this caller sees masked values.
    local: bool = False
    #: The name in the audit, if not `token:NAME`: that of a user of the application in which the dashboard is mounted.
    called: str = ""


@dataclass(slots=True)
class Request:
    """A request. `path` is without the prefix of the mount, header names are in lower case, `read(n)` returns up to n bytes of the body."""

    method: str
    path: str
    headers: Mapping[str, str]
    query: str = ""
    prefix: str = ""
    client: str = ""
    #: Announced bytes of the body; None if unknown.
    length: int | None = 0
    read: Callable[[int], bytes] = lambda size: b""
    #: The request as the server or the surrounding application passed it: the WSGI environ, or the ASGI scope.
    origin: Mapping[str, Any] = field(default_factory=dict)
    max_body: int = MAX_BODY
    params: dict[str, str] = field(default_factory=dict)
    actor: Actor | None = None
    #: The job or queue that a change concerns, for the audit.
    target: str = ""
    #: The audit entry of a change; the handler adds the number of changed things and their queues.
    entry: AuditedChange | None = None

    def header(self, name: str) -> str:
        """Return the value of a header by its name in lower case; empty if missing."""
        return self.headers.get(name, "")

    def args(self) -> dict[str, str]:
        """Return the query parameters; of a repeated name, the last."""
        try:
            return dict(parse_qsl(self.query, keep_blank_values=True, max_num_fields=20))
        except ValueError:
            raise HttpError(400, "bad_query", "the query has too many fields; use 20 or fewer") from None

    @property
    def scope(self) -> Scope:
        """The queues that the caller may see; none without an actor."""
        return self.actor.scope if self.actor else Scope(())

    @property
    def scopes(self) -> frozenset[str]:
        """The scopes of the caller; empty without an actor."""
        return self.actor.scopes if self.actor else NOBODY

    def who(self) -> str:
        """The caller's name in the audit: `token:NAME`, or `anonymous@ADDRESS` if the service needs no token."""
        if self.actor is None or self.actor.anonymous:
            return f"anonymous@{plain(self.client, 100) or 'unknown'}"
        return self.actor.called or f"token:{self.actor.name}"

    def require(self, scope: str) -> None:
        """Raise 403 unless the actor has this scope."""
        if self.actor is None or scope not in self.actor.scopes:
            raise HttpError(
                403,
                "missing_scope",
                f"this needs a token with the scope {scope}; make one with: {program.name()} server token NAME --scope {scope}",
                headers={"WWW-Authenticate": f'Bearer realm="fusion", error="insufficient_scope", scope="{scope}"'},
            )

    def body(self) -> bytes:
        """Return the whole body; 413 if it is over `max_body`, whether its length was announced or not."""
        if self.length is not None and self.length > self.max_body:
            raise self._too_large()
        raw = self.read(self.max_body + 1)
        if len(raw) > self.max_body:
            raise self._too_large()
        if self.length is not None and len(raw) < self.length:
            raise HttpError(400, "bad_request", "the body ended before its Content-Length; send it again")
        return raw

    def _too_large(self) -> HttpError:
        return HttpError(
            413, "body_too_large", f"the body is over {self.max_body} bytes; store big data elsewhere and send its key"
        )

    def json(self) -> dict[str, Any]:
        """Return the body as one JSON object. It is read as strictly as job data: no NaN, no repeated key, no deep nesting. Else 400, 413 or 415."""
        kind = self.header("content-type").partition(";")[0].strip().lower()
        if (
            kind != "application/json"
        ):  # a browser's form can't send this type, so no request without a preflight changes anything
            raise HttpError(415, "not_json", "send Content-Type: application/json")
        try:
            found = JSONSerializer().parse(self.body())
        except DeserializationError as error:
            raise HttpError(400, "bad_json", f"the body is not valid JSON: {error}") from None
        if not isinstance(found, dict):
            raise HttpError(400, "bad_json", "the body must be a JSON object; send {...}")
        return found

    def told(self, *names: str) -> dict[str, Any]:
        """Return the fields of an optional body, which may have only these names. HttpError as for `json`, and 422 for an unknown field."""
        body = {} if self.length == 0 else self.json()
        if unknown := sorted(body.keys() - {*names}):
            name = unknown[0][:80]
            raise HttpError(
                422, "invalid_value", f"there is no field {name} here; there is {' and '.join(names) or 'none'}", field=name
            )
        return body


@dataclass(slots=True)
class Response:
    """An answer: status, body and headers. `document`: the content of the body, if it is JSON. `parts`: replaces the body with chunks whose
    total length is unknown."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    document: Any = None
    parts: Iterator[bytes] | None = None

    @classmethod
    def json(cls, document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
        """Return an answer whose body is this document."""
        body = json.dumps(document, allow_nan=False).encode() + b"\n"
        return cls(status, body, {"Content-Type": "application/json", **(headers or {})}, document)

    @classmethod
    def view(
        cls, shown: View, status: int = 200, headers: Mapping[str, str] | None = None, scopes: frozenset[str] = NOBODY
    ) -> Response:
        """Return an answer whose body is this view. `scopes`: those of a caller who asked for details and may see them."""
        return cls.json(to_json(shown, scopes), status, headers)

    @classmethod
    def of(cls, error: HttpError) -> Response:
        """Return the answer for an error."""
        told = {"code": error.code, "message": str(error)[:_LONGEST_MESSAGE]}
        if error.field:
            told["field"] = error.field
        return cls.json({"error": told}, error.status, error.headers)

    @property
    def status_line(self) -> str:
        """The status line, like `200 OK`."""
        return f"{self.status} {REASONS.get(self.status, 'Status')}"

    def header_list(self) -> list[tuple[str, str]]:
        """Return the headers for a gateway. ValueError for a name or value with a line break or another forbidden character."""
        length = [] if self.parts is not None or self.status in (204, 304) else [("Content-Length", str(len(self.body)))]
        pairs = [*self.headers.items(), *length]
        for name, value in pairs:
            text = name + value
            if not (text.isascii() and text.isprintable()):
                raise ValueError(f"header {name[:40]!a} holds what no header may hold")
        return pairs


def plain(text: str, limit: int = 200) -> str:
    """Return `text` for one line of a log: cut at `limit`, with everything but printable ASCII escaped."""
    shown = text[:limit].encode("unicode_escape").decode("ascii")
    return shown[:limit] + ("..." if len(text) > limit or len(shown) > limit else "")


def listed(names: Iterable[str]) -> str:
    """Return the names, sorted, for a sentence."""
    return ", ".join(sorted(names))


def flag(value: Any, name: str) -> bool:
    """Return a boolean of a body or a query; HttpError 422 for anything else."""
    known = {True: True, False: False, "1": True, "true": True, "0": False, "false": False}
    if not isinstance(value, bool | str) or value not in known:
        raise HttpError(422, "invalid_value", f"{name}: use true or false", field=name)
    return known[value]


def whole(args: dict[str, str], name: str, default: int, most: int) -> int:
    """Return a whole number of the query, up to `most`; HttpError 422 for anything else."""
    raw = args.get(name, str(default))
    if not (raw.isascii() and raw.isdigit() and len(raw) < 12 and int(raw) <= most):
        raise HttpError(422, "invalid_value", f"{name}: use a whole number from 0 to {most}", field=name)
    return int(raw)
