"""What URLs a callback may have, and how they are read."""

from __future__ import annotations

import pytest

from fusion.delivery.errors import AddressRefused, DeliveryRefused
from fusion.delivery.targets import Policy, Target, parse_target
from fusion.exceptions import ConfigurationError

ANY = Policy(allow_http=True)
CANARY = "S3CR3T-7f3a"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://hooks.example.com", Target("https", "hooks.example.com", 443, "/")),
        ("HTTPS://Hooks.Example.COM./a/b?c=d&e", Target("https", "hooks.example.com", 443, "/a/b?c=d&e")),
        ("https://example.com:8443/x", Target("https", "example.com", 8443, "/x")),
        ("http://example.com/x", Target("http", "example.com", 80, "/x")),
        ("https://example.com?q=1", Target("https", "example.com", 443, "/?q=1")),
        ("https://example.com/x#fragment", Target("https", "example.com", 443, "/x")),
        ("https://example.com#fragment@127.0.0.1", Target("https", "example.com", 443, "/")),
        ("https://example.com/x?y=http://127.0.0.1/@z", Target("https", "example.com", 443, "/x?y=http://127.0.0.1/@z")),
        ("https://xn--mnchen-3ya.example/x", Target("https", "xn--mnchen-3ya.example", 443, "/x")),
        ("https://8.8.8.8/x", Target("https", "8.8.8.8", 443, "/x")),
        ("https://134744072/x", Target("https", "8.8.8.8", 443, "/x")),
        ("https://[2606:4700::1111]:8443/x", Target("https", "2606:4700::1111", 8443, "/x")),
    ],
)
def test_a_url_is_taken_apart(url: str, expected: Target) -> None:
    assert parse_target(url, ANY) == expected


@pytest.mark.parametrize(
    ("url", "authority"),
    [
        ("https://example.com/x", "example.com"),
        ("https://example.com:443/x", "example.com"),
        ("https://example.com:80/x", "example.com:80"),
        ("http://example.com:80/x", "example.com"),
        ("https://[2606:4700:0:0::1111]:8443/x", "[2606:4700::1111]:8443"),
    ],
)
def test_the_host_header_has_the_port_only_where_it_is_not_the_usual_one(url: str, authority: str) -> None:
    assert parse_target(url, ANY).authority == authority


@pytest.mark.parametrize(
    "host",
    """
    127.0.0.1 127.1 127.0.1 2130706433 0x7f.1 0x7f000001 0177.0.0.1 017700000001 0 0.0.0.0 127.0.0.1. 0x0 10.1 192.168.257 169.254.169.254
    2852039166 0xa9fea9fe [::1] [::] [::ffff:127.0.0.1] [::ffff:7f00:1] [0:0:0:0:0:0:0:1] [64:ff9b::7f00:1] [2002:7f00:1::]
    [2001:0:4136:e378:8000:63bf:80ff:fffe] [fec0::1] [fc00::1] [fd00:ec2::254] [ff02::1] [fe80::1] 100.64.0.1 224.0.0.1 255.255.255.255
    """.split(),
)
def test_an_address_inside_is_refused_however_it_is_written(host: str) -> None:
    with pytest.raises(AddressRefused):
        parse_target(f"http://{host}/x", ANY)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com/x",
        "//example.com/x",
        "https:example.com",
        "https:/example.com",
        "https:///x",
        "ftp://example.com/x",
        "file:///etc/passwd",
        "gopher://example.com:80/x",
        "javascript:alert(1)",
        "https://",
        "https://?x",
        "https://:443/x",
        "https://user@example.com/x",
        "https://user:pw@example.com/x",
        "https://example.com@127.0.0.1/x",
        "https://127.0.0.1@example.com/x",
        "https://example.com:443@127.0.0.1/x",
        "https://example.com:/x",
        "https://example.com:x/x",
        "https://example.com:+443/x",
        "https://example.com:443:443/x",
        "https://example.com:0443443/x",
        "https://example.com:0/x",
        "https://example.com:22/x",
        "https://example.com:6379/x",
        "https://example.com:65979/x",
        "https://exa mple.com/x",
        "https://example.com/a b",
        "https://example.com\\@127.0.0.1/x",
        "https://example.com/\\x",
        "https://%31%32%37.0.0.1/x",
        "https://ex%61mple.com/x",
        "https://-example.com/x",
        "https://example-.com/x",
        "https://example..com/x",
        "https://.example.com/x",
        "https://./x",
        "https://" + "a" * 64 + ".com/x",
        "https://" + ".".join(["a" * 63] * 4) + ".com/x",
        "https://1.2.3.4.5/x",
        "https://256.1.1.1/x",
        "https://08.1.1.1/x",
        "https://example.0x7f/x",
        "https://[8.8.8.8]/x",
        "https://[fe80::1%25eth0]/x",
        "https://[::1/x",
        "https://::1/x",
        "https://[2606:4700::1111]x/x",
        "https://münchen.example/x",
        "https://example.com/ü",
        "https://127。0。0。1/x",
        "https://①②⑦.0.0.1/x",
        "https://example\u017f.com/x",
        "https://example.com/\u010a",
        "https://example.com/" + "x" * 2048,
        None,
        17,
        b"https://example.com/x",
    ],
)
def test_a_url_that_two_programs_might_read_differently_is_refused(url: object) -> None:
    with pytest.raises(DeliveryRefused):
        parse_target(url, ANY)


