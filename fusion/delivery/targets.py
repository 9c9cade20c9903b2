"""The target of a callback: a strictly parsed URL, and the policy that it must obey."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address

from fusion.callbacks import named, read_host
from fusion.delivery.errors import AddressRefused, DeliveryRefused
from fusion.exceptions import ConfigurationError
from fusion.kernel.addresses import kind_of
from fusion.kernel.sentences import PORT

MAX_URL = 2048
_PORTS = {"https": 443, "http": 80}
_PRINTABLE = re.compile(r"[!-~]+")
# Not urllib's parser: it drops tabs and line breaks, and accepts URLs that servers and resolvers read differently.
_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?(?P<path>[/?][^#]*)?(?:#.*)?",
    re.IGNORECASE,
)


def check_address(ip: str | IPv4Address | IPv6Address) -> None:
    """Check that a callback may go to an address. AddressRefused if not; it names the kind of the address, or that it is invalid."""
    try:
        address = ip_address(ip)
    except ValueError:
        raise AddressRefused("the host's name resolved to something that is not an IP address") from None
    kind = kind_of(address)
    if kind:
        raise AddressRefused(f"{address} is {kind}: no callback goes there; to allow a host inside, name it in the allowed hosts")


@dataclass(frozen=True, slots=True)
class Policy:
    """The limits of all callbacks. Times are seconds, sizes bytes. ConfigurationError if a value is invalid.

    `allowed_hosts`: empty means any host whose addresses are all public. Otherwise only the named ones: `hooks.example.com`, every host
    below `*.example.com`, an address. A named host may be inside a private network, too. A lone `*` adds any other host with public
    addresses.
    `connect_timeout`: for one address, with the TLS handshake. `total_timeout`: for the whole try, from the name look-up to the answer's
    end.
    """

    allow_http: bool = False
    ports: tuple[int, ...] = (443, 80, 8443)
    allowed_hosts: tuple[str, ...] = ()
    connect_timeout: float = 5.0
    total_timeout: float = 15.0
    max_read: int = 64 * 1024
    max_body: int = 20 * 1024

    def __post_init__(self) -> None:
        for name in ("connect_timeout", "total_timeout", "max_read", "max_body"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigurationError(f"callback policy: {name}={getattr(self, name)!r} must be over 0", code="FUS-221")
        if any(not 0 < port < 65536 for port in self.ports):
            raise ConfigurationError(f"callback policy: ports={self.ports!r} must be from 1 to 65535", code="FUS-221")
        object.__setattr__(self, "allowed_hosts", tuple(_allowed(host) for host in self.allowed_hosts))

    def names(self, host: str) -> bool:
        """Return True if the allow-list names this host itself, not only by `*`."""
        return named(host, self.allowed_hosts)


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed URL. `host`: in lower case; an address in its usual form. `trusted`: its addresses need no check."""

    scheme: str
    host: str
    port: int
    #: Path and query. Not shown: receivers often put tokens there.
    path: str = field(repr=False)
    trusted: bool = False

    @property
    def authority(self) -> str:
        """Return host and port in the form of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}"


def parse_target(url: object, policy: Policy) -> Target:
    """Parse a URL. DeliveryRefused, which names the fix and never the URL, if the policy does not allow it.

    A name is not looked up here: its addresses are checked at each try. A host that is an address is checked here.
    """
    if not isinstance(url, str) or len(url) > MAX_URL:
        raise DeliveryRefused(f"a callback's URL is a text of at most {MAX_URL} characters")
    if not _PRINTABLE.fullmatch(url) or "\\" in url:
        raise DeliveryRefused(
            "a callback's URL has only printable ASCII, no space and no backslash: percent-encode what else is in it, "
            "and write an international host name as xn--..."
        )
    match = _URL.fullmatch(url)
    if match is None:
        raise DeliveryRefused(
            "a callback's URL is like https://host[:port]/path, without user and password; send secrets in a header"
        )
    scheme = match["scheme"].lower()
    if scheme == "http" and not policy.allow_http:
        raise DeliveryRefused("a callback's URL begins with https://; plain http must be allowed by the settings")
    port = int(match["port"] or _PORTS[scheme])
    if port not in policy.ports:
        raise DeliveryRefused(PORT.format(n=port, ports=", ".join(map(str, policy.ports))))
    host = _host(match["host"])
    trusted = policy.names(host)
    if policy.allowed_hosts and not trusted and "*" not in policy.allowed_hosts:
        raise DeliveryRefused(f"host {host} is not in the allowed hosts")
    if not trusted and literal(host):
        check_address(host)
    path = match["path"] or "/"
    return Target(scheme, host, port, path if path[0] == "/" else f"/{path}", trusted)


def literal(host: str) -> bool:
    """Return True if the host of a Target is an address, not a name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _host(text: str) -> str:
    try:
        return read_host(text)
    except ValueError as error:
        raise DeliveryRefused(str(error)) from None


def _allowed(entry: str) -> str:
    star = "*." if entry.startswith("*.") else ""
    rest = entry[len(star) :]
    try:
        # An IPv6 address may be given without the brackets that a URL needs.
        return entry if entry == "*" else star + _host(f"[{rest}]" if ":" in rest and rest[0] != "[" else rest)
    except DeliveryRefused as error:
        raise ConfigurationError(
            f"allowed host {entry!r}: {error}; use a host name, *.example.com, an address or *", code="FUS-221"
        ) from None
