"""Which addresses a callback may go to."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusion.delivery.errors import AddressRefused, DeliveryRefused
from fusion.delivery.targets import check_address

INSIDE = """
    0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 168.63.129.16/32 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 192.31.196.0/24
    192.52.193.0/24 192.88.99.0/24 192.168.0.0/16 192.175.48.0/24 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4
    255.255.255.255/32
    ::/128 ::1/128 ::/96 ::ffff:0:0:0/96 64:ff9b:1::/48 100::/64 100:0:0:1::/64 2001::/32 2001::/23 2001:db8::/32 2002::/16
    2620:4f:8000::/48 3fff::/20 5f00::/16 fc00::/7 fe80::/10 fec0::/10 ff00::/8
    4000::/3 8000::/1 200::/7
""".split()
PLACES = """
    127.0.0.1 169.254.169.254 100.100.100.200 192.0.0.192 fd00:ec2::254 168.63.129.16 0.0.0.0 255.255.255.255 224.0.0.1 fec0::1
    ::1 :: fe80::1 fe80::1%eth0 2606:4700::1111%eth0 ff02::1
    ::ffff:127.0.0.1 ::ffff:169.254.169.254 ::ffff:0.0.0.0 ::ffff:10.0.0.1 ::127.0.0.1 ::8.8.8.8 ::ffff:0:127.0.0.1
    64:ff9b::127.0.0.1 64:ff9b::10.0.0.1 64:ff9b::169.254.169.254 64:ff9b:1::8.8.8.8
    2002:7f00:1:: 2002:a00:1::1 2002:808:808:: 2001:0:4136:e378:8000:63bf:80ff:fffe 2001:0:0808:0808::
""".split()
OUTSIDE = """
    1.0.0.1 8.8.8.8 9.255.255.255 11.0.0.0 93.184.216.34 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 168.63.129.15 168.63.129.17
    169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 191.255.255.255 192.0.1.0 192.0.3.0 192.88.98.255 192.88.100.0 192.167.255.255
    192.169.0.0 198.17.255.255 198.20.0.0 198.51.99.255 198.51.101.0 203.0.112.255 203.0.114.0 223.255.255.255
    2000:: 2001:200:: 2001:4860:4860::8888 2003:: 2606:4700::1111 2620:4f:7fff::1 2620:4f:8001:: 3fff:1000:: 2a00::1
    ::ffff:8.8.8.8 64:ff9b::8.8.8.8
""".split()


@pytest.mark.parametrize("network", INSIDE)
def test_both_ends_of_every_special_network_are_refused(network: str) -> None:
    whole = ip_network(network)
    for address in (whole[0], whole[-1], str(whole[0]), str(whole[-1])):
        with pytest.raises(AddressRefused):
            check_address(address)


@pytest.mark.parametrize("ip", PLACES)
def test_well_known_places_inside_are_refused_in_every_form(ip: str) -> None:
    with pytest.raises(DeliveryRefused, match="no callback goes there"):
        check_address(ip)


@pytest.mark.parametrize(
    ("ip", "kind"),
    [
        ("255.255.255.255", "broadcast"),
        ("240.0.0.1", "reserved"),
        ("169.254.169.254", "link-local"),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("::7f00:1", "IPv4-compatible"),
        ("::ffff:0:7f00:1", "IPv4-translated"),
        ("::ffff:127.0.0.1", "loopback"),
        ("64:ff9b::a00:1", "private"),
        ("64:ff9b:1::1", "a local NAT64"),
        ("100::1", "discarded"),
        ("100:0:0:1::1", "a dummy prefix"),
        ("2001::1", "Teredo"),
        ("2001:2::1", "protocol assignments"),
        ("2002:7f00:1::", "6to4"),
        ("5f00::1", "segment routing"),
        ("fd00:ec2::254", "unique local"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "of one link only"),
        ("fec0::1", "site-local"),
        ("ff02::1", "multicast"),
        ("4000::1", "not global unicast"),
    ],
)
def test_the_refusal_says_what_kind_of_address_it_is(ip: str, kind: str) -> None:
    with pytest.raises(AddressRefused, match=f" is {kind}: "):
        check_address(ip)


@pytest.mark.parametrize("ip", OUTSIDE)
def test_public_addresses_right_beside_them_are_allowed(ip: str) -> None:
    check_address(ip)


@pytest.mark.parametrize(
    "ip", ["", "localhost", "127.1", "2130706433", "0177.0.0.1", "1.2.3.4 ", "1.2.3.4\n", "\u0661.2.3.4", "[::1]", "::g"]
)
def test_what_is_no_address_is_refused(ip: str) -> None:
    with pytest.raises(AddressRefused, match="not an IP address"):
        check_address(ip)


@given(st.ip_addresses())
def test_nothing_that_python_calls_not_global_is_allowed(ip: IPv4Address | IPv6Address) -> None:
    # The two forms that carry an IPv4 address we judge by that one.
    carries = any(ip in IPv6Network(network) for network in ("::ffff:0:0/96", "64:ff9b::/96"))
    if not carries and (not ip.is_global or ip.is_multicast or ip.is_reserved or ip.is_unspecified):
        with pytest.raises(AddressRefused):
            check_address(ip)


@given(st.ip_addresses(v=4))
def test_an_address_inside_another_is_judged_by_itself(ip: IPv4Address) -> None:
    def allowed(address: IPv4Address | IPv6Address) -> bool:
        try:
            check_address(address)
        except AddressRefused:
            return False
        return True

    verdict = allowed(ip)
    assert allowed(IPv6Address(int(ip_address("::ffff:0:0")) + int(ip))) == verdict
    assert allowed(IPv6Address(int(ip_address("64:ff9b::")) + int(ip))) == verdict
