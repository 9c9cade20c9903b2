"""The POST itself: one try, one look-up, one connection to a checked address, one deadline.

It uses the standard library's sockets and answer parser, not urllib3 or requests. Their timeouts limit the pause between two bytes, not the
whole try, and they look up the name themselves. Redirects, decompression, proxies and .netrc would each have to be switched off, in every
later version too. Here they don't exist.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping, Sequence
from http.client import HTTPException, HTTPResponse, LineTooLong, RemoteDisconnected

from fusion.delivery.answers import Answer, excerpt, parse_retry_after
from fusion.delivery.dns import Resolver, addresses, system_resolver
from fusion.delivery.errors import DeliveryFailed, DeliveryRefused
from fusion.delivery.headers import head
from fusion.delivery.targets import Policy, Target
from fusion.delivery.wire import Deadline, Dial, Wire, dial, secure
from fusion.kernel.sentences import BODY, HEADERS, NO_ANSWER, NO_CONNECTION


def post(
    target: Target,
    body: bytes,
    headers: Mapping[str, str],
    policy: Policy,
    *,
    signature: Mapping[str, str] | None = None,
    resolve: Resolver = system_resolver,
    connect: Dial = dial,
) -> Answer:
    """Send `body` as JSON once and return the answer, whatever its status. A redirect is an ordinary answer and is never followed.

    `headers`: the callback's own. `signature`: the result of `sign()`. Once the answer's headers are complete, its status counts; its text
    is read only up to the deadline and `policy.max_read`. DeliveryRefused if it may not be sent, DeliveryFailed if no answer came in time.
    """
    if len(body) > policy.max_body:
        raise DeliveryRefused(BODY.format(n=len(body), n_most=policy.max_body))
    request = head(target, len(body), headers, signature or {}) + body
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
