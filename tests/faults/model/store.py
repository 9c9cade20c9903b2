"""The store as it is: the model's calls on a real Redis, and the comparison of what it holds with what the model says."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

from fusion.exceptions import DuplicateJob, QueueFull
from fusion.store.layout.records import ClaimFilter, Commit, NewJob, Room, TurnRequest
from fusion.store.write.broker import Broker
from fusion.store.write.limit_broker import LimitBroker
from tests.faults.model.groups import check_groups
from tests.faults.model.model import Model
from tests.faults.model.scripts import Line, Snapshot, clock_at
from tests.faults.model.state import INBOX, LEASE_MS, QUEUES, TASK, TERMINAL, Job, Order, Told, Wish
from tests.kit.hands import DATA

LEASE, WORKER_TTL = LEASE_MS / 1000, 420


_NO_WISH = Wish()


class Store:
    """A method per call of the model, with the same arguments and the same answer."""

    def __init__(self, line: Line, broker: Broker, limits: LimitBroker) -> None:
        self._line, self._broker, self._limits = line, broker, limits

    def enqueue(self, queue: str, orders: tuple[Order, ...], nonce: str, room: int | None = None) -> tuple[str, ...]:
        bound = None if room is None else Room(room)
        try:
            return "ok", self._broker.enqueue(queue, [_new(order) for order in orders], nonce, room=bound)
        except QueueFull as error:
            return "full", str(error.length), str(error.wanted)
        except DuplicateJob as error:
            return "duplicate", error.job_id, error.status

    def push(self, job_id: str) -> None:
        self._line.rpush(f"rq:queue:{INBOX}", job_id)

    def cancel_job(self, job_id: str) -> str:
        return self._broker.cancel(job_id)

    def stop_job(self, job_id: str) -> str:
        return self._broker.stop(job_id)

    def delete(self, ids: tuple[str, ...]) -> list[str]:
        return self._broker.delete(ids)

    def empty(self, queue: str, limit: int) -> tuple[int, bool]:
        return self._broker.empty(queue, limit)

    def requeue(self, ids: tuple[str, ...], nonce: str, keep_place: bool | str, quarantined: bool, delay: int) -> list[str]:
        place = {"at_front": True} if keep_place == "front" else {"keep_place": bool(keep_place)}
        return self._broker.requeue(ids, nonce, quarantined=quarantined, delay=delay, **place)

    def reschedule(self, job_id: str, due_ms: int) -> str:
        return self._broker.reschedule(job_id, due_ms / 1000)

    def quarantine(self, ids: tuple[str, ...]) -> list[str]:
        return self._broker.quarantine(ids, "set aside")

    def register(self, name: str, incarnation: str) -> bool:
        return self._broker.register(name, incarnation, LEASE, WORKER_TTL, {"pid": 1})

    def deregister(self, name: str, incarnation: str) -> int:
        return self._broker.deregister(name, incarnation)

    def extend(self, name: str, incarnation: str, held: tuple[tuple[str, str], ...]) -> tuple[bool, list[str]]:
        return self._broker.extend(name, incarnation, held, LEASE, WORKER_TTL, "busy")

    def turn(
        self,
        name: str,
        incarnation: str,
        token: int,
        told: tuple[Told, ...],
        queues: tuple[str, ...],
        slots: tuple[int, ...],
        wish: Wish = _NO_WISH,
    ) -> tuple[str, list[str], list[tuple[str, str, str]]]:
        commits = [
            Commit(t.kind, t.id, t.execution, elapsed=0.5, delay=t.delay, reason="why", fields=_fields_of(t)) for t in told
        ]
        sets = [f"{kind}:{queue}" + (f":{TASK}" if kind == "held" else "") for kind in wish.kinds for queue in queues]
        claim_filter = ClaimFilter("", tuple(sets), {TASK: "why"} if wish.lacks else {}, wish.alone, wish.only)
        turn = self._broker.turn(
            TurnRequest(name, incarnation, token, commits, queues, slots, LEASE, WORKER_TTL, claim_filter=claim_filter)
        )
        assert not turn.bad
        return turn.status, turn.answers, [(job.queue, job.id, job.execution_id) for job in turn.jobs]

    def reap(self) -> int:
        recovered, again = self._broker.reap(LEASE, 5.0, QUEUES)
        while again:
            more, again = self._broker.reap(LEASE, 5.0, QUEUES)
            recovered += more
        return recovered

    def prune(self, name: str, incarnation: str) -> list[tuple[str, int]]:
        return sorted(self._broker.prune(LEASE, name, incarnation=incarnation))

    def promote(self, limit: int) -> int:
        return self._broker.promote(limit)[0]

    def expire(self, limit: int) -> int:
        return self._broker.expire(limit)[0]

    def clean(self) -> bool:
        return self._broker.clean()

    def pause(self, queue: str) -> None:
        self._broker.pause(queue)

    def unpause(self, queue: str) -> bool:
        return self._broker.unpause(queue) is not None

    def gate(self, queue: str, limit: int | None, rate: tuple[int, int] | None) -> None:
        self._broker.set_gate(queue, {"limit": limit, "rate": None if rate is None else _rate(rate)})

    def pin(self, key: str, most: int | None) -> None:
        self._limits.pin_limit(key, most)

    def halt(self, key: str, ms: int | None) -> None:
        self._limits.pause_limit(key, None if ms is None else ms / 1000)

    def go_on(self, key: str) -> None:
        self._limits.resume_limit(key)

    def release_slot(self, key: str, job_id: str) -> bool:
        return self._limits.release_slot(key, job_id)

    def suspend(self) -> None:
        self._broker.suspend()

    def resume(self) -> bool:
        return self._broker.resume()

    def flush_scripts(self) -> None:
        self._line.script_flush()

    def hear(self, queue: str) -> None:
        self._line.delete(f"rq:wake:{queue}", f"rq:wake:{queue}:high")

    def forget_worker(self, name: str) -> None:
        self._line.delete(f"rq:worker:{name}")

    def set_clock(self, ms: int) -> None:
        """From the next call on."""
        self._line.before.append(clock_at(ms))


def _fields_of(told: Told) -> dict[str, str]:
    fields = {"seq": ""} if told.back else {"task": TASK} if told.kind == "held" else {}
    return fields | ({"keep_slot": "1"} if told.keep else {})


def _new(order: Order) -> NewJob:
    fields = {"data": DATA, "result_ttl": order.result_ttl, "on_lost": order.on_lost, "ttl": order.ttl}
    if order.fair is not None:
        fields["fair_key"] = order.fair
    if order.key is not None:
        fields |= {"ties": "kd" if order.discard else "k", "concurrency_key": order.key}
        fields |= {} if order.most is None else {"max_concurrent": order.most}
        fields |= {} if order.rate is None else {"rate": _rate(order.rate)}
        fields |= {"on_conflict": "discard"} if order.discard else {}
    due = None if order.at is None else order.at / 1000
    return NewJob(order.id, order.priority, fields, order.front, order.ttl, due, order.delay)


#: Events of a job that may come next after one of it; "" stands for a job that was not there. Apart from the model: no two executions
#: without an end of the first between them, nothing told of a job that waits but its claim or its end.
_ENDED = ("completed", "failed", "canceled", "stopped", "expired")
_WAITS = {"processing", "canceled", "stopped", "expired", "deleted"}
_FOLLOWS = {
    "": {"queued", "scheduled", "failed"},
    "queued": _WAITS | {"blocked"},
    "displaced": _WAITS | {"blocked", "failed"},
    "released": _WAITS | {"blocked", "failed"},  # failed: it had been held before, and is held again without a word
    "abandoned": _WAITS | {"queued", "scheduled", "blocked", "failed"},
    "admitted": _WAITS | {"blocked", "failed"},  # failed: as above
    "blocked": _WAITS | {"failed", "queued", "blocked"},  # blocked: a worker was to have it, and its key has no slot
    "scheduled": {"queued", "canceled", "stopped", "expired", "deleted", "scheduled"},
    "retry": {"queued", "canceled", "stopped", "expired", "deleted", "scheduled"},
    "held": _WAITS | {"failed", "queued", "scheduled", "blocked"},
    "processing": {"completed", "failed", "retry", "held", "released", "displaced", "abandoned", "canceled", "stopped"},
    "deleted": {"queued", "scheduled", "failed"},
    **{event: {"queued", "scheduled", "deleted", "failed"} for event in _ENDED},
}


@dataclass
class Story:
    """What the events have told so far."""

    number: int = 0
    epoch: str = ""

    def __post_init__(self) -> None:
        self._last: dict[str, str] = {}

    def goes_on(self, told: list[dict[str, str]]) -> None:
        """Numbers without a gap, one epoch, and for each job steps that can follow each other."""
        for event in told:
            self.number += 1
            self.epoch = self.epoch or event["epoch"]
            assert (event["epoch"], int(event["n"])) == (self.epoch, self.number), f"a gap in the events before {event}"
            if event["event"] == "slot_released":
                continue  # it goes on
            last = self._last.get(event["job_id"], "")
            assert event["event"] in _FOLLOWS[last], f"{event['job_id']}: {event['event']} after {last or 'nothing'}"
            self._last[event["job_id"]] = "admitted" if event.get("reason") == "admitted" else event["event"]


def compare(model: Model, seen: Snapshot, *, in_order: bool) -> None:
    """Assert that Redis holds what the model says, and nothing else. `in_order`: whether the order of the call's events is known."""
    found, wanted = _held(seen), _wanted(model)
    assert found == wanted, _difference(found, wanted)
    told = [(event["event"], event["job_id"], event["queue"]) for event in seen.events]
    events = model.events
    if model.settled:  # many ways lead to one result
        told, events = ([one for one in those if one[0] not in ("queued", "blocked")] for those in (told, events))
    assert told == events or (not in_order and sorted(told) == sorted(events)), f"events {told}, not {events}"
    _bells(model, seen)
    check_groups(seen)


