"""One HTTP call by requests. A connection belongs to one call, so forked jobs never share one."""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies_environment

try:
    import requests
except ModuleNotFoundError:
    raise ModuleNotFoundError(
        "the bundled tasks need requests; in the checkout: pip install '.[tasks]'", name="requests"
    ) from None
from requests.adapters import HTTPAdapter
from requests.utils import should_bypass_proxies

from .base import ProviderRejected
from .reply import Reply

#: Bytes of an answer that are read; a receipt is a few hundred.
MAX_REPLY = 64 * 1024


def call(method: str, url: str, *, headers: Mapping[str, str], body: bytes, timeout: float) -> Reply:
    """Send one request. `timeout`: seconds to connect, and again for the answer to begin. Redirects are answers, not followed.

    Raises requests' ConnectTimeout, ReadTimeout or ConnectionError, whose messages name host and port and nothing else of the
    url; ProviderRejected if the server's certificate is not trusted.
    """
    deadline = time.monotonic() + timeout
    where = urlsplit(url).netloc.rpartition("@")[2] or "the address"
    headers = {"Accept-Encoding": "identity", **headers}
    how: dict[str, Any] = {"timeout": (timeout, timeout), "allow_redirects": False, "stream": True}
    try:
        with session_for(url) as session, session.request(method, url, headers=headers, data=body, **how) as response:
            return Reply(response.status_code, response.headers, _read(response, deadline))
    except requests.RequestException as error:
        kind, cause = type(error), _cause(error)
    # Out here, so that what requests said, with the whole url in it, does not hang on as the context.
    if isinstance(cause, ssl.SSLCertVerificationError):
        raise ProviderRejected(f"{where}: certificate not trusted ({cause.verify_message}); see SSL_CERT_FILE")
    if issubclass(kind, requests.Timeout):
        raise kind(f"{where}: no {'connection' if kind is requests.ConnectTimeout else 'answer'} within {timeout:g} s")
    raise kind(f"{where}: {getattr(cause, 'strerror', None) or type(cause).__name__}")


def session_for(url: str) -> requests.Session:
    """A session for this url's host, by the proxy that the environment names. Close it."""
    session = _Session()
    # Else a .netrc would replace our Authorization, and macOS, asked for its proxies after a fork, would crash the process.
    session.trust_env = False
    proxies, host = getproxies_environment(), urlsplit(url).hostname or ""
    local = host in ("localhost", "::1") or host.startswith("127.")
    if proxies and not local and not should_bypass_proxies(url, no_proxy=None):
        session.proxies = proxies
    if url.lower().startswith("https:"):
        session.mount("https://", _Adapter())
    return session


@cache
def tls_context() -> ssl.SSLContext:
    """Loading the trusted certificates takes 20 ms, so a fork server does it once (see `settings.warm`). Holds no connection."""
    return ssl.create_default_context()


class _Session(requests.Session):
    def get_redirect_target(self, resp: Any) -> None:
        """None: a redirect is an answer. requests would read the whole of its body, however long, even to not follow it."""


class _Adapter(HTTPAdapter):
    """Trusts what `tls_context` does. requests by itself would load certifi's file, in every job."""

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        """Make connections with our certificates."""
        super().init_poolmanager(*args, **options, ssl_context=tls_context())

    def proxy_manager_for(self, *args: Any, **options: Any) -> Any:
        """The same through a proxy."""
        return super().proxy_manager_for(*args, **options, ssl_context=tls_context())

    def cert_verify(self, *_: Any) -> None:
        """Nothing: the base class would load that file here."""


def _read(response: requests.Response, deadline: float) -> bytes:
    """The status line is the verdict: a body that breaks off, drips or never ends after "200 OK" must not make us send again."""
    content = bytearray()
    try:
        # A chunk is waited for as a whole: small ones, so that the clock is looked at even if the bytes drip.
        for chunk in response.iter_content(16):
            content += chunk
            if len(content) >= MAX_REPLY or time.monotonic() > deadline:
                break
    except requests.RequestException:
        pass
    return bytes(content)


def _cause(error: BaseException) -> BaseException:
    """The innermost error beneath one of requests: the operating system's or OpenSSL's."""
    below: BaseException | None = error
    while below and (isinstance(below, requests.RequestException) or not isinstance(below, OSError)):
        below = below.__context__
    return below or error
