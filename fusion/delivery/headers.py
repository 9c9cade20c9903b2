"""The head of the request: checks the headers that a callback adds, and encodes them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from fusion import __version__
from fusion.delivery.errors import DeliveryRefused
from fusion.delivery.targets import Target
from fusion.kernel.sentences import HEADERS

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


def head(target: Target, length: int, headers: Mapping[str, str], signature: Mapping[str, str]) -> bytes:
    """Return request line and headers of a POST of `length` bytes. DeliveryRefused if a header may not be sent."""
    check_headers(headers)
    for name, value in signature.items():
        _check(name, value)
        if name not in SIGNATURE:
            raise DeliveryRefused(f"{name} is not a signature header; use what sign() returns")
    fields = {
        "Host": target.authority,
        "Connection": "close",
        "Content-Type": "application/json",
        "Content-Length": str(length),
        "Accept-Encoding": "identity",
        **signature,
        **headers,
    }
    if not any(name.lower() == "user-agent" for name in headers):
        fields["User-Agent"] = f"fusion-queue/{__version__}"
    lines = [f"POST {target.path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


def _check(name: object, value: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DeliveryRefused("a header's name is 1 to 128 letters, digits and hyphens")
    if not isinstance(value, str) or not _VALUE.fullmatch(value):
        raise DeliveryRefused(f"the value of header {name.lower()} must be printable ASCII text, without line breaks and umlauts")