def _held(seen: Snapshot) -> dict[str, Any]:
    """What is compared, by the same names as in `_wanted`."""
    found: dict[str, Any] = {}
    for key, value in seen.keys.items():
        name = key.removeprefix("rq:")
        kind, _, rest = name.partition(":")
        if kind == "job":
            found[name] = {field: value[field] for field in _FIELDS if value.get(field, "") not in ("", "0")}
        elif name in ("queue:a", "queue:b", f"fifo:{INBOX}"):
            found[name] = list(value)
        elif name == "queue:failed" or kind in TERMINAL:
            found[name] = {job_id: round(score, 3) for job_id, score in value.items()}
        elif kind == "worker" and not rest.endswith(":jobs"):
            found[name] = {field: value.get(field) for field in ("incarnation", "beat_ms")}
            found[name] |= {field: value.get(field, "0") for field in ("successful_job_count", "failed_job_count")}
            found[name]["token"] = value.get("turn", "0").partition("\n")[0]
        elif name == "reap":
            found[name] = {field: value.get(field) for field in ("last", "hold")} if "last" in value else None
        elif kind == "totals":
            found[name] = {field: int(count) for field, count in value.items()}
        elif kind == "gate":
            found[name] = int(value.get("tat", 0))
        elif name == "waits":
            found[name] = set(value) - {"version"}
        elif kind == "waits":
            found[name] = list(value)
        elif kind == "limit":
            found[name] = _key_of(value)
        elif name.startswith("limits:held:"):
            found[name] = [(job_id, score == inf) for job_id, score in value.items()]
        elif name.startswith("limits:waiting:"):
            found[name] = list(value)
        elif kind in ("wake", "work", "fair", "failure", "failures") or name in _ASIDE:
            continue
        else:
            found[name] = value
    return {name: value for name, value in found.items() if value}


