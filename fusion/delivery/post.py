"""The POST itself: one try, one look-up, one connection to a checked address, one deadline.

It uses the standard library's sockets and answer parser, not urllib3 or requests. Their timeouts limit the pause between two bytes, not the
whole try, and they look up the name themselves. Redirects, decompression, proxies and .netrc would each have to be switched off, in every
later version too. Here they don't exist.
"""

from __future__ import annotations

import queue
import re
import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException, HTTPResponse, LineTooLong, RemoteDisconnected

from fusion import __version__
from fusion.delivery.answers import Answer, excerpt, parse_retry_after
from fusion.delivery.errors import DeliveryFailed, DeliveryRefused
from fusion.delivery.targets import Policy, Target, check_address, literal
from fusion.delivery.wire import Deadline, Dial, Wire, dial, secure
from fusion.kernel.sentences import BODY, HEADERS, NO_ANSWER, NO_CONNECTION

#: Gives the addresses of a host as texts, best first; raises OSError if there are none. May block.
Resolver = Callable[[str], Sequence[str]]
# getaddrinfo has no time limit; with a dead name server it takes half a minute. Each waiting call occupies a thread.
_threads = threading.BoundedSemaphore(32)
#: Most bytes of all headers that a callback adds.
MAX_HEADERS = 8 * 1024
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")  # RFC 9110 5.6.2
_VALUE = re.compile(r"[ -~]*")
# Headers about the end or the encoding of a message, or about the connection. Another value than Fusion's would break the request.
_OURS = frozenset(
    """accept-encoding connection content-encoding content-length content-type expect host http2-settings keep-alive
    proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding upgrade""".split()
)
SIGNATURE = ("webhook-id", "webhook-timestamp", "webhook-signature")


def check_headers(headers: Mapping[str, str]) -> None:
    """Check that a callback may send these headers. DeliveryRefused if not; it names the header, never its value."""
    for name, value in headers.items():
        _check(name, value)
        low = name.lower()
        if low in _OURS or low.startswith("webhook-"):
            raise DeliveryRefused(f"header {low} is Fusion's own; leave it out")
    if len({name.lower() for name in headers}) < len(headers):
        raise DeliveryRefused("a header is there twice, in upper and lower case; leave one out")
    if sum(len(name) + len(value) + 4 for name, value in headers.items()) > MAX_HEADERS:
        raise DeliveryRefused(f"the {HEADERS.format(n=MAX_HEADERS)}; send less")


