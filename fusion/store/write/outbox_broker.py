"""Batches of an outbox: rows of a database, accepted under the number that the database gave them, and never twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fusion.store.client.replication import Replication
from fusion.store.layout import codec
from fusion.store.layout.records import Marked, NewJob, OutboxBatch, Replicas, Room
from fusion.store.write.queue_calls import QueueCalls, accepted, arguments


class OutboxBroker(QueueCalls):
    """The part of the Broker for the forwarder of an outbox."""

    def enqueue_rows(
        self, queue: str, jobs: Sequence[NewJob], batch: OutboxBatch, replicas: Replicas | None = None, room: Room | None = None
    ) -> Marked:
        """Accept all of `jobs`, maybe none, and record the batch's number. Accept none if a batch of this number was accepted before, or the
        one before it was not. With the errors of `enqueue`, after which the number is not recorded."""
        replication = None if replicas is None else Replication(jobs, replicas, self.connection)
        while True:
            answer = self._enqueue_rows(queue, jobs, batch, room, replication)
            if answer[0] in (b"done", b"gap"):
                marked = _marked(codec.text(answer[0]), codec.text(answer[1]))
            else:
                accepted(answer, queue)
                marked = Marked("ok", batch.number, batch.stamp)
            if replication is None or replication.done():
                return marked

    def _enqueue_rows(
        self, queue: str, jobs: Sequence[NewJob], batch: OutboxBatch, room: Room | None, replication: Replication | None
    ) -> Any:
        name = f"!{batch.number}:{batch.before}:{batch.outbox}:{batch.stamp}"
        words = arguments(queue, jobs, "", room, name)
        send = None if replication is None else replication.send
        return self._script("enqueue")({"queues": self.keys.queues}, *words, send)

    def outbox_marks(self, outbox: str) -> dict[str, Marked]:
        """Return by queue the last batch of an outbox that was accepted."""
        found: Any = self.connection.hgetall(self.keys.outbox(outbox))
        return {codec.text(queue): _marked("done", codec.text(noted)) for queue, noted in found.items()}


def _marked(kind: str, noted: str) -> Marked:
    number, _, stamp = noted.partition(" ")
    return Marked(kind, int(number) if number.isdecimal() else 0, stamp)
