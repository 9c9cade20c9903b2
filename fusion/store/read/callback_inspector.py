"""Reads deliveries of callbacks, for people and tools."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from fusion.kernel import defaults
from fusion.kernel.states import ENDED, KEPT
from fusion.kernel.timeutil import from_iso
from fusion.store.layout import codec
from fusion.store.layout.names import CALLBACKS, is_delivery_id
from fusion.store.read.base import moment
from fusion.store.read.inspector import Inspector
from fusion.store.read.walk import replies

#: The statuses of a delivery. `waiting`: no try has failed yet; `retrying`: one has.
STATUSES = ("waiting", "retrying", "failed", "delivered", "canceled")
_PAGE = 500
#: Members that one command reads.
_CHUNK = 1000
#: How many delivered ones are checked for a signature.
_LAST = 50
#: Fields of a delivery's record that are read.
DELIVERY_FIELDS = ("status", "data", "created_at", "ended_at", "reason", "result", "retryCount")
_ENDED = dict.fromkeys(ENDED, "canceled") | {"failed": "failed", "finished": "delivered"}


@dataclass(frozen=True, slots=True)
class DeliveryInfo:
    """One delivery. `job_status`: the status that it reports for the job. `tries`: tries made since it was last put back. `answer`: the
    result of the last one. `next_at`: when the next is due, None if none is scheduled. `url` may hold a token and must not be shown."""

    id: str
    status: str
    url: str = field(repr=False)
    job_id: str
    queue: str
    job_status: str
    created_at: datetime | None
    ended_at: datetime | None
    tries: int
    answer: str
    next_at: datetime | None


@dataclass(frozen=True, slots=True)
class CallbackCounts:
    """`waiting`: deliveries that wait for their turn; `gone`: endpoints that no longer accept callbacks; `refused`, `dropped`: how many were
    ever not accepted."""

    waiting: int
    gone: int
    refused: int
    dropped: int


class CallbackInspector(Inspector):
    """Reads deliveries. Failed and scheduled deliveries are in sets with jobs; of those sets only the ids of deliveries are read."""

    def counts(self) -> CallbackCounts:
        """Count deliveries, without reading any."""
        return CallbackCounts(self.count(CALLBACKS), self.gone(), self.refused(), self.dropped())

    def dropped(self) -> int:
        """Count the callbacks that could not be accepted."""
        found: Any = self.connection.get(self.keys.callbacks_dropped)
        return codec.number(found)

    def refused(self) -> int:
        """Count the callbacks that were not accepted, as too many waited."""
        found: Any = self.connection.get(self.keys.callbacks_refused)
        return codec.number(found)

    def gone(self) -> int:
        """Count the endpoints that no longer accept callbacks."""
        return int(self.connection.zcard(self.keys.callbacks_gone))

    def unsigned(self) -> list[str]:
        """List the hosts whose last callbacks were sent without a signature."""
        rows = self.table(self.members("finished", CALLBACKS, -_LAST, -1), ("unsigned", "data"))
        sent = [_sent(codec.text(row["data"])) for row in rows if not isinstance(row, Exception) and row["unsigned"]]
        return sorted({urlsplit(str(one.get("url") or "")).hostname or "" for one in sent} - {""})

    def open(self, limit: int = 100) -> tuple[int, list[DeliveryInfo]]:
        """Return how many have not ended, and up to `limit` of them, the first accepted first. Three round trips."""
        count = int(self.connection.zcard(self.keys.callbacks_open))
        return count, list(self._read(self._page(self.keys.callbacks_open, 0, limit), STATUSES)) if count else []

    def is_within(self, most: int) -> bool:
        """Return True if a `find` with this `most` omits no delivery."""
        sizes = replies(self.connection, lambda pipe: (pipe.zcard(self.keys.failed), pipe.zcard(self.keys.scheduled)))
        return all(int(size or 0) <= most for size in sizes)

    def find(self, status: str | None = None, most: int | None = None) -> Iterator[DeliveryInfo]:
        """Read the deliveries of a status, or all: first those due next; ended ones by the last to end.

        No index tells which failed and scheduled jobs are deliveries. With `most` only that many are examined: the last to fail and the next
        due.
        """
        wanted = STATUSES if status is None else (status,)
        if "waiting" in wanted:
            yield from self._read([*self.members("started", CALLBACKS, 0, -1), *self.waiting(CALLBACKS, 0, -1)], wanted)
        if "waiting" in wanted or "retrying" in wanted:
            due = self._among(self.keys.scheduled, most, newest=False)
            yield from self._read(sorted(due, key=lambda one: (due[one], one)), wanted, due)
        if "failed" in wanted:
            failed = self._among(self.keys.failed, most, newest=True)
            yield from self._read(sorted(failed, key=lambda one: (-failed[one], one)), wanted)
        for ended in ("finished", *(state for state in KEPT if state != "finished")):
            if _ENDED[ended] in wanted:
                yield from self._read(self.members(ended, CALLBACKS, 0, -1)[::-1], wanted)

    def one(self, delivery: str) -> DeliveryInfo | None:
        """Read one delivery; None if there is no such delivery."""
        return next(self._read([delivery], STATUSES), None) if is_delivery_id(delivery) else None

    def _among(self, key: str, most: int | None, newest: bool) -> dict[str, float]:
        """Return the scores of the deliveries in a set, or among its first or last `most` members."""
        if most is None:
            rows: Iterable[Any] = self.connection.zscan_iter(key, match="cb-*", count=_CHUNK)
        else:
            starts = range(0, most, _CHUNK)
            parts = replies(
                self.connection,
                lambda pipe: [pipe.zrange(key, at, min(most, at + _CHUNK) - 1, desc=newest, withscores=True) for at in starts],
            )
            rows = [pair for part in parts for pair in part or ()]
        pairs = ((codec.text(member), float(score)) for member, score in rows)
        return {member: score for member, score in pairs if is_delivery_id(member)}

    def _read(self, ids: list[str], wanted: tuple[str, ...], due: dict[str, float] | None = None) -> Iterator[DeliveryInfo]:
        for start in range(0, len(ids), _PAGE):
            part = ids[start : start + _PAGE]
            for job_id, row in zip(part, self.table(part, DELIVERY_FIELDS), strict=True):
                if isinstance(row, Exception) or not row["status"]:
                    continue
                info = delivery_of(job_id, {name: codec.text(value) for name, value in row.items()}, (due or {}).get(job_id))
                if info.status in wanted:
                    yield info


def delivery_of(job_id: str, row: dict[str, str], due: float | None) -> DeliveryInfo:
    """Return the delivery that a record describes. `due`: its score in the schedule."""
    failed_tries = max(0, codec.number(row["retryCount"] or None, defaults.RETRY_COUNT_START) - defaults.RETRY_COUNT_START)
    status = _ENDED.get(row["status"], "retrying" if failed_tries else "waiting")
    sent = _sent(row["data"])
    return DeliveryInfo(
        job_id,
        status,
        url=str(sent.get("url") or ""),
        job_id=str(sent.get("job_id") or ""),
        queue=str(sent.get("queue") or ""),
        job_status=str(sent.get("status") or ""),
        created_at=from_iso(row["created_at"]),
        ended_at=from_iso(row["ended_at"]),
        tries=failed_tries + (status in ("failed", "delivered")),
        answer=row["result"] if status == "delivered" else row["reason"],
        next_at=None if due is None else moment(due),
    )


def _sent(data: str) -> dict[str, Any]:
    try:
        found = json.loads(data)[3]
    except (ValueError, LookupError, TypeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
