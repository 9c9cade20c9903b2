"""Block clients that keep trying wrong tokens."""

from __future__ import annotations

import ipaddress
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

#: Wrong tokens that one client may try within a window, and the window in seconds.
ATTEMPTS = 10
WINDOW = 60.0
#: Clients remembered at most. Above that, the client that failed longest ago is forgotten.
_CLIENTS = 10_000


class FailureLimiter:
    """Counts failures per client in fixed windows. A client is an IPv4 address or an IPv6 /64, all of which belongs to one client."""

    def __init__(self, attempts: int = ATTEMPTS, window: float = WINDOW, clock: Callable[[], float] = time.monotonic) -> None:
        self._attempts, self._window, self._clock = attempts, window, clock
        self._failures: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._lock = threading.Lock()

    def failed(self, client: str) -> int:
        """Count a failure. Return the whole seconds until the client may try again; 0 if it may at once."""
        key, now = network(client), self._clock()
        with self._lock:
            began, count = self._failures.pop(key, (now, 0))
            if now - began >= self._window:
                began, count = now, 0
            self._failures[key] = (began, count + 1)
            if len(self._failures) > _CLIENTS:
                self._failures.popitem(last=False)
        return math.ceil(began + self._window - now) if count >= self._attempts else 0


def network(client: str) -> str:
    """Return the client of an address: an IPv4 address itself, or the /64 of an IPv6 address."""
    try:
        address = ipaddress.ip_address(client.partition("%")[0])
    except ValueError:
        return client
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((int(address), 64), strict=False))
    return str(address)
