"""Looks up the addresses of a host within a time limit. A try looks the name up once, and connects to one of these addresses."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Sequence

from fusion.delivery.addresses import check_address
from fusion.delivery.errors import DeliveryFailed
from fusion.delivery.targets import Target, literal

#: Gives the addresses of a host as texts, best first; raises OSError if there are none. May block.
Resolver = Callable[[str], Sequence[str]]
# getaddrinfo has no time limit; with a dead name server it takes half a minute. Each waiting call occupies a thread.
_threads = threading.BoundedSemaphore(32)


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
