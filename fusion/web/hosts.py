"""Which Host a request may name. A page of another site that has its name resolved to this machine names its own (DNS rebinding)."""

from __future__ import annotations

from collections.abc import Iterable

from fusion.web.exchange import HttpError

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


class Hosts:
    """`names`: hosts without port; `.example.com` also stands for all below it, `*` for any."""

    def __init__(self, names: Iterable[str] = LOOPBACK) -> None:
        self.names = frozenset(name.lower() for name in names)

    def check(self, header: str) -> None:
        """421 if the header names none of them."""
        name = host_of(header)
        if "*" in self.names or (name and (name in self.names or any(_below(name, parent) for parent in self.names))):
            return
        raise HttpError(
            421, "unknown_host", "this host name is not served here; to serve it, start the server with --allowed-host NAME"
        )


def _below(name: str, parent: str) -> bool:
    return parent.startswith(".") and (name.endswith(parent) or name == parent[1:])


def host_of(header: str) -> str:
    """`example.com` of `Example.com:8080`; empty if that is no host at all."""
    name, colon, port = header.strip().lower().rpartition(":")
    if not colon or header.endswith("]"):
        name, port = header.strip().lower(), ""
    if (port and not (port.isascii() and port.isdigit())) or any(c in name for c in "/@ ,\\"):
        return ""
    return name.removesuffix(".")
