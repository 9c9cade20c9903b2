"""The addresses that a callback may go to: global unicast, unless they are on one of the lists below.

This is a list of its own instead of `ipaddress.is_global`. That one depends on the registries at the time of the Python release, accepts
multicast, and checks only some of the IPv6 forms that carry an IPv4 address. Sources: the IANA IPv4 and IPv6 Special-Purpose Address
Registries (iana.org/assignments/iana-ipv4-special-registry and iana-ipv6-special-registry, 2025-10), and the RFC in each row.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

_V4 = [
    (IPv4Network(network), what)
    for network, what in (
        ("0.0.0.0/8", "this network"),  # RFC 1122 3.2.1.3; Linux takes 0.0.0.0 for the loopback
        ("10.0.0.0/8", "private"),  # RFC 1918
        ("100.64.0.0/10", "shared, behind a carrier's NAT"),  # RFC 6598; cloud metadata of Alibaba at 100.100.100.200
        ("127.0.0.0/8", "loopback"),  # RFC 1122 3.2.1.3
        ("168.63.129.16/32", "Azure's platform"),  # not IANA's: in every Azure machine, as Microsoft documents
        ("169.254.0.0/16", "link-local"),  # RFC 3927; cloud metadata at 169.254.169.254
        ("172.16.0.0/12", "private"),  # RFC 1918
        ("192.0.0.0/24", "protocol assignments"),  # RFC 6890 2.1; cloud metadata of Oracle at 192.0.0.192
        ("192.0.2.0/24", "documentation"),  # RFC 5737
        ("192.31.196.0/24", "AS112"),  # RFC 7535
        ("192.52.193.0/24", "multicast tunnels"),  # RFC 7450
        ("192.88.99.0/24", "6to4 relays"),  # RFC 7526
        ("192.168.0.0/16", "private"),  # RFC 1918
        ("192.175.48.0/24", "AS112"),  # RFC 7534
        ("198.18.0.0/15", "benchmarking"),  # RFC 2544
        ("198.51.100.0/24", "documentation"),  # RFC 5737
        ("203.0.113.0/24", "documentation"),  # RFC 5737
        ("224.0.0.0/4", "multicast"),  # RFC 5771
        ("255.255.255.255/32", "broadcast"),  # RFC 919
        ("240.0.0.0/4", "reserved"),  # RFC 1112 4
    )
]
_V6 = [
    (IPv6Network(network), what)
    for network, what in (
        ("::/128", "unspecified"),  # RFC 4291 2.5.2
        ("::1/128", "loopback"),  # RFC 4291 2.5.3
        ("::/96", "IPv4-compatible"),  # RFC 4291 2.5.5.1: given up, whatever the address inside
        ("::ffff:0:0:0/96", "IPv4-translated"),  # RFC 2765 2.1
        ("64:ff9b:1::/48", "a local NAT64"),  # RFC 8215
        ("100::/64", "discarded"),  # RFC 6666
        ("100:0:0:1::/64", "a dummy prefix"),  # RFC 9780
        ("2001::/32", "Teredo"),  # RFC 4380: a tunnel to an IPv4 address, whatever it is
        ("2001::/23", "protocol assignments"),  # RFC 2928: benchmarking, AMT, AS112, ORCHID, drone ids and what is to come
        ("2001:db8::/32", "documentation"),  # RFC 3849
        ("2002::/16", "6to4"),  # RFC 7526: a tunnel to an IPv4 address, whatever it is
        ("2620:4f:8000::/48", "AS112"),  # RFC 7534
        ("3fff::/20", "documentation"),  # RFC 9637
        ("5f00::/16", "segment routing"),  # RFC 9602
        ("fc00::/7", "unique local"),  # RFC 4193; cloud metadata of AWS at fd00:ec2::254
        ("fe80::/10", "link-local"),  # RFC 4291 2.5.6
        ("fec0::/10", "site-local"),  # RFC 3879: given up, and still routed in some networks
        ("ff00::/8", "multicast"),  # RFC 4291 2.7
    )
]
_MAPPED = IPv6Network("::ffff:0:0/96")  # RFC 4291 2.5.5.2: the sockets of an IPv6 machine reach IPv4 so
_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052: how a network without IPv4 reaches every host that has nothing else
_GLOBAL = IPv6Network("2000::/3")  # iana.org/assignments/ipv6-address-space: all the global unicast there is so far


def kind_of(address: IPv4Address | IPv6Address) -> str:
    """Return the kind of an address (`private`, `loopback` ...) that no callback may go to; empty if it may."""
    if isinstance(address, IPv4Address):
        return next((what for network, what in _V4 if address in network), "")
    if address.scope_id is not None:
        return "of one link only"
    for network in (_MAPPED, _NAT64):
        if address in network:
            return kind_of(IPv4Address(int(address) & 0xFFFFFFFF))
    return next((what for network, what in _V6 if address in network), "" if address in _GLOBAL else "not global unicast")
