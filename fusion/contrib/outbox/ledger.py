"""The rows of an outbox and their progress: which go next, under which number, and with which outcome.

Each queue has at most one open batch. It gets its number in the database before any of it is sent, and the next number is given when it is
closed. A batch whose rows are refused one by one goes through editions: the edition that was accepted determines which rows were in it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from fusion.contrib.outbox.database import BATCHED, PARKED, SENT, TAKEN_OUT, WAITING, Database
from fusion.contrib.outbox.row import JobRow

#: Rows that one statement changes, and batch numbers that one statement reads.
_STEP, _PAGE = 500, 10_000
#: Seconds: a longer parking time means that the row is parked for good, or the clock has jumped.
_FAR = 60.0
_COLUMNS = ("id", "queue", "job_id", "body", "written_at")


@dataclass(frozen=True, slots=True)
class OpenBatch:
    """The open batch of a queue, or the last one."""

    queue: str
    number: int
    token: str
    edition: int
    is_open: bool

    @property
    def stamp(self) -> str:
        """The stamp that is stored with its number."""
        return f"{self.token}.{self.edition}"


class _Moved(Exception):
    """Another forwarder was first, or there is nothing to do: the transaction is rolled back."""


class Ledger:
    """An outbox in a database. Every change first compares the known state with the stored one. If two forwarders make the same change, the
    second one gets False or None."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def reset(self) -> None:
        """Recover after an error of the database."""
        self._db.reset()

    # -- who forwards

    def identity(self) -> str:
        """Return the outbox's own name; the first reader makes it. A database that was created anew is another outbox."""
        found = self._db.select("forwarders", {"id": 1}, ("outbox",))
        if not found:
            with self._unless_there():
                self._db.insert("forwarders", [{"id": 1, "outbox": secrets.token_hex(8), "holder": "", "held_until": 0.0}])
            found = self._db.select("forwarders", {"id": 1}, ("outbox",))
        return str(found[0][0])

    def lead(self, holder: str, now: float, seconds: float) -> bool:
        """Become the forwarder for `seconds`, or stay it; False while another is."""
        until = {"holder": holder, "held_until": now + seconds}
        with self._db.transaction():
            return bool(
                self._db.update("forwarders", {"id": 1, "holder": holder}, until)
                or self._db.update("forwarders", {"id": 1, "held_until__lt": now}, until)
            )

    def held(self) -> tuple[str, float] | None:
        """Return the present forwarder, and until when it is that by its own clock; None if there never was one, or the tables were emptied."""
        found = self._db.select("forwarders", {"id": 1}, ("holder", "held_until"))
        return (str(found[0][0]), float(found[0][1])) if found else None

    def succeed(self, silent: tuple[str, float], holder: str, until: float) -> bool:
        """Take over from a forwarder that has not renewed the values of `held`, whatever the clocks show."""
        where = {"id": 1, "holder": silent[0], "held_until": silent[1]}
        with self._db.transaction():
            return bool(self._db.update("forwarders", where, {"holder": holder, "held_until": until}))

    def is_outage(self, error: Exception) -> bool:
        """Return True if the error means that the database can't be reached, or refuses for now."""
        return self._db.is_outage(error)

    def leave(self, holder: str) -> None:
        """Let another forward at once."""
        with self._db.transaction():
            self._db.update("forwarders", {"id": 1, "holder": holder}, {"holder": "", "held_until": 0.0})

    # -- what is to be sent

    def work(self) -> list[str]:
        """Return the queues that have an open batch, or rows that wait for one."""
        found = {queue for (queue,) in self._db.select("queues", {"is_open": True}, ("queue",))}
        where: dict[str, Any] = {"state": WAITING}
        while True:  # one index lookup for each
            rows = self._db.select("rows", where, ("queue",), order=("queue", "id"), limit=1)
            if not rows:
                return sorted(found)
            found.add(rows[0][0])
            where["queue__gt"] = rows[0][0]

    def batch(self, queue: str) -> OpenBatch:
        """Return the open or last batch of a queue."""
        found = self._db.select("queues", {"queue": queue}, ("number", "token", "edition", "is_open"))
        if not found:
            with self._unless_there():
                self._db.insert("queues", [{"queue": queue, "number": 0, "token": "", "edition": 0, "is_open": False}])
            return OpenBatch(queue, 0, "", 0, False)
        number, token, edition, is_open = found[0]
        return OpenBatch(queue, number, token, edition, bool(is_open))

    def open(self, last: OpenBatch, most: int) -> tuple[OpenBatch, list[JobRow]] | None:
        """Give at most `most` committed rows the number after the last one."""
        batch = OpenBatch(last.queue, last.number + 1, secrets.token_hex(8), 1, True)
        try:
            with self._db.transaction():
                self._move(last, batch)  # first, to start as a writer: SQLite can't turn a reader into one
                where = {"state": WAITING, "queue": last.queue}
                rows = [JobRow(*found) for found in self._db.select("rows", where, _COLUMNS, limit=most)]
                if not rows:
                    raise _Moved
                values = {"state": BATCHED, "batch": batch.number, "edition": 0}
                if self._db.update("rows", {"id__in": [row.id for row in rows], "state": WAITING}, values) < len(rows):
                    raise _Moved
        except _Moved:
            return None
        return batch, rows

    def rows(self, batch: OpenBatch) -> list[JobRow]:
        """Return the rows of an open batch that are still to be sent, in order."""
        where = {"state": BATCHED, "queue": batch.queue, "batch": batch.number}
        return [JobRow(*found) for found in self._db.select("rows", where, _COLUMNS)]

    # -- the outcome of rows

    def take_out(self, batch: OpenBatch, ids: Sequence[int], reason: str = "", again_at: float | None = None) -> OpenBatch | None:
        """Have an open batch go on without these rows: with a `reason` they are parked when it is closed, until `again_at` if that is given;
        without one they wait for the next. `again_at`: Unix seconds."""
        after = replace(batch, edition=batch.edition + 1)
        try:
            with self._db.transaction():
                self._move(batch, after)
                values = {"state": TAKEN_OUT, "edition": batch.edition, "reason": reason[:1000], "again_at": again_at}
                self._db.update("rows", {"id__in": list(ids), "state": BATCHED, "batch": batch.number}, values)
        except _Moved:
            return None
        return after

    def close(self, batch: OpenBatch, edition: int, now: float, *, keep: bool) -> bool:
        """Close a batch that was accepted in this edition. `keep`: keep its rows, to be sent again if Redis loses them."""
        of_batch = {"queue": batch.queue, "batch": batch.number}
        try:
            with self._db.transaction():
                self._move(batch, replace(batch, is_open=False))
                accepted = ({**of_batch, "state": BATCHED}, {**of_batch, "state": TAKEN_OUT, "edition__gte": edition})
                for where in accepted:
                    if keep:
                        self._db.update("rows", where, {"state": SENT, "sent_at": now, "reason": ""})
                    else:
                        self._db.delete("rows", where)
                left = {**of_batch, "state": TAKEN_OUT}
                self._db.update("rows", {**left, "reason": ""}, {"state": WAITING, "batch": None})
                self._db.update("rows", left, {"state": PARKED, "batch": None})
        except _Moved:
            return False
        return True

    def renumber(self, batch: OpenBatch, number: int) -> OpenBatch | None:
        """Give an open batch another number: Redis has later ones than the database."""
        after = OpenBatch(batch.queue, number, secrets.token_hex(8), 1, True)
        of_batch = {"queue": batch.queue, "batch": batch.number}
        try:
            with self._db.transaction():
                self._move(batch, after)
                self._db.update("rows", {**of_batch, "state": BATCHED}, {"batch": number})
                self._db.update("rows", {**of_batch, "state": TAKEN_OUT}, {"batch": number, "edition": 0})
        except _Moved:
            return None
        return after

    def _move(self, known: OpenBatch, after: OpenBatch) -> None:
        values = {"number": after.number, "token": after.token, "edition": after.edition, "is_open": after.is_open}
        where = {
            "queue": known.queue,
            "number": known.number,
            "token": known.token,
            "edition": known.edition,
            "is_open": known.is_open,
        }
        if not self._db.update("queues", where, values):
            raise _Moved

    @contextmanager
    def _unless_there(self) -> Iterator[None]:
        try:
            with self._db.transaction():
                yield
        except Exception as error:
            if not self._db.is_conflict(error):
                raise

    # -- what was sent, and what is parked

    def sent(self, queue: str, after: int) -> dict[int, tuple[int, int]]:
        """Return the accepted batches after this number whose rows are kept: number -> the ids of its first and last row."""
        where = {"state": SENT, "queue": queue, "batch__gt": after}
        found: dict[int, tuple[int, int]] = {}
        last = 0
        while rows := self._db.select("rows", {**where, "id__gt": last}, ("id", "batch"), limit=_PAGE):
            for last, number in rows:
                found[number] = (found.get(number, (last,))[0], last)
        return dict(sorted(found.items()))

    def rows_sent(self, queue: str, number: int, ids: tuple[int, int]) -> list[JobRow]:
        """Return the kept rows of a batch that `sent` returned."""
        where = {"state": SENT, "queue": queue, "batch": number, "id__gte": ids[0], "id__lte": ids[1]}
        return [JobRow(*found) for found in self._db.select("rows", where, _COLUMNS)]

    def last_numbers(self) -> dict[str, int]:
        """Return by queue the number of the last closed batch whose rows are kept."""
        found = self._db.select("queues", {"number__gt": 0}, ("queue", "number", "is_open"))
        return {queue: number - bool(is_open) for queue, number, is_open in found}

    def forget(self, before: float, most: int = 1000) -> int:
        """Delete at most `most` rows that were accepted before that time."""
        ids = [found[0] for found in self._db.select("rows", {"state": SENT, "sent_at__lt": before}, ("id",), limit=most)]
        if ids:
            with self._db.transaction():
                self._db.delete("rows", {"id__in": ids, "state": SENT})
        return len(ids)

    def try_again(self, now: float, most: int = 1000) -> int:
        """Let rows that were parked for a time wait again, once that is over; also if only a clock that jumped has set its end."""
        over = ({"again_at__lt": now}, {"again_at__gt": now + _FAR})
        ids = [row[0] for when in over for row in self._db.select("rows", {"state": PARKED, **when}, ("id",), limit=most)]
        return self.retry(ids) if ids else 0

    def retry(self, ids: Sequence[int]) -> int:
        """Let parked rows wait again; returns how many were parked."""
        values = {"state": WAITING, "reason": "", "again_at": None}
        return self._each(ids, lambda some: self._db.update("rows", {"id__in": some, "state": PARKED}, values))

    def drop(self, ids: Sequence[int]) -> int:
        """Delete parked rows; returns how many were parked."""
        return self._each(ids, lambda some: self._db.delete("rows", {"id__in": some, "state": PARKED}))

    def _each(self, ids: Sequence[int], change: Callable[[list[int]], int]) -> int:
        """Change rows in steps: databases limit the values of a statement, and the number of locks."""
        done = 0
        for first in range(0, len(ids), _STEP):
            with self._db.transaction():
                done += change(list(ids[first : first + _STEP]))
        return done

    def parked(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the parked rows, the oldest first: `id`, `queue`, `job_id`, `written_at`, `reason`, `again_at`."""
        columns = ("id", "queue", "job_id", "written_at", "reason", "again_at")
        found = self._db.select("rows", {"state": PARKED}, columns, limit=limit)
        return [dict(zip(columns, row, strict=True)) for row in found]

    def counts(self) -> dict[str, Any]:
        """Return how many rows wait, are being sent, are parked, and are kept; and since when the oldest waits (Unix seconds, None if none
        does)."""
        names = {"waiting": WAITING, "on_the_way": BATCHED, "parked": PARKED, "kept": SENT}
        found: dict[str, Any] = {name: self._db.count("rows", {"state": state}) for name, state in names.items()}
        found["on_the_way"] += self._db.count("rows", {"state": TAKEN_OUT})
        oldest = self._db.select("rows", {"state__in": [WAITING, BATCHED]}, ("written_at",), limit=1)
        holder = self._db.select("forwarders", {"id": 1}, ("holder", "held_until"))
        name, until = holder[0] if holder else ("", 0.0)
        return found | {"oldest": oldest[0][0] if oldest else None, "forwarder": name, "held_until": until}
