"""The audit log for readers: a request and its result are one entry."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from redis.exceptions import ResponseError

from fusion.store.layout import codec
from fusion.store.query.patterns import SEEN, shell
from fusion.store.read.base import InspectorBase, moment

#: Entries of the stream that are read in one round trip.
_PAGE = 500
#: Entries of the stream that are kept, approximately: the same number as in log_audit.lua.
KEPT = 20_000
#: The outcome of a change without a result: it may be under way, or its process was killed.
NO_ANSWER = "no answer"
_ID = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A change that a person requested. `queues`: those that it concerned, as far as known. `outcome`: `ok`, the reason of the failure, or
    `no answer`. `count`: how many jobs or other things it changed; None if there is nothing to count. `details`: further facts."""

    id: str
    at: datetime
    who: str
    action: str
    target: str
    queues: tuple[str, ...] = ()
    outcome: str = NO_ANSWER
    ended_at: datetime | None = None
    count: int | None = None
    details: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """A filter for the audit; `who` and `action` may be wildcards. `allows` returns True if the reader may see entries about these queues."""

    who: str = ""
    action: str = ""
    since: datetime | None = None
    allows: Callable[[tuple[str, ...]], bool] = lambda queues: True

    def fits(self, entry: AuditEntry) -> bool:
        """Return True if the entry matches."""
        from fusion.kernel.actions import current_name

        return _like(entry.who, self.who) and _like(entry.action, current_name(self.action)) and self.allows(entry.queues)


def _like(text: str, wanted: str) -> bool:
    return not wanted or shell(wanted.casefold()).match(text[:SEEN].casefold()) is not None


_ALL = AuditFilter()


class AuditInspector(InspectorBase):
    """Reads the audit."""

    def entries(self, wanted: AuditFilter = _ALL, limit: int = 50, before: str = "") -> list[AuditEntry]:
        """Return the entries that match, the newest first; with an entry's id as `before` only older ones."""
        found = list[AuditEntry]()
        for entry in self._all(wanted.since):
            if before and not _older(entry.id, before):
                continue
            if wanted.fits(entry):
                found.append(entry)
                if len(found) == limit:
                    break
        return found

    def missing(self) -> int:
        """Return how many entries were removed by hand: fewer are left than were appended, and than are kept. 0 if the server does not count."""
        try:
            found: Any = self.connection.xinfo_stream(self.keys.audit)
        except ResponseError:
            return 0  # there is none
        gone = int(found.get("entries-added", 0)) - int(found["length"])
        return gone if gone > 0 and found["length"] < KEPT else 0

    def _all(self, since: datetime | None) -> Iterator[AuditEntry]:
        """Yield entries from the newest on. The result of a change is written after its request, so it is read first."""
        least = "-" if since is None else str(max(0, int(since.timestamp() * 1000)))
        answers, last = dict[str, tuple[str, dict[str, str]]](), "+"
        while True:
            rows: Any = self.connection.xrevrange(self.keys.audit, last, least, count=_PAGE)
            for raw, pairs in rows:
                row = {codec.text(name): codec.text(value) for name, value in pairs.items()}
                if "of" in row:
                    answers.setdefault(row["of"], (codec.text(raw), row))
                else:
                    yield _entry(codec.text(raw), row, answers.pop(row.get("nonce", ""), None))
            if len(rows) < _PAGE:
                return
            last = "(" + codec.text(rows[-1][0])


def _entry(entry_id: str, row: Mapping[str, str], answer: tuple[str, dict[str, str]] | None) -> AuditEntry:
    from fusion.kernel.actions import current_name  # every command loads this module, and few look at the audit

    entry = AuditEntry(
        entry_id,
        _moment(entry_id),
        row.get("who", ""),
        current_name(row.get("action", "")),
        row.get("target", ""),
        _queues(row),
        details=_details(row),
    )
    if answer is None and "outcome" not in row:
        return entry
    told_id, told = answer or (entry_id, dict(row))
    count = told.get("count", "")
    return replace(
        entry,
        outcome=told.get("outcome", ""),
        ended_at=_moment(told_id),
        count=int(count) if count.isascii() and count.isdigit() and len(count) < 19 else None,
        target=told.get("target") or entry.target,
        queues=_queues(told) or entry.queues,
        details=entry.details | _details(told),
    )


def _queues(row: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(row.get("queues", "").split())


def _details(row: Mapping[str, str]) -> dict[str, str]:
    try:
        found = json.loads(row.get("details") or "{}")
    except (ValueError, RecursionError):
        return {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def _moment(entry_id: str) -> datetime:
    return moment(int(entry_id.partition("-")[0]) / 1000)


def _older(entry_id: str, other: str) -> bool:
    return bool(_ID.fullmatch(other)) and [*map(int, entry_id.split("-"))] < [*map(int, other.split("-"))]
