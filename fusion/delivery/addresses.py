"""Checks the address to which a callback is about to be sent."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

from fusion.delivery.errors import AddressRefused
from fusion.kernel.addresses import kind_of


def check_address(ip: str | IPv4Address | IPv6Address) -> None:
    """Check that a callback may go to an address. AddressRefused if not; it names the kind of the address, or that it is invalid."""
    try:
        address = ip_address(ip)
    except ValueError:
        raise AddressRefused("the host's name resolved to something that is not an IP address") from None
    kind = kind_of(address)
    if kind:
        raise AddressRefused(f"{address} is {kind}: no callback goes there; to allow a host inside, name it in the allowed hosts")
