"""Callbacks of a job: Python functions, which run in the job's process after the task, and URLs, which are called later."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fusion.exceptions import OptionError
from fusion.kernel.importing import func_name_of
from fusion.kernel.timeutil import FURTHEST, parse_seconds
from fusion.kernel.webhook_request import MARK, split_request

if TYPE_CHECKING:
    from fusion.settings import Settings
    from fusion.store.read.callback_inspector import DeliveryInfo
    from fusion.store.write.broker import Broker

#: What a URL must look like to be accepted. What the producer's settings refuse by the URL alone is refused here; the relay's settings, and
#: the addresses of a name, decide when it is called (`fusion.delivery.targets`).
_URL = re.compile(r"(https?)://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{1,5}))?(?:[/?#][!-\[\]-~]*)?", re.IGNORECASE)
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
# If the last part of a host matches, the URL standard reads the host as an IPv4 address or an error (url.spec.whatwg.org, "ends in a
# number").
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_LONGEST = 2048
#: Deliveries that are put back in one call.
_CHUNK = 100


class Callback:
    """A function to call when a job succeeded, failed or was stopped, under its own timeout in seconds (60 if None).

    On success it is called as `func(job, None, result)`, on failure as `func(job, None, type, value, traceback)`, and as `func(job, None)` when
    the task ended as the job was stopped; the second argument is RQ's connection, which a job process does not have. A callback that raises is
    reported and never changes the job's outcome.
    """

    def __init__(self, func: str | Callable[..., Any], timeout: float | str | None = None) -> None:
        self.name = func_name_of(func)
        self.timeout = parse_seconds(timeout) if timeout is not None else 60.0
        if not 0 < self.timeout <= FURTHEST:
            raise ValueError(f"Callback(timeout={timeout!r}): use a duration over 0, up to {FURTHEST:.0f} s (31 years)")

    def to_json(self) -> str:
        """Return the stored form."""
        return json.dumps({"func": self.name, "timeout": self.timeout})


def as_callback(value: Callback | str | Callable[..., Any] | None) -> str | None:
    """Return the stored form of whatever `on_success=`, `on_failure=` and `on_stopped=` accept."""
    if value is None:
        return None
    return (value if isinstance(value, Callback) else Callback(value)).to_json()


def hooks(success: str | None, failure: str | None, url: str | None, settings: Settings) -> dict[str, str | int]:
    """Return the stored form of a job's URLs, with a flag that it has any. ValueError for a URL that can't be called."""
    given = {"success_task_handler": success, "failed_task_handler": failure, "callback_url": url}
    urls = {name: checked for name, value in given.items() if (checked := check_url(name, value, settings))}
    return {**urls, "hooks": 1} if urls else {}


def check_url(name: str, url: object, settings: Settings) -> str | None:
    """Return a URL in its stored form; None for none. ValueError if it is invalid; the message does not show the URL, since URLs often hold
    tokens."""
    if url is None or url == "":
        return None
    match = _URL.fullmatch(url) if isinstance(url, str) and len(url) <= _LONGEST else None
    if match is None:
        raise OptionError(
            name,
            f"use a URL like https://host[:port]/path, without user and password, of at most {_LONGEST} characters of "
            "printable ASCII; percent-encode what else is in it",
        )
    _check_request(name, match[0])
    try:
        host = read_host(match[2])
    except ValueError as error:
        raise OptionError(name, str(error)) from None
    if match[3] and not 0 < int(match[3]) < 65536:
        raise OptionError(name, f"port {int(match[3])} is out of range; use one from 1 to 65535, or none")
    scheme = match[1].lower()
    if scheme == "http" and not settings.callback_allow_http:
        raise OptionError(
            name, "use https://, or allow plain http by the setting callback_allow_http (FUSION_CALLBACK_ALLOW_HTTP)"
        )
    port = int(match[3] or (443 if scheme == "https" else 80))
    if port not in settings.callback_ports:
        ports = ", ".join(map(str, settings.callback_ports))
        raise OptionError(
            name, f"port {port} is none of callback_ports ({ports}); add it there (FUSION_CALLBACK_PORTS), also for relays"
        )
    if (kind := _inside(host)) and not named(host, map(_entry, settings.callback_allowed_hosts or ())):
        raise OptionError(
            name,
            f"{host} is {kind}, and callbacks go to public addresses; name it in callback_allowed_hosts (FUSION_CALLBACK_ALLOWED_HOSTS), "
            "also for relays",
        )
    return match[0]


def _check_request(name: str, url: str) -> None:
    """Check what `fusion.rq.Webhook` writes behind the URL. A `callback_url` may come from a payload, and its sender chooses no headers."""
    if MARK in url:
        try:
            split_request(url)
        except ValueError as error:
            raise OptionError(name, str(error)) from None
        if name == "callback_url":
            raise OptionError(name, "leave out what begins with `#webhook=`: only a Webhook of fusion.rq has it")


def named(host: str, allowed: Iterable[str]) -> bool:
    """Return True if the allowed hosts name this host itself, not just by `*`."""
    return any(host == entry or (entry[:2] == "*." and host.endswith(entry[1:])) for entry in allowed)


def _inside(host: str) -> str:
    """Return the kind of a literal address that callbacks must not reach. Empty for other addresses, and for names: those are resolved at
    each try."""
    if host == "localhost" or host.endswith(".localhost"):
        return "the loopback"
    if not (host[-1:].isdigit() or ":" in host):
        return ""
    from ipaddress import ip_address

    from fusion.kernel.addresses import kind_of

    try:
        return kind_of(ip_address(host))
    except ValueError:  # a name that ends in a digit
        return ""


def _entry(allowed: str) -> str:
    """Return an allowed host, with an address in its usual form. An invalid entry is returned as it is; relays refuse it."""
    star = "*." if allowed.startswith("*.") else ""
    rest = allowed[len(star) :]
    try:
        return star + read_host(f"[{rest}]" if ":" in rest and rest[0] != "[" else rest)
    except ValueError:
        return allowed


def shown_url(url: str) -> str:
    """Return `https://host:port/***`: path and query may hold a token. A URL that can't be parsed becomes `***`."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "***"
    if not parts.scheme or not host:
        return "***" if url else "-"
    host = f"[{host}]" if ":" in host else host
    origin = f"{parts.scheme}://{host}" + (f":{port}" if port else "")
    return f"{origin}/***" if parts.path.strip("/") or parts.query or parts.fragment else origin