def head(target: Target, length: int, headers: Mapping[str, str], signature: Mapping[str, str], method: str = "POST") -> bytes:
    """Return request line and headers of a request with `length` bytes. DeliveryRefused if a header may not be sent."""
    check_headers(headers)
    for name, value in signature.items():
        _check(name, value)
        if name not in SIGNATURE:
            raise DeliveryRefused(f"{name} is not a signature header; use what sign() returns")
    fields = {
        "Host": target.authority,
        "Connection": "close",
        **({"Content-Type": "application/json", "Content-Length": str(length)} if method != "GET" else {}),
        "Accept-Encoding": "identity",
        **signature,
        **headers,
    }
    if not any(name.lower() == "user-agent" for name in headers):
        fields["User-Agent"] = f"fusion-queue/{__version__}"
    lines = [f"{method} {target.path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


def _check(name: object, value: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DeliveryRefused("a header's name is 1 to 128 letters, digits and hyphens")
    if not isinstance(value, str) or not _VALUE.fullmatch(value):
        raise DeliveryRefused(f"the value of header {name.lower()} must be printable ASCII text, without line breaks and umlauts")


def system_resolver(host: str) -> list[str]:
    """Look a name up as the machine does: hosts file, DNS. Return addresses in the order of RFC 6724."""
    # Pass the checked bytes: a text would go through Python's IDNA codec, which changes names.
    found = socket.getaddrinfo(host.encode("ascii"), None, type=socket.SOCK_STREAM)
    return [str(sockaddr[0]) for *_, sockaddr in found]


def addresses(target: Target, timeout: float, resolve: Resolver = system_resolver) -> list[str]:
    """Look up and check all addresses of the host. AddressRefused if one is not allowed, DeliveryFailed if none is found in time."""
    found = [target.host] if literal(target.host) else _look_up(target.host, timeout, resolve)
    if not found:
        raise DeliveryFailed(f"host {target.host} has no address")
    if not target.trusted:
        for address in found:
            check_address(address)
    return _mixed(list(dict.fromkeys(found)))


def _look_up(host: str, timeout: float, resolve: Resolver) -> list[str]:
    if not _threads.acquire(blocking=False):
        raise DeliveryFailed(f"host {host} was not looked up: too many look-ups hang; the name server does not answer")
    answer: queue.SimpleQueue[list[str] | OSError | UnicodeError] = queue.SimpleQueue()

    def work() -> None:
        try:
            answer.put(list(resolve(host)))
        except (OSError, UnicodeError) as error:
            answer.put(error)
        finally:
            _threads.release()

    threading.Thread(target=work, name=f"look up {host}", daemon=True).start()
    try:
        found = answer.get(timeout=timeout)
    except queue.Empty:
        raise DeliveryFailed(f"host {host} was not found within {timeout:.0f} s") from None
    if isinstance(found, list):
        return found
    raise DeliveryFailed(f"host {host} was not found: {getattr(found, 'strerror', None) or type(found).__name__}")


def _mixed(found: list[str]) -> list[str]:
    """Return the addresses with the first of each family in front, so that a broken IPv6 does not use up all the time."""
    other = next((address for address in found if (":" in address) != (":" in found[0])), None)
    return found if other is None else [found[0], other, *(address for address in found[1:] if address != other)]


def post(
    target: Target,
    body: bytes,
    headers: Mapping[str, str],
    policy: Policy,
    *,
    signature: Mapping[str, str] | None = None,
    method: str = "POST",
    resolve: Resolver = system_resolver,
    connect: Dial = dial,
) -> Answer:
    """Send `body` as JSON once, with `GET` without type and length, and return the answer, whatever its status. A redirect is an ordinary answer
    and is never followed.

    `headers`: the callback's own. `signature`: the result of `sign()`. Once the answer's headers are complete, its status counts; its text
    is read only up to the deadline and `policy.max_read`. DeliveryRefused if it may not be sent, DeliveryFailed if no answer came in time.
    """
    if len(body) > policy.max_body:
        raise DeliveryRefused(BODY.format(n=len(body), n_most=policy.max_body))
    request = head(target, len(body), headers, signature or {}, method) + body
    deadline = Deadline(policy.total_timeout)
    found = addresses(target, deadline.left(), resolve)
    with _connection(target, found, policy, deadline, connect) as channel:
        wire = Wire(channel, deadline, policy.max_read)
        response = _exchange(wire, request, target, policy)
        text = _text(response)
    if response.getheader("Content-Encoding", "identity").strip().lower() != "identity":
        text = b""  # compressed although plain text was requested: never decompress it, it may be a bomb
    return Answer(
        response.status,
        parse_retry_after(response.getheader("Retry-After")),
        excerpt(text, [*headers.values(), target.path]),
    )


def _connection(target: Target, found: Sequence[str], policy: Policy, deadline: Deadline, connect: Dial) -> socket.socket:
    """Connect to the first address that answers. If none does, DeliveryFailed with the reason of the last one."""
    failure: OSError = TimeoutError()
    for address in found:
        try:
            both = Deadline(deadline.left(policy.connect_timeout))
            channel = connect(address, target.port, both.left())
            return secure(channel, target.host, both) if target.scheme == "https" else channel
        except OSError as error:
            failure = error
    raise DeliveryFailed(NO_CONNECTION.format(url=target) + _why(failure, min(policy.connect_timeout, policy.total_timeout)))


def _exchange(wire: Wire, request: bytes, target: Target, policy: Policy) -> HTTPResponse:
    """Send the request and read status and headers. DeliveryFailed unless they are complete in time and within the limit."""
    try:
        wire.send_all(request)
        while True:
            response = HTTPResponse(wire, method="POST")  # type: ignore[arg-type]
            response.begin()
            if not 101 < response.status < 200:
                break
    except OSError as error:
        why = _why(error, policy.total_timeout)
    except (HTTPException, ValueError) as error:
        # Only the texts of these two errors come from http.client; other texts may come from the receiver.
        kind = type(error)
        why = str(error) if kind in (HTTPException, LineTooLong) else f"the answer is not HTTP ({kind.__name__})"
    else:
        # At the end of the data http.client accepts an incomplete head as complete.
        why = "the answer ended within its headers" if wire.ended else ""
    if wire.full:
        why = f"the answer's {HEADERS.format(n=policy.max_read)}"
    if why:
        raise DeliveryFailed(NO_ANSWER.format(url=target) + why)
    return response


def _text(response: HTTPResponse) -> bytes:
    """Return as much of the body as comes. A body that is cut, reset or garbled does not matter: the status is known."""
    pieces = []
    try:
        while piece := response.read1(4096):
            pieces.append(piece)
    except (OSError, HTTPException, ValueError):
        pass
    return b"".join(pieces)


def _why(error: OSError, timeout: float) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or type(error).__name__}"
    if isinstance(error, TimeoutError):
        return f"not within {timeout:g} s"
    if isinstance(error, RemoteDisconnected):
        return "the connection was closed without an answer"
    return error.strerror or type(error).__name__
