"""Limits how many deliveries one host gets at a time, and decides when the others are tried again."""

from __future__ import annotations

from dataclasses import dataclass

from fusion.kernel import defaults

#: Deliveries that wait here for a busy host, so that it always has the next one; only for hosts that need less than `_FAST` seconds for
#: one. More deliveries wait in Redis.
LINE, _FAST = 2, 1.0
#: Seconds until those in Redis are tried again, at least and at most.
_SOONEST, _LATEST = 0.05, 300.0
#: Assumed seconds of a delivery before any is known; and the weight of the last one in the average.
_PACE, _WEIGHT = 0.01, 0.3
#: Hosts remembered.
_KNOWN = 5000


@dataclass(slots=True)
class _Host:
    busy: int = 0
    line: int = 0
    pace: float = _PACE
    #: When a delivery last ended, or began while none was under way.
    moved: float = 0.0
    #: Until when deliveries that were put off will keep the host busy.
    booked: float = 0.0


class HostLimits:
    """Counts the deliveries under way to each host, `at_a_time` at most.

    Deliveries that were put off return one after the other, as fast as the host takes them. So a slow host occupies only a few slots,
    however
    many deliveries wait for it.
    """

    def __init__(self, at_a_time: int = defaults.CALLBACK_SLOTS_PER_HOST) -> None:
        self._at_a_time = at_a_time
        self._hosts: dict[str, _Host] = {}

    def wait(self, host: str, now: float) -> float:
        """Return the seconds by which to put a delivery off. 0: it may wait here until `begin` lets it start."""
        one = self._of(host)
        pace = max(one.pace, now - one.moved) if one.busy else one.pace  # a hanging host counts as slow already
        if one.busy + one.line < self._at_a_time + (LINE if pace < _FAST else 0):
            one.line += 1
            return 0.0
        one.booked = min(max(one.booked, now) + pace / self._at_a_time, now + _LATEST)
        return max(_SOONEST, one.booked - now)

    def begin(self, host: str, now: float) -> bool:
        """Return True if a waiting delivery may start now; then `done` must follow."""
        one = self._of(host)
        if one.busy >= self._at_a_time:
            return False
        if not one.busy:
            one.moved = now
        one.busy += 1
        one.line -= 1
        return True

    def leave(self, host: str) -> None:
        """Note that a waiting delivery is given back."""
        self._of(host).line -= 1

    def done(self, host: str, now: float, elapsed: float) -> None:
        """Note that a delivery is over; it took `elapsed` seconds."""
        one = self._of(host)
        one.busy -= 1
        one.moved = now
        one.pace += (elapsed - one.pace) * _WEIGHT

    def _of(self, host: str) -> _Host:
        found = self._hosts.get(host)
        if found is None:
            if len(self._hosts) >= _KNOWN:
                self._hosts = {name: one for name, one in self._hosts.items() if one.busy or one.line}
            found = self._hosts[host] = _Host()
        return found
