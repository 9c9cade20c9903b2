"""Turns rows into jobs: every committed row becomes one job, in the order of its batch's number and its id, even if processes are killed.

- a batch gets its number in the database before it is sent; Redis stores the number with the jobs and accepts it once, for ever;
- after a crash the next forwarder sends the same batch under the same number, and Redis replies that it was accepted;
- rows that are refused are parked with the reason, and the others are sent again under the same number: of all editions sent under one number
  Redis accepts one, and reports which.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from redis.exceptions import RedisError, ResponseError

from fusion.contrib.outbox.ledger import Ledger, OpenBatch
from fusion.contrib.outbox.row import JobRow, Terms, job_of, read
from fusion.enqueue.sending import weight
from fusion.exceptions import (
    BatchClosed,
    DependencyCycle,
    DuplicateJob,
    FusionError,
    NoSuchBatchError,
    NotReplicated,
    QueueFull,
    UnknownDependency,
)
from fusion.kernel import defaults
from fusion.kernel.failpoints import failpoint
from fusion.store.client.connections import classify, one_line
from fusion.store.layout.records import Marked, NewJob, OutboxBatch
from fusion.store.write.broker import Broker

log = logging.getLogger("fusion.outbox")

#: Seconds after which rows that a full queue refused are tried again; after which rows that wait for another job are; for which late replicas
#: are no longer waited for.
_AGAIN, _SOON, _LATE = 15.0, 2.0, 15.0
#: Seconds for which a job that waits for another is tried again: that other may be a row of another queue.
_PATIENT = 600.0
#: Most jobs with dependencies in one call.
_KIN = 25
#: Errors that mean that no call can be made of a row.
_UNFIT = (TypeError, ValueError, ArithmeticError)
_Ready = list[tuple[JobRow, NewJob, Terms]]


class Forwarder:
    """Sends the rows of an outbox to Redis. Raises redis-py's errors and those of the database as they come: the same call again continues
    where it stopped."""

    def __init__(self, ledger: Ledger, broker: Broker, *, keep: float, most: int = defaults.ENQUEUE_CHUNK) -> None:
        """`keep`: seconds for which accepted rows are kept, to be sent again if Redis loses them. `most`: rows of a batch."""
        self._ledger, self._broker, self._keep, self._most = ledger, broker, keep, most
        self._unconfirmed_until = 0.0
        #: Number of rows accepted, and of rows parked, since the start.
        self.forwarded = self.parked = 0

    def forward(self) -> bool:
        """Send a batch of each queue that has one. True if there may be more."""
        more = False
        for queue in self._ledger.work():
            more = self._forward(queue) or more
        return more

    def tidy(self) -> None:
        """Do periodic work: compare with what Redis has, send again what it has lost, delete rows accepted long ago, and retry rows that were
        parked for a time."""
        self._ledger.try_again(time.time())
        marks = self._broker.outbox_marks(self._ledger.identity())
        for queue, number in self._ledger.last_numbers().items():
            known = marks[queue].number if queue in marks else 0
            if known < number:
                self._send_again(queue, known, number)
        while self._ledger.forget(time.time() - self._keep):
            pass

    # -- a batch

    def _forward(self, queue: str) -> bool:
        batch = self._ledger.batch(queue)
        if batch.is_open:
            rows = self._ledger.rows(batch)
        else:
            opened = self._ledger.open(batch, self._most)
            if opened is None:
                return False
            failpoint("outbox.opened")
            batch, rows = opened
        return self._send(batch, rows)

    def _send(self, batch: OpenBatch, rows: Sequence[JobRow]) -> bool:
        """Send an open batch until it is accepted, and close it. False if another forwarder did, or the batch must wait."""
        current: OpenBatch | None = batch
        before = batch.number - 1
        while current is not None:
            batch = current
            unreadable, ready = self._read(rows)
            if unreadable:
                current = self._without(batch, unreadable)
                rows = [row for row in rows if row.id not in unreadable]
                continue
            fits, terms = _alike(ready)
            if len(fits) < len(rows):
                current = self._ledger.take_out(batch, [row.id for row in rows[len(fits) :]])
                rows = rows[: len(fits)]
                continue
            try:
                marked = self._enqueue(batch, before, [job for _, job, _ in fits], terms)
            except (FusionError, RedisError, *_UNFIT) as error:
                current, rows = self._refused(batch, fits, error)
                continue
            if marked.kind == "gap" and marked.number < batch.number:
                before = self._send_again(batch.queue, marked.number, batch.number - 1)
            elif marked.number == batch.number and marked.stamp.startswith(f"{batch.token}."):
                return self._close(batch, len(rows), int(marked.stamp.rpartition(".")[2]))
            else:
                current = self._renumbered(batch, marked)
                before = marked.number
        return False

    def _enqueue(self, batch: OpenBatch, before: int, jobs: list[NewJob], terms: Terms) -> Marked:
        # read each time: tables that were emptied are another outbox
        named = OutboxBatch(self._ledger.identity(), batch.number, before, batch.stamp)
        replicas, room = terms
        if time.monotonic() < self._unconfirmed_until:
            replicas = None  # other batches would wait for them, too
        try:
            marked = self._broker.enqueue_rows(batch.queue, jobs, named, replicas, room)
        except NotReplicated as error:
            # The primary has accepted them, and no caller needs to know: if it is lost, they are sent again like other rows.
            self._unconfirmed_until = time.monotonic() + _LATE
            log.warning("queue %s, batch %d counts as forwarded: %s", batch.queue, batch.number, error)
            marked = self._broker.enqueue_rows(batch.queue, jobs, named)
        failpoint("outbox.accepted")
        return marked

    def _close(self, batch: OpenBatch, count: int, edition: int) -> bool:
        closed = self._ledger.close(batch, edition, time.time(), keep=self._keep > 0)
        failpoint("outbox.closed")
        self.forwarded += count if closed else 0
        return closed

    @staticmethod
    def _read(rows: Sequence[JobRow]) -> tuple[dict[int, str], _Ready]:
        """Return the rows that can't be read, with the reason; and the others as jobs."""
        now, unreadable, ready = time.time(), dict[int, str](), _Ready()
        for row in rows:
            try:
                ready.append((row, *read(row, now)))
            except Exception as error:  # the row may hold anything
                unreadable[row.id] = f"the row can't be read: {type(error).__name__}: {error}"
        return unreadable, ready

    # -- what is refused

    def _refused(self, batch: OpenBatch, ready: _Ready, error: Exception) -> tuple[OpenBatch | None, list[JobRow]]:
        """Park the rows that caused the error. Raises an error that no row caused: Redis is away, or set up wrongly."""
        again = None
        if isinstance(error, QueueFull):
            fit = max(0, error.limit - error.length)
            now = [row.id for row, job, _ in ready if job.due is None or job.due <= time.time()]
            culprits, again = set(now[fit:]), time.time() + _AGAIN
        elif isinstance(error, (DuplicateJob, UnknownDependency, DependencyCycle)):
            rows = [row for row, job, _ in ready if job.id == error.job_id]
            culprits = {row.id for row in rows[-1:]}  # of two in one batch the first is no duplicate
            if isinstance(error, UnknownDependency) and rows and time.time() - rows[-1].written_at < _PATIENT:
                again = time.time() + _SOON
        elif isinstance(error, (BatchClosed, NoSuchBatchError)):
            culprits = {row.id for row, job, _ in ready if job.fields.get("batch") and str(job.fields["batch"]) in str(error)}
        elif classify(error) == "bug" if isinstance(error, RedisError) else isinstance(error, _UNFIT):
            culprits = {row.id for row, _, _ in ready[len(ready) // 2 :]}
            if len(ready) > 1:  # sending them one by one shows which it is
                rows = [row for row, _, _ in ready if row.id not in culprits]
                return self._ledger.take_out(batch, sorted(culprits)), rows
        else:
            raise error
        if not culprits:
            raise error
        reason = one_line(error) if isinstance(error, RedisError) else str(error)
        after = self._without(batch, dict.fromkeys(culprits, f"{type(error).__name__}: {reason}"), again)
        return after, [row for row, _, _ in ready if row.id not in culprits]

    def _without(self, batch: OpenBatch, reasons: dict[int, str], again: float | None = None) -> OpenBatch | None:
        current: OpenBatch | None = batch
        by_reason: dict[str, list[int]] = {}
        for row_id, reason in reasons.items():
            by_reason.setdefault(reason, []).append(row_id)
        for reason, ids in by_reason.items():
            if current is not None:
                current = self._ledger.take_out(current, sorted(ids), reason, again)
        if current is not None:
            self.parked += len(reasons)
            for reason, ids in by_reason.items():
                named = ", ".join(map(str, sorted(ids)[:5])) + (" ..." if len(ids) > 5 else "")
                log.warning("queue %s: parked %d rows (%s): %s", batch.queue, len(ids), named, reason)
        failpoint("outbox.parked")
        return current

    # -- a Redis, or a database, that went back

    def _send_again(self, queue: str, known: int, last: int) -> int:
        """Send batches that Redis has lost again, if their rows are kept. Returns the last number that Redis then has."""
        kept = [(number, ids) for number, ids in self._ledger.sent(queue, known).items() if number <= last]
        log.error(
            "queue %s: Redis has lost what it had accepted: it knows batch %d, and %d was accepted. %d batches are sent again, whose jobs may run "
            "twice; %d are no longer kept in the database",
            queue, known, last, len(kept), last - known - len(kept),
        )  # fmt: skip
        outbox = self._ledger.identity()
        for number, ids in kept:
            rows, now = self._ledger.rows_sent(queue, number, ids), time.time()
            marked = self._again(queue, OutboxBatch(outbox, number, known, "0.1"), [job_of(row, now) for row in rows])
            failpoint("outbox.again")
            known = marked.number
        if known < last:  # no rows of these are left
            known = self._broker.enqueue_rows(queue, [], OutboxBatch(outbox, last, known, "0.1")).number
        return known

    def _again(self, queue: str, batch: OutboxBatch, jobs: list[NewJob]) -> Marked:
        """Send jobs again that Redis had accepted before. Those that it refuses now belong to another by now."""
        while True:
            try:
                return self._broker.enqueue_rows(queue, jobs, batch)
            except (DuplicateJob, UnknownDependency, DependencyCycle) as error:
                log.warning("queue %s, sent again: %s", queue, error)
                jobs = [job for job in jobs if job.id != error.job_id]
            except (BatchClosed, NoSuchBatchError, QueueFull) as error:
                log.warning("queue %s, not sent again: %s", queue, error)
                jobs = []
            except ResponseError as error:
                if classify(error) != "bug" or not jobs:
                    raise
                log.error("queue %s, not sent again: %s", queue, one_line(error))
                jobs = []

    def _renumbered(self, batch: OpenBatch, marked: Marked) -> OpenBatch | None:
        """Handle a number that Redis has with another content, or a later number. Usually another forwarder was faster. Else the database was
        restored, from a backup perhaps, and the batch gets a new number."""
        if self._ledger.batch(batch.queue) != batch:
            return None
        log.error(
            "queue %s: the database has gone back, to a backup perhaps: Redis has accepted batch %d, the database is at %d. What is there now "
            "is sent as new; jobs that were accepted before may run twice",
            batch.queue, marked.number, batch.number,
        )  # fmt: skip
        return self._ledger.renumber(batch, marked.number + 1)


def _alike(ready: _Ready) -> tuple[_Ready, Terms]:
    """Return as many rows from the first one as fit into one call: on the same terms, and not too many."""
    if not ready:
        return [], (None, None)
    terms, size, load = ready[0][2], 0, 0
    for nth, (row, job, of_row) in enumerate(ready):
        size += len(row.body)
        load += weight(job)
        too_much = (
            size > defaults.ENQUEUE_CHUNK_BYTES or load > defaults.ENQUEUE_CHUNK or (nth >= _KIN and "parents" in job.fields)
        )
        if nth and (too_much or of_row != terms):
            return ready[:nth], terms
    return ready, terms
