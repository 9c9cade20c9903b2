"""The deliveries that the sandbox received, and the faults that it plays. Used from the server's one thread only, so without locks."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

CHANNELS = ("sms", "email", "pn", "webhook", "whatsapp")
#: Deliveries that can still be listed, and at most in one answer. The counters are exact whatever came before.
KEPT = 100_000
PAGE = 5_000
_SMTP_CODES = (421, 450, 451, 452, 454, 550, 551, 552, 553, 554)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message that was accepted. `job` and `priority` are those of the Fusion job that sent it, None if it said nothing."""

    n: int
    channel: str
    to: str
    job: str | None
    priority: int | None
    time: float
    text: str


@dataclass(slots=True)
class Fault:
    """A fault: it replaces an answer (`status`, `drop`) or delays it (`delay`, seconds), `count` times; None = for ever."""

    channel: str
    status: int | None = None
    count: int | None = None
    delay: float = 0.0
    retry_after: int | None = None
    drop: bool = False


class Ledger:
    """The book of the sandbox: deliveries (the last KEPT with their text), counts, and faults to play."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.clear()

    def clear(self) -> None:
        """Forget all deliveries and counts; faults stay."""
        self._deliveries: deque[Delivery] = deque(maxlen=KEPT)
        self._counts: Counter[tuple[str, int | None]] = Counter()
        self._refused: Counter[tuple[str, int]] = Counter()
        self._seen: set[tuple[str, str]] = set()
        self._jobs: set[str] = set()
        self._duplicates = 0
        self.total = 0

    def accept(self, channel: str, to: str, trace: Mapping[str, str], text: str = "") -> int:
        """Record a delivery; `trace` has the request's headers in lower case. Returns its number, from 1."""
        job = trace.get("x-fusion-job")
        mark = trace.get("x-fusion-priority", "")
        priority = int(mark) if mark.isdecimal() else None
        self.total += 1
        self._counts[channel, priority] += 1
        if job:
            self._jobs.add(job)
            self._duplicates += (job, to) in self._seen
            self._seen.add((job, to))
        self._deliveries.append(Delivery(self.total, channel, to, job, priority, time.time(), text[:200]))
        return self.total

    def refuse(self, channel: str, status: int) -> None:
        """Count a refusal."""
        self._refused[channel, status] += 1

    def deliveries(self, since: int) -> dict[str, Any]:
        """At most a page of what came after number `since`."""
        first = self._deliveries[0].n if self._deliveries else 1
        start = max(since - first + 1, 0)
        page = [asdict(self._deliveries[i]) for i in range(start, min(start + PAGE, len(self._deliveries)))]
        return {"next": page[-1]["n"] if page else max(since, 0), "deliveries": page}

    def stats(self) -> dict[str, Any]:
        """The totals, as `GET /_stats` answers them."""
        channels: dict[str, int] = dict.fromkeys(CHANNELS, 0)
        priorities: dict[str, int] = {}
        both: dict[str, dict[str, int]] = {}
        for (channel, priority), count in self._counts.items():
            key = "none" if priority is None else str(priority)
            channels[channel] += count
            priorities[key] = priorities.get(key, 0) + count
            both.setdefault(channel, {})[key] = count
        refused: dict[str, dict[str, int]] = {}
        for (channel, status), count in self._refused.items():
            refused.setdefault(channel, {})[str(status)] = count
        return {
            "total": self.total,
            "by_channel": channels,
            "by_priority": priorities,
            "by_channel_and_priority": both,
            "jobs": len(self._jobs),
            "duplicates": self._duplicates,
            "refused": refused,
        }

    def add_fault(self, wish: Mapping[str, Any]) -> str:
        """Arm a fault; returns what is wrong with it, or nothing."""
        unknown = wish.keys() - {"channel", "status", "count", "delay", "retry_after", "drop"}
        channel, status = wish.get("channel"), wish.get("status")
        if unknown:
            return f"unknown key {min(unknown)!r}"
        if channel not in (*CHANNELS, "*"):
            return f"channel must be one of {', '.join(CHANNELS)} or *"
        allowed = _SMTP_CODES if channel == "email" else range(400, 600)
        if status is not None and status not in allowed:
            return f"status must be one of {allowed}" if channel == "email" else "status must be 400 to 599"
        for key in ("count", "retry_after"):
            if wish.get(key) is not None and (type(wish[key]) is not int or wish[key] < 1):
                return f"{key} must be a whole number from 1"
        delay = wish.get("delay") or 0.0
        if type(delay) not in (int, float) or not 0 <= delay <= 3600:
            return "delay must be seconds from 0 to 3600"
        drop = bool(wish.get("drop"))
        self.faults.append(Fault(channel, status, wish.get("count"), float(delay), wish.get("retry_after"), drop))
        return ""

    def fault(self, channel: str) -> Fault | None:
        """The fault for the next request of this channel, if any, and one less of it."""
        for fault in self.faults:
            if fault.channel in (channel, "*"):
                if fault.count is not None:
                    fault.count -= 1
                    if fault.count == 0:
                        self.faults.remove(fault)
                return fault
        return None
