"""The only writer of job state: one script per transition, one method per script."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from fusion.kernel import defaults
from fusion.store.client.replication import Replication
from fusion.store.layout import codec
from fusion.store.layout.keys import CALLBACKS, LIST_QUEUES, is_reserved
from fusion.store.layout.records import Claimed, Commit, LogLine, NewJob, Replicas, Turn, Wishes
from fusion.store.scripting import pipelined
from fusion.store.scripting.host import ScriptHost, to_ms, to_texts
from fusion.store.write import enqueue_codec

_NO_WISHES = Wishes()


class Broker(ScriptHost):
    """Job state in one Redis.

    Every method is one round trip and safe to repeat with the same token or nonce: a resend changes nothing and answers as the first
    time, because a client's timeout does not mean that the server did nothing. Raises redis-py's errors as they come; the callers know
    whether to wait, to retry or to tell a person.
    """

    # -- producers

    def enqueue(self, queue: str, jobs: Sequence[NewJob], nonce: str = "", replicas: Replicas | None = None) -> str:
        """Accept all of `jobs` or none; returns the server's time of enqueueing. Raises DuplicateJob if a live job has one of the ids.
        `nonce`, if given, stands for the jobs' own. With `replicas`, NotReplicated if too few have them in time."""
        script, keys = self._script("enqueue"), {"queues": self.keys.queues}
        args, rest = enqueue_codec.arguments(queue, jobs, nonce)
        if replicas is None:
            return enqueue_codec.accepted(script(keys, args, rest))
        replication = Replication(jobs, replicas, self.connection)
        while True:
            at = enqueue_codec.accepted(script(keys, args, rest, replication.send))
            if replication.done():
                return at

    def ready_enqueue(self, queue: str, jobs: Sequence[NewJob], replicas: Replicas | None = None) -> pipelined.PipelinedCall[str]:
        """`enqueue` in steps, of which encoding them is done."""
        if replicas is not None:
            return pipelined.PipelinedCall(lambda _: self.enqueue(queue, jobs, replicas=replicas), str)
        args, rest = enqueue_codec.arguments(queue, jobs, "")
        script, keys = self._script("enqueue"), {"queues": self.keys.queues}
        return pipelined.ready(script, self.connection, keys, args, rest, enqueue_codec.accepted)

    waits = staticmethod(enqueue_codec.waits)

    def cancel(self, job_id: str) -> str:
        """`canceled`, `pending` (it is running), `missing`, the terminal status it already has, or one that only a newer version knows."""
        return codec.text(self._script("cancel")({"job": self.keys.job(job_id)}, {"id": job_id}))

    def reschedule(self, job_id: str, due: float) -> str:
        """Have a scheduled job wait for another time, in Unix seconds: `ok`, `missing`, or the status it has instead."""
        return codec.text(self._script("reschedule")({"job": self.keys.job(job_id)}, {"id": job_id, "due_ms": round(due * 1000)}))

    def requeue(
        self, job_ids: Sequence[str], nonce: str, *, keep_place: bool = False, quarantined: bool = True, delay: float = 0
    ) -> list[str]:
        """An answer per id: `ok`, `missing`, `corrupt`, `quarantined` (without leave to take those), `error: ...` (a broken key), or the
        status that can't be requeued. With a `delay` in seconds they are scheduled, and queued when it is over by the server's clock."""
        args = {
            "nonce": nonce,
            "keep_place": int(keep_place),
            "quarantined": int(quarantined),
            "retry_count": defaults.RETRY_COUNT_START,
            "delay_ms": to_ms(delay),
            "n_jobs": len(job_ids),
        }
        return to_texts(self._script("requeue")({"queues": self.keys.queues}, args, job_ids))

    def quarantine(self, job_ids: Sequence[str], reason: str) -> list[str]:
        """Set failed jobs aside. An answer per id: `ok`, `missing`, `error: ...` (a broken key), or the status that is not failed."""
        return to_texts(self._script("quarantine")({}, {"reason": reason, "n_jobs": len(job_ids)}, job_ids))

    def delete(self, job_ids: Sequence[str]) -> list[str]:
        """An answer per id: `deleted`, `missing`, `started` (a running job is not deleted), or a status that only a newer version knows."""
        return to_texts(self._script("delete")({}, {"n_jobs": len(job_ids)}, job_ids))

    def empty(self, queue: str, limit: int = 500) -> tuple[int, bool]:
        """Forget up to `limit` waiting jobs: how many, and whether there are more."""
        deleted, again = self._script("empty")({}, {"queue": queue, "limit": limit})
        return int(deleted), bool(again)

    def save_meta(self, job_id: str, meta: bytes | str, execution_id: str = "") -> str:
        """`ok`, `missing`, or `stale` when an execution is named that does not hold the job."""
        return codec.text(self._script("save_meta")({"job": self.keys.job(job_id)}, {"execution": execution_id, "meta": meta}))

    def log_event(self, lines: Sequence[LogLine], nonce: str) -> int:
        """Add lines to the event stream; how many."""
        rest: list[Any] = []
        for line in lines:
            rest += (line.event, line.job_id, line.queue, line.log_tag, line.worker, to_ms(line.age), line.dropped, line.message)
        return int(self._script("log_event")({"said": self.keys.said(nonce)}, {"n_lines": len(lines)}, rest))

    # -- callbacks

    def callbacks_wait(self) -> bool:
        """Whether a delivery could be made now. O(1)."""
        return bool(self.connection.exists(self.keys.queue(CALLBACKS)))

    def callbacks_refused(self) -> int:
        """How many were not accepted, ever, as too many waited."""
        return int(codec.text(self.connection.get(self.keys.callbacks_refused) or b"0"))

    def callbacks_secret(self) -> bytes | None:
        """What seals deliveries; the first process that registered made it."""
        found: Any = self.connection.get(self.keys.callbacks_secret)
        return found if found is None or isinstance(found, bytes) else str(found).encode()

    def agree(self, deliveries: Sequence[Mapping[str, Any]]) -> list[bool]:
        """Of each delivery whether the record of the job that it names says the same: the URL is one of the job's, and how and when it ended."""
        names = ["success_task_handler", "failed_task_handler", "callback_url", "ended_at", "status", "reason", "seq"]
        pipe = self.connection.pipeline(transaction=False)
        for sent in deliveries:
            pipe.hmget(self.keys.job(str(sent.get("job_id"))), names)
        return [_agrees(sent, row) for sent, row in zip(deliveries, pipe.execute(raise_on_error=False), strict=True)]

    def endpoint_gone(self, url: str) -> bool:
        """Note that this URL wants no more callbacks; False if that was known."""
        args = {"digest": codec.digest(url), "keep": defaults.GONE_MAX}
        return bool(self._script("endpoint_gone")({"gone": self.keys.callbacks_gone}, args))

    def gone(self, urls: Sequence[str]) -> list[bool]:
        """Of each URL whether it wants no more callbacks."""
        if not urls:
            return []
        found: Any = self.connection.zmscore(self.keys.callbacks_gone, [codec.digest(url) for url in urls])
        return [score is not None for score in found]

    def readmit_endpoint(self, url: str) -> bool:
        """Send it callbacks again; False if it never said that it wants none."""
        self.check_writer()
        return bool(self.connection.zrem(self.keys.callbacks_gone, codec.digest(url)))

    # -- workers

    def known_queues(self) -> list[str]:
        """Names of all queues that are used, or were within the last day, reserved ones left out."""
        members: Any = self.connection.smembers(self.keys.queues)
        names = (self.keys.name_of_queue(codec.text(key)) for key in members)
        return sorted(name for name in names if not is_reserved(name))

    def survey(self, wildcards: Mapping[str, str], interval: float, limit: int = 100) -> bool:
        """Name the wildcards that a worker serves (each with its patterns of Lua) and look over the index of their queues that have work, a
        number of queues at a time; True if there are more. A pass begins when the last one began `interval` seconds ago."""
        args = {"interval_ms": to_ms(interval), "limit": limit, "n_wildcards": len(wildcards)}
        keys = {"queues": self.keys.queues, "survey": self.keys.survey, "wildcards": self.keys.wildcards}
        return bool(self._script("survey")(keys, args, [part for pair in wildcards.items() for part in pair]))

    def wrong_types(self, queues: Sequence[str]) -> tuple[list[str], list[str]]:
        """A line for each key of these queues that is of a type Fusion can't serve, and the queues whose key is a LIST of stock RQ's."""
        pipe = self.connection.pipeline(transaction=False)
        wanted = [(q, self.keys.queue(q), b"list" if q in LIST_QUEUES else b"zset") for q in queues]
        wanted += [(q, key(q), b"zset") for key in (self.keys.fifo, self.keys.wip) for q in queues]
        for _, key, _ in wanted:
            pipe.type(key)
        wrong, lists = list[str](), list[str]()
        for (queue, key, kind), found in zip(wanted, pipe.execute(), strict=True):
            if found == b"list" != kind and key == self.keys.queue(queue):
                lists.append(queue)
            elif found not in (kind, b"none"):
                wrong.append(f"{key} is a {codec.text(found)}, not a {codec.text(kind)}")
        return wrong, lists

    def adopt(self, queues: Sequence[str]) -> None:
        """Leave the keys of these queues to stock RQ's producers from now on; the queues' jobs wait in `fifo`."""
        self.check_writer()
        self.connection.sadd(self.keys.fifos, *queues)

    def register(self, name: str, incarnation: str, lease: float, worker_ttl: float, fields: dict[str, Any]) -> bool:
        """Enter the list of workers; False if a live other, or a dead one that still holds jobs, has the name."""
        pairs = codec.to_pairs(fields)
        args = {
            "name": name,
            "incarnation": incarnation,
            "lease_ms": to_ms(lease),
            "worker_ttl": int(worker_ttl),
            "secret": secrets.token_hex(32),
            "n_pairs": len(pairs),
        }
        keys = {"worker": self.keys.worker(name), "workers": self.keys.workers}
        return bool(self._script("register")(keys, args, pairs) == b"ok")

    def deregister(self, name: str, incarnation: str) -> int:
        """Leave the list of workers; returns how many jobs still held were given back."""
        keys = {"worker": self.keys.worker(name), "workers": self.keys.workers}
        return int(self._script("deregister")(keys, {"name": name, "incarnation": incarnation}))

    def turn(
        self,
        name: str,
        incarnation: str,
        token: int,
        commits: Iterable[Commit],
        queues: Sequence[str],
        slots: Sequence[int],
        lease: float,
        worker_ttl: float,
        ahead: int = 0,
        begun: Sequence[tuple[str, str]] = (),
        wishes: Wishes = _NO_WISHES,
        listed: bool = False,
    ) -> Turn:
        """Commit outcomes, then claim a job for each free slot; `slots` holds the lowest priority each may take.

        Of queues with jobs of one class the first comes first; within the call they take turns, unless the order is the one `listed`.

        The last `ahead` of them are for jobs that will wait behind others: should the worker die, such a one has lost nothing unless it
        was among `begun`, (job id, execution id) pairs, by then.
        A lost reply is answered by calling again with the same `token`; a new one comes only after an answer.
        """
        rest: list[Any] = []
        count = 0
        for c in commits:
            pairs = codec.to_pairs(c.fields)
            if c.attempt:
                pairs += ("attempt", json.dumps(c.attempt))
            rest += (c.kind, c.job_id, c.execution_id, int(c.elapsed * 1e6), int(c.age * 1e6), to_ms(c.delay), c.reason)
            rest += (len(pairs), *pairs)
            count += 1
        args = {
            "name": name,
            "incarnation": incarnation,
            "token": token,
            "lease_ms": to_ms(lease),
            "worker_ttl": int(worker_ttl),
            "n_outcomes": count,
            "n_queues": len(queues),
            "n_slots": len(slots),
            "n_ahead": ahead,
            "n_begun": len(begun),
            "known": wishes.known,
            "alone": "only" if wishes.only else int(wishes.alone),
            "n_sets": len(wishes.sets),
            "n_lacking": len(wishes.lacking),
            "listed": int(listed),
        }
        rest += (*queues, *slots, *chain.from_iterable(begun), *wishes.sets, *chain.from_iterable(wishes.lacking.items()))
        keys = {"worker": self.keys.worker(name), "suspended": self.keys.suspended}
        status, answers, jobs, bad, again, next_ms, waits = self._script("turn")(keys, args, rest)
        return Turn(
            codec.text(status),
            to_texts(answers),
            [Claimed(codec.text(j[0]), codec.text(j[1]), codec.text(j[2]), codec.run_fields(j[3:])) for j in jobs],
            [(codec.text(queue), codec.text(error)) for queue, error in bad],
            bool(again),
            None if next_ms < 0 else next_ms / 1000,
            (codec.text(waits[0]), to_texts(waits[1:])) if waits else None,
        )

    def hold_probation(self, host: str, incarnation: str, ttl: float, sets: Sequence[str], *, keep: bool = False) -> bool:
        """Whether this worker has the right, for `ttl` seconds, to run the jobs on probation of its host: it asks for it if one waits in
        these sets, and keeps it if it says so."""
        args = {"incarnation": incarnation, "ttl_ms": to_ms(ttl), "keep": int(keep), "n_sets": len(sets)}
        return bool(self._script("hold_probation")({"probation": self.keys.probation(host)}, args, sets))

    def extend(
        self, name: str, incarnation: str, held: Sequence[tuple[str, str]], lease: float, worker_ttl: float, state: str
    ) -> tuple[bool, list[str]]:
        """Renew the leases of (job id, execution id) pairs and this worker's registration.

        Returns whether the worker is still registered, and per job `ok`, `canceled` (a cancel is pending) or `lost`.
        """
        args = {
            "incarnation": incarnation,
            "lease_ms": to_ms(lease),
            "worker_ttl": int(worker_ttl),
            "state": state,
            "n_jobs": len(held),
        }
        rest = [part for pair in held for part in pair]
        registered, *answers = to_texts(self._script("extend")({"worker": self.keys.worker(name)}, args, rest))
        return registered == "ok", answers

    # -- duties that any process of the fleet may do

    def reap(self, lease: float, interval: float, queues: Sequence[str] = (), limit: int = 100) -> tuple[int, bool]:
        """Give back jobs whose lease ran out: how many, and whether there are more. Does nothing for one lease after an outage."""
        args = {"lease_ms": to_ms(lease), "interval_ms": to_ms(interval), "limit": limit, "n_queues": len(queues)}
        recovered, again, _holding = self._script("reap")({}, args, queues)
        return int(recovered), bool(again)

    def prune(
        self, lease: float, name: str = "", limit: int = 20, *, incarnation: str = "", reason: str = ""
    ) -> list[tuple[str, int]]:
        """Remove dead workers: (name, jobs given back). With `name`, that one at once, dead or not, unless its `incarnation` is another."""
        args = {"name": name, "incarnation": incarnation, "reason": reason, "lease_ms": to_ms(lease), "limit": limit}
        flat = self._script("prune")({"workers": self.keys.workers}, args)
        return [(codec.text(flat[i]), int(flat[i + 1])) for i in range(0, len(flat), 2)]

    def promote(self, limit: int = 100) -> tuple[int, float | None]:
        """Move due jobs to their queues: how many, and the seconds to the next due one (None if there is none)."""
        return self.promote_and_look(limit)[:2]

    def promote_and_look(self, limit: int = 100) -> tuple[int, float | None, float | None]:
        """`promote`, and the seconds to the next waiting job whose ttl is over."""
        moved, next_ms, over_ms = self._script("promote")({"scheduled": self.keys.scheduled}, {"limit": limit})
        return int(moved), _seconds(next_ms), _seconds(over_ms)

    def expire(self, limit: int = 100) -> tuple[int, float | None]:
        """End waiting jobs whose ttl is over: how many, and the seconds to the next one (None if there is none)."""
        ended, next_ms = self._script("expire")({"expiring": self.keys.expiring}, {"limit": limit})
        return int(ended), _seconds(next_ms)

    def clean(self, limit: int = 200, names: int = 50, interval: float = 0) -> bool:
        """Forget jobs whose time in a terminal set is over, or which are over its cap, and names of queues long empty; True if there are more.
        A pass over all names begins when the last one began `interval` seconds ago, whoever that was."""
        keys = {"queues": self.keys.queues, "clean": self.keys.clean, "idle": self.keys.queues_idle}
        return bool(self._script("clean")(keys, {"limit": limit, "names": names, "interval_ms": to_ms(interval)})[2])

    def suspend(self, seconds: int | None = None) -> None:
        """No worker claims a job from the moment this returns, for `seconds` or until resume."""
        self.check_writer()
        self.connection.set(self.keys.suspended, 1, ex=seconds)

    def pause(self, queue: str, seconds: int | None = None) -> None:
        """No worker claims a job of this queue from the moment this returns, for `seconds` or until `unpause`."""
        self.check_writer()
        self.connection.set(self.keys.paused(queue), 1, ex=seconds)

    def unpause(self, queue: str) -> bool:
        """Let workers claim from the queue again; False if it was not paused."""
        return bool(self._script("unpause")({}, {"queue": queue}))

    def resume(self) -> bool:
        """Let workers claim again; False if they were not suspended."""
        keys, cursor, was = {"suspended": self.keys.suspended, "queues": self.keys.queues}, "0", False
        while True:
            suspended, found = self._script("resume")(keys, {"cursor": cursor, "limit": 100})
            was, cursor = was or bool(suspended), codec.text(found)
            if cursor == "0":
                return was

    def ring(self, queue: str) -> None:
        """Put back a doorbell token that reached a worker with no free slot."""
        self._script("ring")({}, {"queue": queue})

    def command(self, worker: str, payload: str) -> int:
        """Send a command to a worker; the number of workers that heard it."""
        return int(self.connection.publish(self.keys.pubsub(worker), payload))


def _agrees(sent: Mapping[str, Any], row: Any) -> bool:
    if isinstance(row, Exception) or row[6] is None:
        return False
    *urls, ended_at, status, reason, _ = (codec.text(value) for value in row)
    ended = "expired" if (status, reason) == ("canceled", "expired") else status
    return sent.get("url") in urls and (sent.get("ended_at"), sent.get("status")) == (ended_at, ended)


def _seconds(ms: int) -> float | None:
    """Of an instant to come; -1 if there is none."""
    return None if ms < 0 else ms / 1000
