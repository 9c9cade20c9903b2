"""The only writer of job state: one script per transition, one method per script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from fusion.store.client.adapter import batch
from fusion.store.layout import codec
from fusion.store.layout.names import LIST_QUEUES
from fusion.store.layout.pauses import QueuePause
from fusion.store.scripting.host import to_ms, to_seconds, to_texts
from fusion.store.write.batch_broker import BatchBroker
from fusion.store.write.event_broker import CallbackBroker
from fusion.store.write.operation_broker import OperationBroker
from fusion.store.write.outbox_broker import OutboxBroker
from fusion.store.write.worker_broker import WorkerBroker


class Broker(OperationBroker, OutboxBroker, BatchBroker, CallbackBroker, WorkerBroker):
    """Job state in one Redis.

    Every method is one round trip and safe to repeat with the same token or nonce: a resend changes nothing and gets the first reply, because
    a client's timeout does not mean that the server did nothing. Raises redis-py's errors as they come; the caller decides whether to wait,
    to retry or to report. SchemaMismatch if this process is too old for the data.
    """

    # -- queues

    def empty(self, queue: str, limit: int = 300) -> tuple[int, bool]:
        """Delete up to `limit` waiting jobs for good, or a quarter as many if they are related to others. Returns how many, and whether there
        are more."""
        return self.empty_call(queue, limit, keep=False)()[:2]

    def survey(self, wildcards: Mapping[str, str], interval: float, limit: int = 100) -> bool:
        """Register the wildcards that a worker serves (each with its Lua patterns). Scan the index of their queues that have work, `limit`
        queues at a time; True if there are more. A scan begins when the last one began `interval` seconds ago."""
        keys = {"queues": self.keys.queues, "survey": self.keys.survey, "wildcards": self.keys.wildcards}
        args = {"interval_ms": to_ms(interval), "limit": limit, "n_wildcards": len(wildcards)}
        return bool(self._script("survey")(keys, args, [*chain.from_iterable(wildcards.items())]))

    def wrong_types(self, queues: Sequence[str]) -> tuple[list[str], list[str]]:
        """Find the keys of these queues whose type Fusion can't serve. Returns a line for each, and the queues whose key is a LIST of stock
        RQ's."""
        wanted = [(q, self.keys.queue(q), b"list" if q in LIST_QUEUES else b"zset") for q in queues]
        wanted += [(q, key(q), b"zset") for key in (self.keys.fifo, self.keys.wip) for q in queues]
        types = batch(self.connection, lambda pipe: [pipe.type(key) for _, key, _ in wanted])
        wrong, lists = list[str](), list[str]()
        for (queue, key, kind), found in zip(wanted, types, strict=True):
            if found == b"list" != kind and key == self.keys.queue(queue):
                lists.append(queue)
            elif found not in (kind, b"none"):
                wrong.append(f"{key} is a {codec.text(found)}, not a {codec.text(kind)}")
        return wrong, lists

    def adopt(self, queues: Sequence[str]) -> None:
        """Leave the keys of these queues to stock RQ's producers from now on; the queues' jobs then wait in `fifo`."""
        self.check_writer()
        self.connection.sadd(self.keys.fifos, *queues)

    def set_gate(self, queue: str, values: Mapping[str, str | int | None], *, of_setting: bool = False) -> dict[str, str]:
        """Do what `gate_call` describes."""
        return self.gate_call(queue, values, of_setting=of_setting)()

    def pause(self, queue: str, seconds: float | None = None, *, by: str = "", reason: str = "") -> None:
        """Do what `pause_call` describes."""
        self.pause_call(queue, seconds, by=by, reason=reason)()

    def unpause(self, queue: str) -> QueuePause | None:
        """Do what `unpause_call` describes."""
        return self.unpause_call(queue)()

    def suspend(self, seconds: int | None = None) -> None:
        """Stop all claims by workers from the moment this returns, for `seconds` or until `resume`."""
        self.check_writer()
        self.connection.set(self.keys.suspended, 1, ex=seconds)

    def resume(self) -> bool:
        """Let workers claim again; False if they were not suspended."""
        keys, cursor, was = {"suspended": self.keys.suspended, "queues": self.keys.queues}, "0", False
        while True:
            suspended, found = self._script("resume")(keys, {"cursor": cursor, "limit": 100})
            was, cursor = was or bool(suspended), codec.text(found)
            if cursor == "0":
                return was

    def ring(self, queue: str = "", *, waiter: str = "") -> None:
        """Put back a doorbell token that reached a worker with no free slot. With a worker as `waiter`, let other workers wait for the closed
        queues that it waits for."""
        self._script("ring")({}, {"queue": queue, "waiter": waiter})

    # -- maintenance, which any process of the fleet may do

    def reap(self, lease: float, interval: float, queues: Sequence[str] = (), limit: int = 60) -> tuple[int, bool]:
        """Give back jobs whose lease has expired; returns how many, and whether there are more. Does nothing for the length of one lease
        after an outage."""
        args = {"lease_ms": to_ms(lease), "interval_ms": to_ms(interval), "limit": limit, "n_queues": len(queues)}
        recovered, again, _holding = self._script("reap")({}, args, queues)
        return int(recovered), bool(again)

    def prune(
        self, lease: float, name: str = "", limit: int = 20, *, incarnation: str = "", reason: str = ""
    ) -> list[tuple[str, int]]:
        """Remove dead workers; returns (name, jobs given back). With `name`, remove that one at once, dead or not, unless its `incarnation`
        is another. One round trip for each portion of what they held."""
        args = {
            "name": name,
            "incarnation": incarnation,
            "reason": reason,
            "lease_ms": to_ms(lease),
            "limit": limit,
            "duties": self.duties,
        }
        removed, again = dict[str, int](), 1
        while again:
            again, *flat = self._script("prune")({"workers": self.keys.workers}, args)
            for worker, jobs in zip(to_texts(flat[::2]), flat[1::2], strict=True):
                removed[worker] = removed.get(worker, 0) + int(jobs)
        return list(removed.items())

    def promote(self, limit: int = 80) -> tuple[int, float | None, float | None, float | None]:
        """Move due jobs to their queues, up to `limit`, or a quarter as many if they are related to others. Returns how many; the seconds to
        the next due one; to the next waiting job whose ttl expires; and to the next batch that needs processing (each None if there is none)."""
        moved, *next_ms = self._script("promote")({"scheduled": self.keys.scheduled}, {"limit": limit, "duties": self.duties})
        due, over, batch = map(to_seconds, next_ms)
        return int(moved), due, over, batch

    def release(self, limit: int = 25) -> tuple[int, float | None]:
        """Update jobs whose related jobs have changed, up to `limit` of them. Returns how many changed, and the seconds until there is more
        to do: 0 for now, None if nothing is left."""
        done, next_ms = self._script("release")({"releasing": self.keys.releasing}, {"limit": limit})
        return int(done), to_seconds(next_ms)

    def expire(self, limit: int = 80) -> tuple[int, float | None]:
        """End waiting jobs whose ttl has expired, at most as many as `promote` moves. Returns how many, and the seconds to the next one (None
        if there is none)."""
        ended, next_ms = self._script("expire")({"expiring": self.keys.expiring}, {"limit": limit, "duties": self.duties})
        return int(ended), to_seconds(next_ms)

    def clean(self, limit: int = 200, names: int = 50, interval: float = 0) -> bool:
        """Delete jobs whose time in a terminal set is over, or which exceed its cap, and names of queues long empty; True if there are more.
        A pass over all names begins when the last one, by any process, began `interval` seconds ago."""
        keys = {"queues": self.keys.queues, "clean": self.keys.clean, "idle": self.keys.queues_idle}
        args = {"limit": limit, "names": names, "interval_ms": to_ms(interval), "duties": self.duties}
        return bool(self._script("clean")(keys, args)[2])
