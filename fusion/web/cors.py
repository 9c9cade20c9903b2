"""Which pages of other sites may ask: an allow-list of origins, empty unless somebody fills it.

A page shows its token as a program does, in a header: cookies and other credentials of a browser are never taken, and never allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from fusion.web.exchange import Request, Response, listed

_ORIGIN = re.compile(r"https?://(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?|\[[0-9a-f:.]{2,45}\])(?::[0-9]{1,5})?")
_HEADERS = "Authorization, Content-Type, Idempotency-Key"
_EXPOSED = "Allow, Content-Disposition, Location, Retry-After, WWW-Authenticate"
#: Seconds for which a browser may keep an answer to its question beforehand.
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
    """`origins`: those whose pages may ask, and read the answers; none: no header is added and nothing changes."""

    def __init__(self, origins: Iterable[str] = ()) -> None:
        self.origins = frozenset(check_origin_name(origin) for origin in origins)

    def allows(self, request: Request) -> bool:
        """Say whether a page of one of them asks."""
        return request.header("origin") in self.origins

    def preflight(self, request: Request, methods: Iterable[str]) -> Response | None:
        """Answer a browser's question beforehand; None if this is none, or not of a page that may ask."""
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
        """Add to a response who may read it. It differs by caller, which caches on the way must know."""
        if not self.origins:
            return
        asked = ["Access-Control-Request-Method", "Access-Control-Request-Headers"] if request.method == "OPTIONS" else []
        response.headers["Vary"] = ", ".join(["Origin", *asked])
        if self.allows(request):
            response.headers["Access-Control-Allow-Origin"] = request.header("origin")
            response.headers["Access-Control-Expose-Headers"] = _EXPOSED
