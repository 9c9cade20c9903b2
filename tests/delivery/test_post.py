"""One try: what is sent, to where, and what is never done."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from fusion.delivery.errors import AddressRefused, DeliveryFailed, DeliveryRefused
from fusion.delivery.post import post, system_resolver
from fusion.delivery.schedule import verdict
from fusion.delivery.signing import new_secret, sign, verify
from fusion.delivery.targets import Policy, parse_target
from tests.delivery.test_addresses import PLACES
from tests.kit.receivers import OK, PUBLIC, PUBLIC_TOO, PUBLIC_V6, Names, Receiver, Routes, answering
from tests.kit.waiting import eventually

HERE = Names(["127.0.0.1"])
BODY = b'{"type":"job.finished"}'
CANARY = "S3CR3T-7f3a9c"
Start = Callable[..., Receiver]


def test_the_request_is_one_signed_post_of_json(receiver: Start) -> None:
    server, secret = receiver(answering(OK)), new_secret()
    policy = server.policy()
    signature = sign("1-42", BODY, secret)
    answer = post(
        parse_target(server.url("/a?b=c#d"), policy),
        BODY,
        {"Authorization": "Bearer x"},
        policy,
        signature=signature,
        resolve=HERE,
    )
    assert (answer.status, answer.excerpt) == (200, "ok")
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    line, *fields = head.decode().split("\r\n")
    headers = dict(field.split(": ", 1) for field in fields)
    assert body == BODY
    assert line == "POST /a?b=c HTTP/1.1"
    assert len(headers) == len(fields)
    assert verify(headers, body, secret) == "1-42"
    assert re.fullmatch(r"fusion-queue/[0-9.]+", headers.pop("User-Agent"))
    assert headers == {
        "Host": f"hook.test:{server.port}",
        "Connection": "close",
        "Content-Type": "application/json",
        "Content-Length": str(len(BODY)),
        "Accept-Encoding": "identity",
        "Authorization": "Bearer x",
        **signature,
    }


def test_a_callback_may_name_its_own_user_agent(receiver: Start) -> None:
    server = receiver(answering(OK))
    post(parse_target(server.url(), server.policy()), BODY, {"user-agent": "mine/1"}, server.policy(), resolve=HERE)
    assert re.findall(rb"(?i)\r\n(user-agent: .*)\r\n", server.requests[0]) == [b"user-agent: mine/1"]


def test_an_ipv6_receiver_is_reached(receiver: Start) -> None:
    try:
        server = receiver(answering(OK), ip="::1")
    except OSError:
        pytest.skip("no IPv6 on this machine")
    policy = server.policy(allowed_hosts=("::1",))
    assert post(parse_target(server.url(host="[::1]"), policy), BODY, {}, policy).status == 200
    assert f"\r\nHost: [::1]:{server.port}\r\n".encode() in server.requests[0]


@pytest.mark.parametrize("ip", PLACES)
def test_a_name_with_any_address_inside_is_refused_before_anything_is_connected(ip: str) -> None:
    policy, routes = Policy(), Routes(public=1, public_v6=1)
    for found in ([ip], [PUBLIC, ip], [ip, PUBLIC], [PUBLIC, PUBLIC_TOO, PUBLIC_V6, ip]):
        with pytest.raises(AddressRefused):
            post(parse_target("https://hook.example/x", policy), BODY, {}, policy, resolve=Names(found), connect=routes)
    assert routes.called == []


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST."])
def test_the_machines_own_name_is_refused_with_the_systems_resolver(receiver: Start, host: str) -> None:
    server = receiver(answering(OK))
    policy = server.policy(allowed_hosts=())
    with pytest.raises(AddressRefused, match="loopback"):
        post(parse_target(server.url(host=host), policy), BODY, {}, policy)
    assert server.connections == 0


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f.1", "0177.0.0.1"])
def test_numbers_that_the_system_takes_for_an_address_are_refused_even_past_the_parser(host: str) -> None:
    policy, routes = Policy(), Routes()
    with pytest.raises(AddressRefused, match=r"127\.0\.0\.1 is loopback"):
        post(
            parse_target("https://hook.example/x", policy),
            BODY,
            {},
            policy,
            resolve=lambda _: system_resolver(host),
            connect=routes,
        )
    assert routes.called == []


def test_a_name_that_changes_its_address_reaches_nothing_inside(receiver: Start) -> None:
    """DNS rebinding: whoever looks the name up again to connect goes to 127.0.0.1, where a server listens on the very port."""
    public, internal = receiver(answering(OK)), receiver(answering(OK))
    policy = internal.policy(allowed_hosts=())
    names, routes = Names([PUBLIC], ["127.0.0.1"]), Routes(public=public.port)
    target = parse_target(internal.url(host="rebind.example"), policy)

    assert post(target, BODY, {}, policy, resolve=names, connect=routes).status == 200
    assert (names.asked, routes.called) == (["rebind.example"], [PUBLIC])
    assert f"\r\nHost: rebind.example:{internal.port}\r\n".encode() in public.requests[0]

    with pytest.raises(AddressRefused):
        post(target, BODY, {}, policy, resolve=names, connect=routes)
    assert (names.asked, routes.called) == (["rebind.example"] * 2, [PUBLIC])
    assert (len(public.requests), internal.connections) == (1, 0)


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
def test_a_redirect_is_never_followed(receiver: Start, status: int) -> None:
    internal = receiver(answering(OK))
    redirect = f"HTTP/1.1 {status} Elsewhere\r\nLocation: http://127.0.0.1:{internal.port}/\r\nContent-Length: 0\r\n\r\n"
    server = receiver(answering(redirect.encode()))
    policy = server.policy(ports=(server.port, internal.port))
    answer = post(
        parse_target(server.url(), policy),
        BODY,
        {"Authorization": CANARY},
        policy,
        signature=sign("1-1", BODY, new_secret()),
        resolve=HERE,
    )
    assert answer.status == status
    assert (len(server.requests), internal.connections) == (1, 0)
    assert verdict(answer, 1).outcome == "again"
    assert verdict(answer, 10).outcome == "given_up"
    assert "redirects are not followed" in verdict(answer, 1).reason


@pytest.mark.parametrize("case", [str.lower, str.upper])
def test_proxies_and_passwords_of_the_environment_are_ignored(
    receiver: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, case: Callable[[str], str]
) -> None:
    server, proxy = receiver(answering(OK)), receiver(answering(OK))
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(case(name), f"http://127.0.0.1:{proxy.port}")
    (tmp_path / ".netrc").write_text(f"machine hook.test login user password {CANARY}\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    policy = server.policy()
    assert post(parse_target(server.url(), policy), BODY, {}, policy, resolve=HERE).status == 200
    assert (len(server.requests), proxy.connections) == (1, 0)
    assert b"uthorization" not in server.requests[0]


def test_cookies_are_not_kept(receiver: Start) -> None:
    server = receiver(answering(b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b; Path=/\r\nContent-Length: 0\r\n\r\n"))
    policy = server.policy()
    for _ in range(2):
        post(parse_target(server.url(), policy), BODY, {}, policy, resolve=HERE)
    assert len(server.requests) == 2
    assert not any(b"ookie" in request for request in server.requests)


def test_the_next_address_is_tried_when_one_refuses(receiver: Start) -> None:
    server = receiver(answering(OK))
    policy, routes = server.policy(allowed_hosts=()), Routes(public=server.port)
    target = parse_target(server.url(host="hook.example"), policy)
    many = [PUBLIC_V6, "2606:4700::1", "2606:4700::2", PUBLIC_TOO, PUBLIC]
    assert post(target, BODY, {}, policy, resolve=Names(many), connect=routes).status == 200
    # The first of the other family goes before the rest: a broken IPv6 must not use up the time.
    assert routes.called == [PUBLIC_V6, PUBLIC_TOO, "2606:4700::1", "2606:4700::2", PUBLIC]
    assert len(server.requests) == 1


def test_a_refused_connection_and_an_unknown_host_may_be_tried_again() -> None:
    policy = Policy()
    target = parse_target("https://hook.example/x", policy)
    with pytest.raises(DeliveryFailed, match=r"no connection to https://hook\.example: Connection refused"):
        post(target, BODY, {}, policy, resolve=Names([PUBLIC]), connect=Routes())
    with pytest.raises(DeliveryFailed, match=r"hook\.example has no address"):
        post(target, BODY, {}, policy, resolve=Names([]))

    def unknown(host: str) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with pytest.raises(DeliveryFailed, match=r"hook\.example was not found: Name or service not known"):
        post(target, BODY, {}, policy, resolve=unknown)


def test_name_servers_that_hang_cost_a_bounded_number_of_threads() -> None:
    policy, release = Policy(total_timeout=0.01), threading.Event()
    target = parse_target("https://hook.example/x", policy)

    def hanging(host: str) -> list[str]:
        release.wait(30)
        return []

    def one() -> str:
        try:
            post(target, BODY, {}, policy, resolve=hanging)
        except DeliveryFailed as error:
            return str(error)
        return ""

    try:
        said = [one() for _ in range(40)]
        assert ["not found within" in text for text in said] == [True] * 32 + [False] * 8
        assert all("too many look-ups hang" in text for text in said[32:])
    finally:
        release.set()
    eventually(lambda: "has no address" in one())


@pytest.mark.parametrize("bad", ["\r\n", "\r", "\n", "\x00", "\t", "\x7f", "\x1b", "\x85", "\u010a", "\u2028", "ü", "\ud800"])
def test_nothing_can_be_injected_through_a_header(receiver: Start, bad: str) -> None:
    server = receiver(answering(OK))
    policy = server.policy()
    target = parse_target(server.url(), policy)
    for headers in (
        {f"X-A{bad}": "v"},
        {f"{bad}X-A": "v"},
        {f"X{bad}A": "v"},
        *({"X-A": v} for v in (bad, f"v{bad}X-B: w", f"v{bad}")),
    ):
        with pytest.raises(DeliveryRefused) as refused:
            post(target, BODY, headers, policy, resolve=HERE)
        assert bad not in str(refused.value)
        signature = {"webhook-id": next(iter(headers.values()))}
        if headers.keys() == {"X-A"}:
            with pytest.raises(DeliveryRefused):
                post(target, BODY, {}, policy, signature=signature, resolve=HERE)
    assert server.connections == 0


@pytest.mark.parametrize(
    "name",
    """Host host CONTENT-LENGTH Transfer-Encoding Connection Content-Type Content-Encoding Accept-Encoding Expect Upgrade TE Trailer
    Keep-Alive Proxy-Authorization Proxy-Connection webhook-id Webhook-Timestamp WEBHOOK-SIGNATURE webhook-anything""".split(),
)
def test_headers_that_are_ours_are_refused(name: str) -> None:
    policy = Policy()
    with pytest.raises(DeliveryRefused, match=f"{name.lower()} is Fusion's own"):
        post(parse_target("https://hook.example/x", policy), BODY, {name: CANARY}, policy, resolve=Names(["127.0.0.1"]))


@pytest.mark.parametrize(
    "headers",
    [
        {"": "v"},
        {"X A": "v"},
        {"X:A": "v"},
        {"X-A:": "v"},
        {"X(A)": "v"},
        {"X-A": "1", "x-a": "2"},
        {"X" * 129: "v"},
        {"X-A": "v" * 9000},
        {f"X-{n}": "v" * 100 for n in range(100)},
        {"X-A": 1},
        {"X-A": None},
        {1: "v"},
    ],
)
def test_headers_that_are_no_proper_headers_are_refused(headers: dict[str, str]) -> None:
    policy = Policy()
    with pytest.raises(DeliveryRefused):
        post(parse_target("https://hook.example/x", policy), BODY, headers, policy, resolve=Names(["127.0.0.1"]))


def test_a_signature_has_no_other_headers() -> None:
    policy = Policy()
    with pytest.raises(DeliveryRefused, match="is not a signature header"):
        post(parse_target("https://hook.example/x", policy), BODY, {}, policy, signature={"Host": "other"})


def test_the_largest_body_is_20_kib(receiver: Start) -> None:
    server = receiver(answering(OK))
    policy = server.policy()
    target = parse_target(server.url(), policy)
    assert post(target, b"x" * 20480, {}, policy, resolve=HERE).status == 200
    with pytest.raises(DeliveryRefused, match="at most 20480"):
        post(target, b"x" * 20481, {}, policy, resolve=HERE)
    assert server.connections == 1
