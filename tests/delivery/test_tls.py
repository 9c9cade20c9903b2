"""Certificates are checked for the name of the URL, though the connection goes to an address."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest
import trustme

from fusion.delivery.answers import Answer
from fusion.delivery.errors import DeliveryFailed
from fusion.delivery.post import post
from fusion.delivery.targets import parse_target
from tests.delivery.conftest import serving
from tests.kit.receivers import OK, PUBLIC, PUBLIC_V6, Names, Receiver, Routes, answering, dripping, silent

pytestmark = pytest.mark.timeout(30)
HERE = Names(["127.0.0.1"])
Start = Callable[..., Receiver]


def send(server: Receiver, scheme: str = "https", **changes: object) -> Answer:
    policy = server.policy(**{"total_timeout": 5.0, **changes})
    return post(parse_target(f"{scheme}://hook.test:{server.port}/", policy), b"{}", {}, policy, resolve=HERE)


def test_a_trusted_certificate_for_the_name_is_accepted_at_the_pinned_address(receiver: Start, trusted: trustme.CA) -> None:
    context, names = serving(trusted.issue_cert("hook.example")), list[str | None]()
    context.sni_callback = lambda channel, name, _: names.append(name)
    server = receiver(answering(OK), context)
    policy, routes = server.policy(allowed_hosts=()), Routes(public=server.port)
    target = parse_target(server.url(host="hook.example"), policy)
    assert post(target, b"{}", {}, policy, resolve=Names([PUBLIC]), connect=routes) == Answer(200, None, "ok")
    assert (names, routes.called) == (["hook.example"], [PUBLIC])
    assert f"\r\nHost: hook.example:{server.port}\r\n".encode() in server.requests[0]


def test_a_certificate_for_an_address_is_accepted_for_that_address(receiver: Start, trusted: trustme.CA) -> None:
    server = receiver(answering(OK), serving(trusted.issue_cert("127.0.0.1")))
    policy = server.policy(allowed_hosts=("127.0.0.1",))
    assert post(parse_target(server.url(host="127.0.0.1"), policy), b"{}", {}, policy).status == 200


def _expired(authority: trustme.CA) -> trustme.LeafCert:
    now = datetime.now(timezone.utc)
    return authority.issue_cert("hook.test", not_before=now - timedelta(days=2), not_after=now - timedelta(days=1))


@pytest.mark.parametrize(
    ("certificate", "why"),
    [
        (lambda ca: ca.issue_cert("other.test"), "Hostname mismatch"),
        (lambda ca: ca.issue_cert("127.0.0.1"), "not valid for 'hook.test'"),
        (lambda ca: ca.issue_cert("*.hook.test"), "Hostname mismatch"),
        (_expired, "expired"),
        (lambda _: trustme.CA().issue_cert("hook.test"), "unable to get local issuer|self.signed"),
    ],
    ids=["other name", "the address", "wildcard below", "expired", "other authority"],
)
def test_a_bad_certificate_is_a_failure_and_nothing_is_sent(
    receiver: Start, trusted: trustme.CA, certificate: Callable[[trustme.CA], trustme.LeafCert], why: str
) -> None:
    server = receiver(answering(OK), serving(certificate(trusted)))
    with pytest.raises(DeliveryFailed, match=f"its certificate is not valid: .*({why})"):
        send(server)
    assert (server.connections, server.requests) == (1, [])


def test_without_the_authority_in_the_systems_store_nothing_is_sent(receiver: Start, authority: trustme.CA) -> None:
    server = receiver(answering(OK), serving(authority.issue_cert("hook.test")))
    with pytest.raises(DeliveryFailed, match="its certificate is not valid"):
        send(server)
    assert server.requests == []


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_old_versions_of_tls_are_refused(receiver: Start, trusted: trustme.CA) -> None:
    context = serving(trusted.issue_cert("hook.test"))
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    server = receiver(answering(OK), context)
    with pytest.raises(DeliveryFailed, match="TLS failed"):
        send(server)
    assert server.requests == []


def test_a_receiver_without_tls_is_a_failure(receiver: Start) -> None:
    def plain(channel: socket.socket, server: Receiver) -> None:
        channel.recv(65536)
        channel.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with pytest.raises(DeliveryFailed, match="TLS failed"):
        send(receiver(plain))


def test_a_handshake_that_hangs_ends_at_the_connect_timeout(receiver: Start) -> None:
    with pytest.raises(DeliveryFailed, match=r"no connection to .*: not within 0\.2 s"):
        send(receiver(silent), connect_timeout=0.2)


def test_an_address_whose_handshake_hangs_leaves_time_for_the_next(receiver: Start, trusted: trustme.CA) -> None:
    hung, good = receiver(silent), receiver(answering(OK), serving(trusted.issue_cert("hook.example")))
    policy = good.policy(allowed_hosts=(), connect_timeout=0.2, total_timeout=5.0)
    routes = Routes(public=hung.port, public_v6=good.port)
    target = parse_target(good.url(host="hook.example"), policy)
    assert post(target, b"{}", {}, policy, resolve=Names([PUBLIC, PUBLIC_V6]), connect=routes).status == 200
    assert routes.called == [PUBLIC, PUBLIC_V6]


def test_a_handshake_that_drips_ends_at_the_deadline(receiver: Start, trusted: trustme.CA) -> None:
    def drip(channel: socket.socket, server: Receiver) -> None:
        channel.recv(65536)
        channel.sendall(b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc\x03\x03")  # the beginning of a long ServerHello
        while not server.stopped.wait(0.02):
            channel.sendall(b"\x00")

    with pytest.raises(DeliveryFailed, match=r"no connection to .*: not within 0\.3 s"):
        send(receiver(drip), total_timeout=0.3)


def test_an_answer_that_drips_through_tls_ends_at_the_deadline(receiver: Start, trusted: trustme.CA) -> None:
    tls = serving(trusted.issue_cert("hook.test"))
    with pytest.raises(DeliveryFailed, match=r"not within 0\.5 s"):
        send(receiver(dripping(b"HTTP/1.1 200 OK\r\n", b"X"), tls), total_timeout=0.5)
    assert send(receiver(dripping(OK.replace(b": 2", b": 9999"), b"x"), tls), total_timeout=1.5).status == 200


def test_the_store_is_read_anew_when_the_environment_names_another(
    receiver: Start, trusted: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = receiver(answering(OK), serving(trusted.issue_cert("hook.test")))
    assert send(server).status == 200
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(DeliveryFailed, match="certificate"):
        send(server)