def read_host(text: str) -> str:
    """Return a URL's host in lower case, without the root's dot; `127.1`, `0x7f.1`, `0177.0.0.1` and `2130706433` all become 127.0.0.1.
    ValueError for a host that no resolver accepts."""
    host = text.lower().removesuffix(".")
    if host.startswith("["):
        from ipaddress import IPv6Address

        try:
            return str(IPv6Address(host[1:-1]))
        except ValueError:
            raise ValueError("the part of the URL in [brackets] must be an IPv6 address") from None
    labels = host.split(".")
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("the URL's host must be a host name: labels of letters, digits and hyphens, joined by dots")
    if not _NUMBER.fullmatch(labels[-1]):
        return host
    import socket

    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        raise ValueError("the URL's host ends in a number but is not an IPv4 address; write it as 192.0.2.1") from None


def retry_deliveries(
    broker: Broker,
    now: float,
    chosen: Sequence[DeliveryInfo],
    refused: dict[str, str],
    progress: Callable[[int], None] | None = None,
) -> int:
    """Put these deliveries back and return how many; `refused` receives the reason for each other. `now`: Unix seconds by the server's clock.
    `progress` is called after each part with the number of deliveries in it."""
    from fusion.kernel.nonces import new_nonce

    count = 0
    answers = dict[str, str]()
    for start in range(0, len(chosen), _CHUNK):
        part = chosen[start : start + _CHUNK]
        answers |= {one.id: broker.reschedule(one.id, now) for one in part if one.status in ("waiting", "retrying")}
        ended = [one.id for one in part if one.status in ("failed", "canceled")]
        answers |= zip(ended, broker.requeue(ended, new_nonce()) if ended else [], strict=True)
        if progress:
            progress(len(part))
    for delivery, answer in answers.items():
        if answer in ("ok", "queued", "started"):  # it is on its way
            count += 1
        else:
            refused[delivery] = "no such callback" if answer == "missing" else f"it is {answer}"
    return count
