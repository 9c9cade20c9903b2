"""Run the core under an ASGI server, or mounted in FastAPI, Starlette or Django. Each request runs in a thread of the loop's executor."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from fusion.web.app import App
from fusion.web.exchange import Request, Response

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]


class Asgi:
    """`Asgi(app)` is an ASGI 3 application. Speaks HTTP and answers `lifespan`; a websocket is closed."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await _lifespan(receive, send)
        else:
            await send({"type": f"{scope['type']}.close", "code": 1003})

    async def _http(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        request = _request(scope, self._app.max_body)
        body = (
            b"" if request.length == 0 or (request.length or 0) > self._app.max_body else await _body(receive, self._app.max_body)
        )
        if body is None:
            return  # the client disconnected before its request was complete
        request.read = lambda size: body[:size]
        response = await asyncio.to_thread(self._app.handle, request)
        await _answer(send, response, head=request.method == "HEAD")


def _request(scope: _Message, max_body: int) -> Request:
    values: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        values.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    headers = {name: ", ".join(given) for name, given in values.items()}
    prefix, path = scope.get("root_path", ""), scope["path"]
    if prefix and (
        path == prefix or path.startswith(prefix + "/")
    ):  # some frameworks leave the prefix in the path, as the specification demands
        path = path[len(prefix) :]
    given, client = headers.get("content-length", ""), scope.get("client")
    chunked = "transfer-encoding" in headers or scope.get("http_version", "1.1").startswith("2")
    return Request(
        method=scope["method"],
        path=path or "/",
        headers=headers,
        query=scope.get("query_string", b"").decode("latin-1"),
        prefix=prefix,
        client=str(client[0]) if client else "",
        length=int(given) if given.isascii() and given.isdigit() else None if chunked else 0,
        max_body=max_body,
        origin=scope,
    )


async def _body(receive: _Receive, limit: int) -> bytes | None:
    """Return the body, cut one byte above the limit; None if the client disconnected first."""
    parts: list[bytes] = []
    size = 0
    while size <= limit:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if not message.get("more_body", False):
            break
    return b"".join(parts)[: limit + 1]


async def _answer(send: _Send, response: Response, *, head: bool) -> None:
    headers = [(name.lower().encode(), value.encode()) for name, value in response.header_list()]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    if response.parts is not None and not head:
        while part := await asyncio.to_thread(next, response.parts, b""):
            await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b"" if head else response.body})


async def _lifespan(receive: _Receive, send: _Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
