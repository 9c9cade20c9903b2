"""One HTTP call with a deadline.

Over http.client rather than requests, because every job is its own process and pays for both import and first use. Measured: a
fork server with requests loaded forks in 1.40 ms instead of 0.74 ms, and a first POST in a fresh process takes 4.7 ms instead of
1.1 ms. It also gives a timeout for the whole call, where requests has one per read.
"""

from __future__ import annotations

import http.client
import io
import json
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

from tasks.providers.base import ConnectTimeout, Message, ProviderRejected, ProviderUnavailable, ReadTimeout, public_reason

#: Bytes of an answer that are read; a receipt is a few hundred.
MAX_REPLY = 64 * 1024
#: 4xx that mean "not now" rather than "no".
_LATER = frozenset({408, 425, 429})

# Looking up any host name loads this codec and its tables: 2 ms in every job, unless the fork server did it before.
"localhost".encode("idna")


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one call; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        """The body as an object, or {} if it is anything else."""
        try:
            value = json.loads(self.body)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


@cache
def tls_context() -> ssl.SSLContext:
    """Loading the trusted certificates takes 20 ms, so a fork server does it once (see `settings.warm`). Holds no connection."""
    return ssl.create_default_context()


def call(method: str, url: str, *, headers: Mapping[str, str], body: bytes, timeout: float) -> Reply:
    """Send one request and read its answer within `timeout` seconds. Redirects are answers, not followed.

    Raises ConnectTimeout, ReadTimeout or ProviderUnavailable, whose messages name host and port and nothing else of the url.
    """
    deadline = time.monotonic() + timeout
    parts = urlsplit(url)
    where = parts.netloc.rpartition("@")[2]
    connection, target, extra = _connection(url, timeout)
    try:
        try:
            connection.connect()
        except TimeoutError:
            raise ConnectTimeout(f"{where}: no connection within {timeout:g} s") from None
        except ssl.SSLCertVerificationError as error:
            raise ProviderRejected(f"{where}: certificate not trusted ({error.verify_message}); see SSL_CERT_FILE") from None
        except (OSError, http.client.HTTPException) as error:
            raise ProviderUnavailable(f"{where}: no connection ({_short(error)})") from None
        connection.sock = _DeadlineSocket(connection.sock, deadline)
        try:
            connection.request(method, target, body=body, headers={"Accept-Encoding": "identity", **headers, **extra})
            response = connection.getresponse()
        except TimeoutError:
            raise ReadTimeout(f"{where}: no answer within {timeout:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            raise ProviderUnavailable(f"{where}: connection lost before an answer ({_short(error)})") from None
        try:
            content = response.read(MAX_REPLY)
        except (OSError, http.client.HTTPException):
            content = b""  # The status line is the verdict: a body that breaks off after "200 OK" must not make us send again.
        return Reply(response.status, {name.lower(): value for name, value in response.getheaders()}, content)
    finally:
        connection.close()


def accepted(reply: Reply, provider: str, message: Message, secrets: Sequence[str] = ()) -> Reply:
    """The reply if its status is 2xx; else ProviderUnavailable (408, 425, 429, 5xx) or ProviderRejected, with its reason."""
    if 200 <= reply.status < 300:
        return reply
    reason = public_reason(_reason(reply), message, secrets)
    text = f"{provider}: HTTP {reply.status}{': ' if reason else ''}{reason}"
    if reply.status >= 500 or reply.status in _LATER:
        raise ProviderUnavailable(text, retry_after(reply.headers.get("retry-after", "")))
    raise ProviderRejected(f"{text} (redirects are not followed)" if reply.status // 100 == 3 else text)


def retry_after(value: str) -> float | None:
    """Seconds from a Retry-After header, which has either seconds or a date."""
    if value.strip().isdecimal():
        return float(value)
    try:
        return max(parsedate_to_datetime(value).timestamp() - time.time(), 0.0)
    except (TypeError, ValueError, OverflowError):
        return None


def json_body(value: object) -> bytes:
    """Compact UTF-8 JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _connection(url: str, timeout: float) -> tuple[http.client.HTTPConnection, str, dict[str, str]]:
    """An unopened connection for the url, what to ask it for, and headers a proxy needs."""
    parts = urlsplit(url)
    host, secure = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    proxies = {} if host == "localhost" or host.startswith("127.") or host == "::1" else getproxies_environment()
    proxy = proxies.get(parts.scheme, "")
    # Only the environment: asking macOS for its proxies after a fork crashes the process.
    if not proxy or proxy_bypass_environment(host, proxies):
        kind = http.client.HTTPSConnection(host, port, timeout=timeout, context=tls_context()) if secure else None
        return kind or http.client.HTTPConnection(host, port, timeout=timeout), path, {}
    via = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    login = {"Proxy-Authorization": basic_auth(unquote(via.username), unquote(via.password or ""))} if via.username else {}
    if not secure:
        plain = http.client.HTTPConnection(via.hostname or "", via.port or 80, timeout=timeout)
        return plain, f"http://{parts.netloc}{path}", {"Host": parts.netloc, **login}
    tunnel = http.client.HTTPSConnection(via.hostname or "", via.port or 80, timeout=timeout, context=tls_context())
    tunnel.set_tunnel(host, port, headers=login)
    return tunnel, path, {}


def basic_auth(user: str, password: str) -> str:
    """Value of an Authorization header."""
    from base64 import b64encode

    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


def _reason(reply: Reply) -> str:
    """The provider's own words, in whichever of the usual places they are."""
    data = reply.json()
    error = data.get("error", data)
    if isinstance(error, str):
        return error
    if not isinstance(error, dict):
        return ""
    words = [error.get(key) for key in ("status", "code", "message", "detail", "title")]
    details = error.get("details") or error.get("error_data")
    for detail in details if isinstance(details, list) else [details]:
        if isinstance(detail, dict):
            words += [detail.get("errorCode"), detail.get("details")]
    return " ".join(str(word) for word in words if word and word != reply.status)


def _short(error: Exception) -> str:
    return getattr(error, "strerror", None) or type(error).__name__


class _DeadlineSocket:
    """The part of a socket that http.client uses, each operation limited to what is left until the deadline."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def limit(self) -> socket.socket:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)
        return self._sock

    def sendall(self, data: bytes) -> None:
        self.limit().sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_DeadlineReader(self, self._sock.makefile("rb", buffering=0)))

    def close(self) -> None:
        self._sock.close()


class _DeadlineReader(io.RawIOBase):
    def __init__(self, owner: _DeadlineSocket, raw: socket.SocketIO) -> None:
        self._owner = owner
        self._raw = raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._owner.limit()
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()
