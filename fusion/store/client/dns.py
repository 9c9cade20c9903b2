"""Looks up the addresses of a host within a time limit. getaddrinfo has none, and waits half a minute for a silent name server."""

from __future__ import annotations

import os
import socket
import threading
import time

#: Seconds for which a late answer may still serve the next attempt.
_FRESH = 30.0


class _LookUp:
    """One query to the resolver, made in a thread. It can't be cancelled: a second caller with the same query waits for this answer."""

    def __init__(self, host: str) -> None:
        self._host = host
        self.answered = threading.Event()
        self._at = 0.0
        self._found: list[str] = []
        self._error: tuple[int | None, str] | None = None
        try:
            threading.Thread(target=self._ask, name=f"look up {host}", daemon=True).start()
        except RuntimeError:  # no thread can be started
            self._ask()

    def _ask(self) -> None:
        try:
            self._found = list(
                dict.fromkeys(str(at[0]) for *_, at in socket.getaddrinfo(self._host, None, type=socket.SOCK_STREAM))
            )
        except OSError as error:
            self._error = (error.errno, error.strerror or str(error))
        except UnicodeError:
            self._error = (socket.EAI_NONAME, "this is not a host name")
        self._at = time.monotonic()
        self.answered.set()

    @property
    def stale(self) -> bool:
        """Return True for an answer that came too late to be used."""
        return self.answered.is_set() and time.monotonic() - self._at > _FRESH

    def answer(self) -> list[str]:
        """Return the addresses. Raises socket.gaierror if there are none."""
        if self._error is not None:
            raise socket.gaierror(*self._error)
        return self._found


# By pid: in a forked child the parent's lookups never get an answer.
_under_way: dict[tuple[int, str], _LookUp] = {}


def addresses(host: str, timeout: float | None) -> list[str]:
    """Look up the addresses of `host`, in the resolver's order. socket.gaierror if it has none, or if there is no answer within `timeout`
    seconds. The next call then waits for that same answer, so that a slow name server only causes delay. An earlier address is never used
    again: it may belong to another server by now."""
    if _is_address(host):
        return [host]
    key = (os.getpid(), host)
    asked = _under_way.get(key)
    if asked is None or asked.stale:
        asked = _under_way[key] = _LookUp(host)
    if not asked.answered.wait(timeout):
        raise socket.gaierror(socket.EAI_AGAIN, f"the name server did not answer within {timeout:g} s")
    _under_way.pop(key, None)
    return asked.answer()


def _is_address(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host.partition("%")[0])
        except (OSError, ValueError):
            continue
        return True
    return False
