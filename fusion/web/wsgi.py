"""Requests from a WSGI server, PEP 3333."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fusion.web.exchange import Request, Response


def serve(
    handle: Callable[[Request], Response], max_body: int, environ: dict[str, Any], start_response: Callable[..., Any]
) -> Iterable[bytes]:
    """Answer one request of a WSGI server. `max_body`: bytes of a body that are read."""
    request = _request(environ, max_body)
    response = handle(request)
    start_response(response.status_line, response.header_list())
    return [] if request.method == "HEAD" else response.parts or [response.body]


def _request(environ: dict[str, Any], max_body: int) -> Request:
    headers = {name[5:].replace("_", "-").lower(): str(value) for name, value in environ.items() if name.startswith("HTTP_")}
    headers["content-type"] = str(environ.get("CONTENT_TYPE", ""))
    return Request(
        method=environ["REQUEST_METHOD"],
        path=_text(environ.get("PATH_INFO", "")) or "/",
        headers=headers,
        query=environ.get("QUERY_STRING", ""),
        prefix=_text(environ.get("SCRIPT_NAME", "")),
        client=environ.get("REMOTE_ADDR", ""),
        length=_length(environ),
        read=lambda size: _read(environ, size),
        max_body=max_body,
        origin=environ,
    )


def _text(raw: str) -> str:
    """Decode a WSGI text: bytes that were decoded as latin-1."""
    return raw.encode("latin-1").decode("utf-8", "replace")


def _length(environ: dict[str, Any]) -> int | None:
    given = str(environ.get("CONTENT_LENGTH") or "")
    if given.isascii() and given.isdigit():
        return int(given)
    return None if environ.get("wsgi.input_terminated") else 0


def _read(environ: dict[str, Any], size: int) -> bytes:
    length = _length(environ)
    left = size if length is None else min(size, length)
    parts = []
    while left and (part := environ["wsgi.input"].read(left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
