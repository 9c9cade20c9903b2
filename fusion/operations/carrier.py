"""The runner of operations: it reads a part of the candidates, lets the scripts change those that match, and moves the cursor.

Any number of carriers may run the same operation. The script that changes a job also compares and counts it, and the cursor is compared
and set. So a carrier that is killed or late does no harm. The lease in the record only keeps two from doing the same work.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from time import monotonic
from typing import Any

from redis import Redis

from fusion.kernel.nonces import new_nonce
from fusion.kernel.timeutil import from_iso
from fusion.operations.walk import Stop, position, stops
from fusion.settings import Settings
from fusion.store.layout.codec import number
from fusion.store.query.grammar import Query, state_of
from fusion.store.read.search_inspector import SearchInspector
from fusion.store.write.broker import Broker
from fusion.store.write.operation_broker import Move

#: Seconds of a carrier's lease of an operation; it renews the lease after that time.
LEASE = 10.0
#: Jobs read in one part.
PAGE = 500
#: Jobs read in the first part, and in the smallest, of a carrier with a time limit for each part.
_FIRST, _FEWEST = 20, 5
#: Seconds for which the list of sets is cached.
_KEEP_WALK = 60.0


@dataclass(slots=True)
class _Batch:
    """Ids of one scan of a set. `left`: ids still to be read, with which a carrier whose time was over goes on later. `part`: the part of the
    operation; `run_id`: the server's run id; `cursor`: the cursor after the scan; `skipped`: jobs skipped so far."""

    part: int
    run_id: str
    cursor: int
    left: list[str]
    skipped: int = 0


@dataclass(slots=True)
class _Known:
    """The facts that a carrier keeps about an operation between two parts."""

    query: Query
    cutoff: datetime
    states: frozenset[str]
    args: dict[str, str]
    walk: list[Stop] = field(default_factory=list)
    walked_at: float = float("-inf")
    batch: _Batch | None = None


class Carrier:
    """Runs operations in parts. `name`: the carrier's own name; `page`: the jobs read in a part, fewer if it would take longer than about
    `part` seconds."""

    def __init__(
        self, connection: Redis, settings: Settings, name: str, *, page: int = PAGE, part: float = inf, lease: float = LEASE
    ) -> None:
        self.name = name
        self._broker = Broker.of(connection, settings)
        self._finder = SearchInspector.of(connection, settings)
        self._settings, self._page, self._lease = settings, page, lease
        self._longest, self._count = part, min(page, _FIRST) if part < inf else page
        self._known: dict[str, _Known] = {}

    def carry(self, operation: str, seconds: float) -> tuple[str, dict[str, str]]:
        """Run parts of an operation for about `seconds`, at least one. Return its status and record: `running`; `busy` (another carrier has it);
        `keyless` (it needs signing keys); `unreadable` (it needs a newer version); `done`, `canceled`, `missing`."""
        began = monotonic()
        status, row = self._broker.lease_operation(operation, self.name, self._lease)
        if status != "running":
            self._known.pop(operation, None)
            return status, row
        if row.get("keyed") and self._settings.keyring is None:
            self.leave(operation)
            return "keyless", row
        known = self._known.get(operation)
        if known is None:
            try:
                known = self._known[operation] = _read(row)
            except (ValueError, KeyError):  # another version wrote it
                self.leave(operation)
                return "unreadable", row
        while True:
            at = monotonic()
            status = self._part(operation, known, row)
            self._pace(monotonic() - at)
            if status in ("stale", "over", "missing"):
                # another carrier was first, or a user canceled it: read the record
                return self._broker.lease_operation(operation, self.name, self._lease)
            if status == "done" or monotonic() - began >= seconds:
                return status, row

    def _pace(self, took: float) -> None:
        if took > self._longest:
            self._count = max(_FEWEST, self._count // 2)
        elif took < self._longest / 2:
            self._count = min(self._page, self._count + self._count // 4 + 1)

    def leave(self, operation: str) -> None:
        """Give up the lease, so that another carrier can go on at once."""
        self._known.pop(operation, None)
        self._broker.lease_operation(operation, self.name, 0)

    def _part(self, operation: str, known: _Known, row: dict[str, str]) -> str:
        """Run one part, or as much of it as there is time for. Updates `row`, the record."""
        now = monotonic()
        if now - known.walked_at > _KEEP_WALK and known.batch is None:
            known.walk, known.walked_at = stops(self._finder.sources(known.query)), now
        at, there = position(known.walk, row["place"])
        part, over, skipped, cursor, place = number(row["part"]), at >= len(known.walk), 0, 0, ""
        run_id = self._broker.run_id()
        if not over:
            stop, batch = known.walk[at], known.batch
            if batch is None or (batch.part, batch.run_id) != (part, run_id):
                begins = not there or row["cursor"] == "0" or row.get("run_id") != run_id
                cursor, ids = self._finder.scan(stop.source, 0 if begins else number(row["cursor"]), self._count)
                if self._broker.run_id() != run_id:
                    return "running"  # the server has changed, and this cursor is of the old one
                batch = known.batch = _Batch(part, run_id, cursor, list(dict.fromkeys(ids)))
            found, left = self._matching(known, batch.left)
            if stop.source.kind == "list":
                batch.skipped += len(found)
            elif found and "over" in self._do(operation, row["action"], known, found):
                return "over"
            batch.left = left
            if left:
                return "running"
            known.batch, cursor, skipped = None, batch.cursor, batch.skipped
            if cursor == 0:
                over = at + 1 >= len(known.walk)
                place = "" if over else known.walk[at + 1].place
            else:
                place = stop.place
        answer = self._broker.advance_operation(operation, part, new_nonce(), place, cursor, run_id, skipped=skipped, over=over)
        if answer == "ok":
            row |= {"part": str(part + 1), "place": place, "cursor": str(cursor), "run_id": run_id}
            return "running"
        return answer

    def _matching(self, known: _Known, ids: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return the ids that match, and those that there was no time to read. At least one id is read."""
        found, until = list[str](), monotonic() + self._longest
        for start in range(0, len(ids), self._count):
            some = ids[start : start + self._count]
            rows = self._finder.rows(some, known.query.fields | {"status"})
            for at, (job_id, row) in enumerate(zip(some, rows, strict=True), start + 1):
                if row is not None and state_of(row) in known.states and known.query.matches(job_id, row, known.cutoff):
                    found.append(job_id)
                if monotonic() > until:
                    return found, list(ids[at:])
        return found, []

    def _do(self, operation: str, action: str, known: _Known, ids: list[str]) -> list[str]:
        jobs: list[str] | list[Move] = ids
        if action == "reprioritise":
            from fusion.operations.moves import moves
            from fusion.store.read.inspector import Inspector

            inspector = Inspector.of(self._broker.connection, self._settings)
            jobs = moves(inspector, self._settings.keyring, ids, int(known.args["priority"]))
        return self._broker.do_operation(operation, action, jobs, known.args, new_nonce())


def _read(row: dict[str, str]) -> _Known:
    args: Any = json.loads(row["args"])
    cutoff = from_iso(row["cutoff"].encode())
    assert cutoff is not None
    return _Known(Query.parse(row["query"]), cutoff, frozenset(row["states"].split()), args)
