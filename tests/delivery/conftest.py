"""No network outside this machine, no name server: what is looked up comes from a stub, what is connected to is a server of the test."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from tests.kit.receivers import Receiver

Handle = Callable[[socket.socket, Receiver], None]


@pytest.fixture
def receiver() -> Iterator[Callable[..., Receiver]]:
    """`receiver(handle)` starts a server; all are stopped at the end."""
    started: list[Receiver] = []

    def start(handle: Handle, tls: ssl.SSLContext | None = None, ip: str = "127.0.0.1") -> Receiver:
        started.append(Receiver(handle, tls, ip))
        return started[-1]

    yield start
    for one in started:
        one.stop()


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trusted(authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> trustme.CA:
    """An authority that the system's trust store has, put there as an administrator would."""
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    return authority


def serving(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context
