"""The only writer of job state: one script per transition, one method per script."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from fusion.kernel import defaults
from fusion.store.client.adapter import batch
from fusion.store.layout import codec
from fusion.store.layout.names import LIST_QUEUES
from fusion.store.layout.pauses import Pause
from fusion.store.layout.records import Claimed, LogLine, NewJob, Replicas, Room, Turn, TurnRequest
from fusion.store.scripting.host import ScriptCall, run, to_ms, to_texts
from fusion.store.scripting.script_line import ScriptLine
from fusion.store.write import turn_codec
from fusion.store.write.batch_broker import BatchBroker
from fusion.store.write.callback_broker import CallbackBroker
from fusion.store.write.history_broker import HistoryBroker
from fusion.store.write.operation_broker import OperationBroker
from fusion.store.write.outbox_broker import OutboxBroker
from fusion.store.write.report_broker import ReportBroker

#: Leases that one call renews.
_LEASES = 500
#: A prepared turn.
TurnCall = ScriptCall[Turn]


class Broker(OutboxBroker, BatchBroker, CallbackBroker, HistoryBroker, ReportBroker, OperationBroker):
    """Job state in one Redis.

    Every method is one round trip and safe to repeat with the same token or nonce: a resend changes nothing and gets the first reply, because
    a client's timeout does not mean that the server did nothing. Raises redis-py's errors as they come; the caller decides whether to wait,
    to retry or to report. SchemaMismatch if this process is too old for the data.
    """

    # -- jobs

    def enqueue(
        self,
        queue: str,
        jobs: Sequence[NewJob],
        nonce: str = "",
        replicas: Replicas | None = None,
        room: Room | None = None,
    ) -> str:
        """Do what `enqueue_steps` describes."""
        return run(self.enqueue_steps(queue, jobs, nonce, replicas, room))

    def enqueue_part(self, queue: str, jobs: Sequence[NewJob], token: str, nth: int, room: Room | None = None) -> str:
        """Do what `part_call` describes."""
        return self.part_call(queue, jobs, token, nth, room)()

    def add_parents(self, job_id: str, token: str, nth: int, parents: Sequence[str]) -> None:
        """Do what `parents_call` describes."""
        self.parents_call(job_id, token, nth, parents)()

    def release_graph(self, token: str, queue: str, first: NewJob, replicas: Replicas | None = None) -> None:
        """Do what `release_steps` describes."""
        run(self.release_steps(token, queue, first, replicas))

    def drop_graph(self, token: str) -> None:
        """Do what `drop_call` describes."""
        self.drop_call(token)()

    def cancel(self, job_id: str) -> str:
        """Do what `cancel_call` describes."""
        return self.cancel_call(job_id)()

    def stop(self, job_id: str) -> str:
        """Do what `stop_call` describes."""
        return self.stop_call(job_id)()

    def reschedule(self, job_id: str, due: float) -> str:
        """Change the time that a scheduled job waits for, in Unix seconds. Returns `ok`, `missing`, or the status it has instead."""
        return codec.text(self._script("reschedule")({"job": self.keys.job(job_id)}, {"id": job_id, "due_ms": round(due * 1000)}))

    def requeue(
        self, job_ids: Sequence[str], nonce: str, *, keep_place: bool = False, quarantined: bool = True, delay: float = 0
    ) -> list[str]:
        """Requeue ended jobs. Returns an answer per id: `ok`, `missing`, `corrupt`, `quarantined` (unless `quarantined` allows those),
        `error: ...` (a broken key), `duplicate <id>` (that job has its unique key), or the status that can't be requeued. With a `delay` in
        seconds they are scheduled, and queued when it is over by the server's clock."""
        args = {
            "nonce": nonce,
            "keep_place": int(keep_place),
            "quarantined": int(quarantined),
            "retry_count": defaults.RETRY_COUNT_START,
            "delay_ms": to_ms(delay),
            "operation": "",
        }
        return self._to_each("requeue", {"queues": self.keys.queues}, args, job_ids)

    def quarantine(self, job_ids: Sequence[str], reason: str) -> list[str]:
        """Quarantine failed jobs. Returns an answer per id: `ok`, `missing`, `error: ...` (a broken key), or the status that is not failed."""
        return self._to_each("quarantine", {}, {"reason": reason, "operation": ""}, job_ids)

    def delete(self, job_ids: Sequence[str]) -> list[str]:
        """Delete jobs for good. Returns an answer per id: `deleted`, `missing`, `started` (a running job is not deleted), or a status that
        only a newer version knows."""
        return self._to_each("delete", {}, {"keep": "", "operation": ""}, job_ids)

    def note_copy(self, job_id: str, copy: str) -> str:
        """Record in a job the id of its copy. Returns `ok`, `missing`, or `foreign`."""
        return codec.text(self._script("note_copy")({"job": self.keys.job(job_id)}, {"copy": copy}))

    def save_meta(self, job_id: str, meta: bytes | str, execution_id: str = "") -> str:
        """Replace a job's meta. Returns `ok`, `missing`, or `stale` if an execution is named that does not hold the job."""
        return codec.text(self._script("save_meta")({"job": self.keys.job(job_id)}, {"execution": execution_id, "meta": meta}))

    def log_event(self, lines: Sequence[LogLine], nonce: str) -> int:
        """Add lines to the event stream; returns how many were new."""
        rest = chain.from_iterable(
            (line.event, line.job_id, line.queue, line.log_tag, line.worker, to_ms(line.age), line.dropped, line.message)
            for line in lines
        )
        return int(self._script("log_event")({"said": self.keys.said(nonce)}, {"n_lines": len(lines)}, [*rest]))

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

    def unpause(self, queue: str) -> Pause | None:
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

    # -- workers

    def register(self, name: str, incarnation: str, lease: float, worker_ttl: float, fields: dict[str, Any]) -> bool:
        """Register a worker. False if a live other, or a dead one that still holds jobs, has the name."""
        pairs = codec.to_pairs(fields)
        args = {
            "name": name,
            "incarnation": incarnation,
            "lease_ms": to_ms(lease),
            "worker_ttl": int(worker_ttl),
            "secret": secrets.token_hex(32),
            "n_pairs": len(pairs),
        }
        return bool(self._script("register")(self._worker(name), args, pairs) == b"ok")

    def deregister(self, name: str, incarnation: str) -> int:
        """Unregister a worker; returns how many jobs it still held and gave back. One round trip for each portion of them."""
        back, again = 0, 1
        while again:
            more, again = self._script("deregister")(self._worker(name), {"name": name, "incarnation": incarnation})
            back += int(more)
        return back

    def _worker(self, name: str) -> dict[str, str]:
        return {"worker": self.keys.worker(name), "workers": self.keys.workers}

    def turn_line(self) -> ScriptLine[Turn]:
        """Make a line on which turns are sent now and their replies read later."""
        return ScriptLine(self.connection)

    def turn(self, request: TurnRequest) -> Turn:
        """Make a turn at once, as `turn_call` describes it."""
        return self.turn_call(request)()

    def turn_call(self, request: TurnRequest) -> TurnCall:
        """Commit outcomes, then claim a job for each free slot. After a lost reply, call again with the same `token`; use a new one only
        after a reply."""
        args, rest = turn_codec.arguments(request)
        keys = {"worker": self.keys.worker(request.name), "suspended": self.keys.suspended}
        self._script("turn")  # it asks the server for its version, if that is not known: before anything is sent
        return ScriptCall(self, "turn", keys, args, rest, turn_codec.turn)

    def follow(
        self, name: str, incarnation: str, token: int, lease: float, leader: Claimed, most: int
    ) -> tuple[list[Claimed], bool]:
        """Claim up to `most` jobs that are next in the leader's queue, as long as they may share its call. Returns them, and whether the job
        that comes next may share it, too. A call with the same `token` is a resend."""
        fields = leader.fields
        args = {
            "name": name,
            "incarnation": incarnation,
            "token": token,
            "lease_ms": to_ms(lease),
            "queue": leader.queue,
            "class": fields.get(b"priority", b"1"),
            "execution": leader.execution_id,
            "n": most,
            "n_lacking": 0,
            "id": leader.id,
            "func": fields[b"func"],
            "gather": fields[b"gather"],
            "serializer": fields.get(b"serializer", b""),
        }
        _, jobs, more = self._script("follow")({"worker": self.keys.worker(name), "suspended": self.keys.suspended}, args)
        return [turn_codec.claimed(*row) for row in jobs], bool(more)

    def hold_probation(self, host: str, incarnation: str, ttl: float, sets: Sequence[str], *, keep: bool = False) -> bool:
        """Request the right to run the jobs on probation of this worker's host for `ttl` seconds; True if this worker has it. It is granted
        if such a job waits in these sets, and kept if the worker says `keep`."""
        args = {"incarnation": incarnation, "ttl_ms": to_ms(ttl), "keep": int(keep), "n_sets": len(sets)}
        return bool(self._script("hold_probation")({"probation": self.keys.probation(host)}, args, sets))

    def extend(
        self, name: str, incarnation: str, held: Sequence[tuple[str, str]], lease: float, worker_ttl: float, state: str
    ) -> tuple[bool, list[str]]:
        """Renew the leases of (job id, execution id) pairs and this worker's registration.

        Returns whether the worker is still registered, and for each job `ok`, `canceled` or `stopped` (it was requested) or `lost`.
        """
        args = {
            "incarnation": incarnation,
            "lease_ms": to_ms(lease),
            "worker_ttl": int(worker_ttl),
            "state": state,
        }
        registered, answers = "", list[str]()
        for first in range(0, max(1, len(held)), _LEASES):
            part = held[first : first + _LEASES]
            rest = [*chain.from_iterable(part)]
            told = self._script("extend")({"worker": self.keys.worker(name)}, {**args, "n_jobs": len(part)}, rest)
            registered, *more = to_texts(told)
            answers += more
        return registered == "ok", answers

    def command(self, worker: str, payload: str) -> int:
        """Send a command to a worker; returns the number of workers that received it."""
        return int(self.connection.publish(self.keys.pubsub(worker), payload))

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
        args = {"name": name, "incarnation": incarnation, "reason": reason, "lease_ms": to_ms(lease), "limit": limit}
        removed, again = dict[str, int](), 1
        while again:
            again, *flat = self._script("prune")({"workers": self.keys.workers}, args)
            for worker, jobs in zip(to_texts(flat[::2]), flat[1::2], strict=True):
                removed[worker] = removed.get(worker, 0) + int(jobs)
        return list(removed.items())

    def promote(self, limit: int = 80) -> tuple[int, float | None, float | None, float | None]:
        """Move due jobs to their queues, up to `limit`, or a quarter as many if they are related to others. Returns how many; the seconds to
        the next due one; to the next waiting job whose ttl expires; and to the next batch that needs processing (each None if there is none)."""
        moved, *next_ms = self._script("promote")({"scheduled": self.keys.scheduled}, {"limit": limit})
        due, over, batch = map(_seconds, next_ms)
        return int(moved), due, over, batch

    def release(self, limit: int = 25) -> tuple[int, float | None]:
        """Update jobs whose related jobs have changed, up to `limit` of them. Returns how many changed, and the seconds until there is more
        to do: 0 for now, None if nothing is left."""
        done, next_ms = self._script("release")({"releasing": self.keys.releasing}, {"limit": limit})
        return int(done), _seconds(next_ms)

    def expire(self, limit: int = 80) -> tuple[int, float | None]:
        """End waiting jobs whose ttl has expired, at most as many as `promote` moves. Returns how many, and the seconds to the next one (None
        if there is none)."""
        ended, next_ms = self._script("expire")({"expiring": self.keys.expiring}, {"limit": limit})
        return int(ended), _seconds(next_ms)

    def clean(self, limit: int = 200, names: int = 50, interval: float = 0) -> bool:
        """Delete jobs whose time in a terminal set is over, or which exceed its cap, and names of queues long empty; True if there are more.
        A pass over all names begins when the last one, by any process, began `interval` seconds ago."""
        keys = {"queues": self.keys.queues, "clean": self.keys.clean, "idle": self.keys.queues_idle}
        return bool(self._script("clean")(keys, {"limit": limit, "names": names, "interval_ms": to_ms(interval)})[2])


def _seconds(ms: int) -> float | None:
    """Return milliseconds as seconds; None for -1, which means that there is none."""
    return None if ms < 0 else ms / 1000