@pytest.mark.parametrize(
    "bad", ["\r\n", "\r", "\n", "\t", "\x00", "\x1b", "\x7f", "\x85", "\xa0", "\u2028", "\u010a", "\ud800", " "]
)
def test_no_control_character_survives_anywhere(bad: str) -> None:
    url = "https://example.com:443/x?y#z"
    for place in range(len(url) + 1):
        with pytest.raises(DeliveryRefused):
            parse_target(url[:place] + bad + url[place:], ANY)


def test_the_longest_url_is_2048_characters() -> None:
    url = "https://example.com/"
    assert parse_target(url + "x" * (2048 - len(url)), ANY).path == "/" + "x" * (2048 - len(url))


def test_plain_http_and_other_ports_are_opt_in() -> None:
    with pytest.raises(DeliveryRefused, match="https://"):
        parse_target("http://example.com/x", Policy())
    with pytest.raises(DeliveryRefused, match="443, 80, 8443"):
        parse_target("https://example.com:9443/x", Policy())
    assert parse_target("https://example.com:9443/x", Policy(ports=(9443,))).port == 9443
    with pytest.raises(DeliveryRefused, match="port 443"):
        parse_target("https://example.com/x", Policy(ports=(9443,)))


@pytest.mark.parametrize(
    ("entries", "host", "trusted"),
    [
        (("hooks.internal",), "hooks.internal", True),
        (("Hooks.Internal.",), "HOOKS.internal", True),
        (("*.example.com",), "a.example.com", True),
        (("*.example.com",), "a.b.example.com", True),
        (("10.1.2.3",), "10.1.2.3", True),
        (("10.1.2.3",), "0xa.1.2.3", True),
        (("::1",), "[0:0::1]", True),
        (("[::1]",), "[::1]", True),
        (("hooks.internal", "*"), "hooks.internal", True),
        (("hooks.internal", "*"), "example.org", False),
        (("*",), "example.org", False),
        ((), "example.org", False),
    ],
)
def test_a_host_in_the_allow_list_may_be_inside(entries: tuple[str, ...], host: str, trusted: bool) -> None:
    assert parse_target(f"https://{host}/x", Policy(allowed_hosts=entries)).trusted is trusted


@pytest.mark.parametrize(
    ("entries", "host"),
    [
        (("hooks.internal",), "example.com"),
        (("hooks.internal",), "hooks.internal.example.com"),
        (("hooks.internal",), "evilhooks.internal"),
        (("hooks.internal",), "8.8.8.8"),
        (("*.example.com",), "example.com"),
        (("*.example.com",), "evilexample.com"),
        (("*.example.com",), "a.example.com.evil.org"),
        (("10.1.2.3",), "10.1.2.4"),
        (("hooks.internal", "*"), "10.1.2.3"),
        (("*",), "127.1"),
    ],
)
def test_with_an_allow_list_no_other_host_is_called(entries: tuple[str, ...], host: str) -> None:
    with pytest.raises(DeliveryRefused):
        parse_target(f"https://{host}/x", Policy(allowed_hosts=entries))


@pytest.mark.parametrize(
    "changes",
    [
        {"allowed_hosts": ("*.*.example.com",)},
        {"allowed_hosts": ("https://example.com",)},
        {"allowed_hosts": ("",)},
        {"allowed_hosts": ("example.com:443",)},
        {"allowed_hosts": ("a b",)},
        {"allowed_hosts": ("*example.com",)},
        {"ports": (0,)},
        {"ports": (65536,)},
        {"connect_timeout": 0},
        {"total_timeout": float("inf")},
        {"total_timeout": float("nan")},
        {"max_read": -1},
        {"max_body": 0},
    ],
)
def test_a_policy_that_can_not_be_meant_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        Policy(**changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "url",
    [
        f"https://user:{CANARY}@example.com/x",
        f"https://example.com:1/{CANARY}",
        f"https://127.0.0.1/{CANARY}",
        f"https://1.2.3.4.5/{CANARY}",
        f"https://example.com/{CANARY} ",
        f"ftp://example.com/{CANARY}",
        f"https://example.com/{CANARY}" + "x" * 2048,
    ],
)
def test_no_refusal_shows_parts_of_the_url(url: str) -> None:
    with pytest.raises(DeliveryRefused) as refused:
        parse_target(url, Policy())
    assert CANARY not in str(refused.value)
    target = parse_target(f"https://example.com/{CANARY}?{CANARY}", Policy())
    assert CANARY not in f"{target} {target!r}"
