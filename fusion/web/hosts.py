"""Check where requests come from. The check of Host stops DNS rebinding: a site whose name resolves to this machine sends its own name."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address

from fusion.web.exchange import HttpError, Request

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
#: Characters that no host name has.
_FORBIDDEN = frozenset("/@ ,\\")
#: Headers that proxies add, beside all that begin with `x-forwarded-`.
_OF_PROXIES = ("forwarded", "via", "x-real-ip")


class Hosts:
    """`names`: hosts without port; `.example.com` includes all subdomains, `*` means any host."""

    def __init__(self, names: Iterable[str] = LOOPBACK) -> None:
        self.names = frozenset(name.lower() for name in names)

    def check(self, header: str) -> None:
        """Raise 421 if the header names none of them."""
        name = host_of(header)
        if "*" in self.names or (name and (name in self.names or any(_below(name, parent) for parent in self.names))):
            return
        raise HttpError(
            421, "unknown_host", "this host name is not served here; to serve it, start the server with --allowed-host NAME"
        )


def _below(name: str, parent: str) -> bool:
    return parent.startswith(".") and (name.endswith(parent) or name == parent[1:])


def host_of(header: str) -> str:
    """Return the host of a header: `example.com` for `Example.com:8080`; empty if it is invalid."""
    name, colon, port = header.strip().lower().rpartition(":")
    if not colon or header.endswith("]"):
        name, port = header.strip().lower(), ""
    if (port and not (port.isascii() and port.isdigit())) or not _FORBIDDEN.isdisjoint(name):
        return ""
    return name.removesuffix(".")


def is_local(request: Request) -> bool:
    """Return True if the connection comes from this machine, Host names it, and no proxy says that it passes the request on."""
    try:
        peer = ip_address(request.client)
    except ValueError:
        return False
    peer = getattr(peer, "ipv4_mapped", None) or peer
    passed_on = any(name in _OF_PROXIES or name.startswith("x-forwarded-") for name in request.headers)
    return peer.is_loopback and host_of(request.header("host")) in LOOPBACK and not passed_on
