"""Limits how many deliveries one host gets at a time, and says when those that are too many are tried again."""

from __future__ import annotations

from dataclasses import dataclass

from fusion.kernel import defaults

#: Deliveries that wait here for a busy host that takes less than so many seconds for one, so that it is never without the next. What is
#: over that waits in Redis.
LINE, _FAST = 2, 1.0
#: Seconds until another look at those: at least, and at most.
_SOONEST, _LATEST = 0.05, 300.0
#: Seconds that a delivery takes, as long as nothing is known, and how much the last one counts.
_PACE, _WEIGHT = 0.01, 0.3
#: Hosts remembered.
_KNOWN = 5000


@dataclass(slots=True)
class _Host:
    busy: int = 0
    line: int = 0
    pace: float = _PACE
    #: When something was last begun with nothing under way, or done.
    moved: float = 0.0
    #: Until when the host is taken up by what was put off.
    booked: float = 0.0


class HostLimits:
    """Counts for each host what is under way, `at_a_time` at most.

    Those put off come back one after the other, as fast as the host takes them: the longer that takes and the more they are, the later. So a
    host that is slow holds a few places here, however much there is for it.
    """

    def __init__(self, at_a_time: int = defaults.CALLBACK_SLOTS_PER_HOST) -> None:
        self._at_a_time = at_a_time
        self._hosts: dict[str, _Host] = {}

    def wait(self, host: str, now: float) -> float:
        """Return the seconds to put a delivery off; 0: it may stay here, and `begin` says when it goes."""
        one = self._of(host)
        pace = max(one.pace, now - one.moved) if one.busy else one.pace  # one that hangs is slow before it says so
        if one.busy + one.line < self._at_a_time + (LINE if pace < _FAST else 0):
            one.line += 1
            return 0.0
        one.booked = min(max(one.booked, now) + pace / self._at_a_time, now + _LATEST)
        return max(_SOONEST, one.booked - now)

    def begin(self, host: str, now: float) -> bool:
        """Say whether a delivery that waits here goes now; then `done` must follow."""
        one = self._of(host)
        if one.busy >= self._at_a_time:
            return False
        if not one.busy:
            one.moved = now
        one.busy += 1
        one.line -= 1
        return True

    def leave(self, host: str) -> None:
        """Note that a delivery that waits here is given back."""
        self._of(host).line -= 1

    def done(self, host: str, now: float, elapsed: float) -> None:
        """Note that a delivery is over, after so many seconds."""
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
