"""CORS: which pages of other sites may call the API. The list of allowed origins is empty by default.

A page sends its token in a header, as a program does. Cookies and other credentials of the browser are neither accepted nor allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from fusion.web.exchange import Request, Response, listed

_ORIGIN = re.compile(r"https?://(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?|\[[0-9a-f:.]{2,45}\])(?::[0-9]{1,5})?")
_HEADERS = "Authorization, Content-Type, Idempotency-Key"
_EXPOSED = "Allow, Content-Disposition, Location, Retry-After, WWW-Authenticate"
#: Seconds for which a browser may cache the answer to a preflight request.
_KEPT = "600"


def check_origin_name(origin: str) -> str:
    """Return `https://apps.example.com` as browsers send it. ValueError if it is not an origin, `*` included."""
    name = origin.strip().lower()
    if not _ORIGIN.fullmatch(name):
        raise ValueError(
            f"origin {origin[:80]!r}: use scheme and host as a browser sends them, like https://apps.example.com; no path, no *"
        )
    scheme, _, host = name.partition("://")
    return name.removesuffix(":443" if scheme == "https" else ":80") if host else name


class Cors:
    """`origins`: the sites whose pages may call the API and read the answers. If empty, no header is added."""

    def __init__(self, origins: Iterable[str] = ()) -> None:
        self.origins = frozenset(check_origin_name(origin) for origin in origins)

    def allows(self, request: Request) -> bool:
        """Return True if the request comes from a page of an allowed origin."""
        return request.header("origin") in self.origins

    def preflight(self, request: Request, methods: Iterable[str]) -> Response | None:
        """Answer a preflight request; None if it is not one, or its origin is not allowed."""
        if request.method != "OPTIONS" or not request.header("access-control-request-method") or not self.allows(request):
            return None
        return Response(
            204,
            headers={
                "Access-Control-Allow-Methods": listed(methods),
                "Access-Control-Allow-Headers": _HEADERS,
                "Access-Control-Max-Age": _KEPT,
            },
        )

    def mark(self, request: Request, response: Response) -> None:
        """Add the CORS headers to a response, and `Vary`, because caches must not share it between origins."""
        if not self.origins:
            return
        asked = ["Access-Control-Request-Method", "Access-Control-Request-Headers"] if request.method == "OPTIONS" else []
        response.headers["Vary"] = ", ".join(["Origin", *asked])
        if self.allows(request):
            response.headers["Access-Control-Allow-Origin"] = request.header("origin")
            response.headers["Access-Control-Expose-Headers"] = _EXPOSED
