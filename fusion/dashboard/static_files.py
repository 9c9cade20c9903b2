"""Style, scripts and the vendored library: read and compressed once, under names that contain a hash of the content."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from fusion.web.exchange import HttpError, Request, Response

_KINDS = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
_FILES = ("app.css", "app.js", "chart.js", "palette.js", "vendor/htmx.min.js")


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One static file. `name`: its name in templates; `address`: its path below `/static/`."""

    name: str
    address: str
    kind: str
    body: bytes
    packed: bytes


@cache
def files() -> dict[str, StaticFile]:
    """Return all files by their address."""
    found = {}
    for path in _FILES:
        body = (resources.files("fusion.dashboard") / "static" / path).read_bytes()
        stem, _, kind = path.rpartition("/")[2].rpartition(".")
        address = f"{stem}.{hashlib.sha256(body).hexdigest()[:12]}.{kind}"
        found[address] = StaticFile(path, address, _KINDS[kind], body, gzip.compress(body, 9, mtime=0))
    return found


@cache
def address_of(name: str) -> str:
    """Return the address of a file by its name."""
    return next(f"/static/{one.address}" for one in files().values() if one.name == name)


def serve(request: Request) -> Response:
    """Answer a request for a file. Browsers may cache it forever, because other content has another name."""
    found = files().get(request.params["file"])
    if found is None:
        raise HttpError(404, "not_found", "there is no such file")
    headers = {
        "Content-Type": found.kind,
        "Cache-Control": "public, max-age=31536000, immutable",
        "Vary": "Accept-Encoding",
        "Cross-Origin-Resource-Policy": "same-origin",
    }
    if accepts_gzip(request):
        return Response(200, found.packed, {**headers, "Content-Encoding": "gzip"})
    return Response(200, found.body, headers)


def accepts_gzip(request: Request) -> bool:
    """Return True if the browser accepts gzip."""
    given = {part.partition(";")[0].strip() for part in request.header("accept-encoding").lower().split(",")}
    return "gzip" in given