#: Numbers, and what says only where to look.
_ASIDE = ("seq", "seq:front", "events", "events:meta", "schema", "leases", "queues:idle", "clean", "survey", "sample", "wildcards",
          "fifos", "callbacks:secret")  # fmt: skip
_FIELDS = ("status", "origin", "execution_id", "worker_name", "priority", "attempts", "lost", "deliveries", "requeued", "nonce",
           "requeue_nonce", "cancel", "expires_at", "held_since", "suspect", "spared", "quarantined", "at_front", "waits_in", "ties")  # fmt: skip


def _wanted(model: Model) -> dict[str, Any]:
    wanted: dict[str, Any] = {
        "gates": {queue: _gate(model, queue) for queue in sorted({*model.limits, *model.rates})},
        "queues": {f"rq:queue:{queue}" for queue in model.known_queues},
        "totals": dict(model.forgotten),
        "workers": {f"rq:worker:{name}" for name in model.listed},
        "fleet": set(model.listed),
        f"queue:{INBOX}": model.inbox,
        "waits": set(model.known_waits),
        f"inbox:{INBOX}": dict(model.struck),
        "suspended": "1" if model.suspended else None,
        "scheduler:scheduled_jobs": {job.id: job.due for job in model.of("scheduled")},
        "limits": {name: key.used for name, key in model.keys.items()},
        "limits:due": dict(model.due),
        "expiring": {job.id: job.expires for job in model.expiring()},
        "queue:failed": {job.id: round(job.expiry, 3) for job in model.of("failed")},
        "reap": None if model.last_reap is None else {"last": str(model.last_reap), "hold": str(model.hold)},
    }
    for queue in QUEUES:
        wanted[f"fifo:{queue}" if queue == INBOX else f"queue:{queue}"] = [job.id for job in model.waiting(queue)]
        wanted[f"wip:{queue}"] = {job.id: job.lease for job in model.of("started", queue)}
        for status in ("finished", "canceled", "stopped"):
            wanted[f"{status}:{queue}"] = {job.id: round(job.expiry, 3) for job in model.of(status, queue)}
        wanted[f"totals:{queue}"] = {f"{what}:{p}": n for (of, what, p), n in model.totals.items() if of == queue}
        wanted[f"blocked:{queue}"] = {job.id: job.wait_until for job in model.of("blocked", queue)}
        for kind, waits_in in (("held", f"held:{queue}:{TASK}"), ("probation", f"probation:{queue}")):
            wanted[f"waits:{waits_in}"] = [job.id for job in model.blocked_of(kind, queue)]
        wanted[f"gate:{queue}"] = model.tats.get(queue)
        wanted[f"paused:{queue}"] = f"{model.paused[queue]} \n" if queue in model.paused else None
    wanted[f"queue:{INBOX}"] = list(model.inbox)
    for name, worker in model.workers.items():
        wanted[f"worker:{name}"] = {
            "incarnation": worker.incarnation,
            "beat_ms": str(worker.beat),
            "successful_job_count": str(worker.finished),
            "failed_job_count": str(worker.failed),
            "token": str(worker.token),
        }
    for name in model.keys:
        wanted |= _wanted_of_key(model, name)
    wanted |= {f"worker:{name}:jobs": index for name, index in model.index.items()}
    wanted |= {f"job:{job.id}": _fields(job) for job in model.jobs.values()}
    return {name: value for name, value in wanted.items() if value}


def _gate(model: Model, queue: str) -> str:
    rate = model.rates.get(queue)
    words = ([f"limit={model.limits[queue]}"] if queue in model.limits else []) + ([f"rate={_rate(rate)}"] if rate else [])
    return " ".join(words)


def _rate(rate: tuple[int, int]) -> str:
    return f"1/{rate[0]}/{rate[1]}"


def _wanted_of_key(model: Model, name: str) -> dict[str, Any]:
    key = model.keys[name]
    values = {
        "max": key.most,
        "pinned": key.pinned,
        "rate": key.rate and _rate(key.rate),
        "paused": key.opens,
        "held_back": key.held_back,
        "tat": key.tat,
    }
    totals = {f"{what}:{priority}": str(count) for (what, priority), count in key.totals.items()}
    return {
        f"limit:{name}": {field: str(value) for field, value in values.items() if value is not None} | totals,
        f"limits:held:{name}": [(job_id, True) for job_id in sorted(key.running, reverse=True)]
        + [(job.id, False) for job in model.idle_of(name)],
        f"limits:waiting:{name}": [job.id for job in model.queue_up(name)],
    }


def _key_of(value: dict[str, str]) -> dict[str, str]:
    kept = {field: text for field, text in value.items() if not field.startswith("paused_")}
    return kept | ({"tat": str(int(float(kept["tat"])))} if "tat" in kept else {})


def _fields(job: Job) -> dict[str, str]:
    values = {
        "status": job.status,
        "origin": job.queue,
        "execution_id": job.execution,
        "worker_name": job.worker,
        "priority": None if job.corrupt else job.priority,
        "attempts": job.attempts,
        "lost": job.lost,
        "deliveries": job.deliveries,
        "requeued": job.requeued,
        "nonce": job.nonce,
        "requeue_nonce": job.requeue_nonce,
        "cancel": {"canceled": 1, "stopped": "stop"}.get(job.cancel),
        "expires_at": job.expires,
        "held_since": job.held_since,
        "suspect": 1 if job.suspect else None,
        "spared": job.spared,
        "quarantined": "set aside" if job.quarantined else None,
        "at_front": int(job.front),
        "waits_in": job.waits_in,
        "ties": None if job.key is None else "kd" if job.discard else "k",
    }
    return {name: str(value) for name, value in values.items() if value}


def _difference(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    names = [name for name in sorted(found.keys() | wanted.keys()) if found.get(name) != wanted.get(name)]
    return "\n".join(f"{name}: is {found.get(name)}, should be {wanted.get(name)}" for name in names)


def _bells(model: Model, seen: Snapshot) -> None:
    """One token at most in a doorbell, and one where the model says that somebody must hear."""
    for key, value in seen.keys.items():
        assert not key.startswith("rq:wake:") or value == ["1"] or key.endswith(":closed"), f"{key} holds {value}"
    for queue, level in model.woken:
        if (queue in model.limits and (model.room(queue) < 1 or not model.waiting(queue))) or queue in model.rates:
            continue  # a closed queue is silent; until when it is for its rate the server's own clock says
        assert f"rq:wake:{queue}" in seen.keys, f"nobody is woken for what waits in {queue}"
        left = any(job.level >= 2 for job in model.waiting(queue))  # a better one of its key may have come
        assert level < 2 or not left or f"rq:wake:{queue}:high" in seen.keys, (
            f"no reserved slot is woken for what waits in {queue}"
        )
