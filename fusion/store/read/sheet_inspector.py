"""Reads all that Redis stores about one job, in three round trips; a fourth if other jobs hold what it needs. Every read is bounded."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from typing import Any

from redis.exceptions import NoPermissionError, RedisError, ResponseError

from fusion.kernel.redaction import masked_text
from fusion.kernel.states import ENDED
from fusion.kernel.timeutil import from_iso
from fusion.store.layout import codec
from fusion.store.layout.compact import expand
from fusion.store.layout.gates import Gate, read_gate
from fusion.store.layout.limits import read_limit
from fusion.store.layout.names import LIST_QUEUES, is_delivery_id
from fusion.store.layout.pauses import read_pause
from fusion.store.read.base import InspectorBase, moment, texts
from fusion.store.read.callback_inspector import DELIVERY_FIELDS, DeliveryInfo, delivery_of
from fusion.store.read.job_facts import JobFacts, KeyFacts, Kin, QueueFacts, RunFacts, StoredLog
from fusion.store.read.worker_inspector import WORKER_FIELDS, WorkerInfo, worker_of
from fusion.store.write.event_broker import StreamEntry, to_entry

#: The fields of a job that are read, `seq` apart, which may be empty.
FIELDS = (
    *("status", "func", "data", "serializer", "signature", "origin", "original_queue", "created_at", "enqueued_at", "started_at"),
    *("ended_at", "description", "timeout", "result_ttl", "failure_ttl", "ttl", "queue_timeout", "expires_at", "priority"),
    *("execution_id", "worker_name", "deliveries", "attempts", "lost", "fair_key", "begun", "on_lost", "isolate", "retry"),
    *("retryCount", "retry_since", "held_since", "parents", "graph", "doomed", "due", "waits_in", "batch", "batch_as", "takes"),
    *("batch_by", "concurrency_key", "unique_key", "unique_until", "unique_window", "on_duplicate", "replaces", "replaced_by"),
    *("on_conflict", "limit_duration", "rate", "max_concurrent", "cancel", "reason", "exc_info", "error_class", "error_bases"),
    *("error_frame", "history", "requeued", "quarantined", "result", "result_error", "callback_error", "meta", "progress"),
    *("cursor", "log_tag", "on_success", "on_failure", "on_stopped", "success_task_handler", "failed_task_handler"),
    *(
        "callback_url",
        "hooks",
        "cron",
        "copied_from",
        "copied_to",
        "failure_group",
        "told",
        "success_callback_name",
        "raw_id",
        "ties",
    ),
)
#: Most bytes of one field that are read, and of all together; of a larger field only the size is reported.
LARGEST, ALL = 2 * 1024 * 1024, 8 * 1024 * 1024
#: Most parents, children, and copies that are named; most holders of a slot; most workers that are read.
NAMED, HOLDERS, WORKERS = 20, 10, 1000
#: Entries of the stream that are read: at its end, around each known moment of the job, the number of such moments, and at either end of its
#: last run.
_LAST, _AROUND, _MOMENTS, _OF_RUN = 1000, 200, 12, 500
#: How much earlier and later than such a moment an event may have been written, in ms.
_BEFORE, _AFTER = 100, 400
#: Most events of a job that are returned.
EVENTS = 50
_KIN = ("status", "origin", "original_queue", "func")
_OTHERS = ("replaces", "replaced_by", "copied_from", "batch_by", "doomed")
#: A lower lease is one of stock RQ's, in seconds.
_LEAST_LEASE = 100_000_000_000

#: What to read: a name for the reply, and the command on a pipeline.
_Asks = Mapping[str, Callable[[Any], object]]
_Answers = Mapping[str, Any]


class SheetInspector(InspectorBase):
    """Reads one job with all that it is related to. A key of the wrong type reads as empty."""

    def facts(self, job_id: str, *, stream: bool = True, more: Iterable[str] = ()) -> JobFacts | None:
        """Read what is known of a job; None if there is no record of it. `stream`: read its events too, which costs more than all the rest.

        `more`: fields to read besides `FIELDS`."""
        keys, key, fields = self.keys, self.keys.job(job_id), tuple(dict.fromkeys((*FIELDS, *more)))
        first = self._together(
            {
                "now": lambda pipe: pipe.time(),
                "there": lambda pipe: pipe.hexists(key, "status"),
                "children": lambda pipe: pipe.zrange(keys.children(job_id), 0, NAMED - 1),
                "children_count": lambda pipe: pipe.zcard(keys.children(job_id)),
                **{f"size:{name}": _on(lambda pipe, name: pipe.hstrlen(key, name), name) for name in fields},
            }
        )
        if not first["there"]:
            return None  # nothing else was read, whose own errors would count as this job's
        sizes = {name: int(first[f"size:{name}"] or 0) for name in fields}
        wanted = list(dict.fromkeys(["seq", "status", *_affordable(sizes)]))
        children = [codec.text(one) for one in first["children"] or ()]
        second = self._together(
            {
                "row": lambda pipe: pipe.hmget(key, wanted),
                "workers": lambda pipe: pipe.smembers(keys.workers),
                "fifos": lambda pipe: pipe.smembers(keys.fifos),
                **self._kin(children),
            }
        )
        found = zip(wanted, second["row"] or (), strict=False)
        row = expand({name: value for name, value in found if value is not None})
        if "status" not in row:
            return None
        return self._facts(job_id, row, sizes, {**first, **second}, stream, [_kin(one, second[f"kin:{one}"]) for one in children])

    def _facts(
        self,
        job_id: str,
        row: Mapping[str, bytes],
        sizes: Mapping[str, int],
        first: _Answers,
        stream: bool,
        children: Sequence[Kin],
    ) -> JobFacts:
        seconds, micros = first["now"]
        at = datetime.fromtimestamp(seconds + micros / 1e6, timezone.utc)
        queue, status = codec.text(row.get("origin")), codec.text(row["status"])
        parents = _listed(row.get("parents"))
        others = [codec.text(row.get(name)).partition(" ")[0] for name in _OTHERS]
        others += codec.text(row.get("copied_to")).split()[-NAMED:]
        told = [one for one in codec.text(row.get("told")).split()[:4] if is_delivery_id(one)]
        workers = sorted(codec.text(one) for one in first["workers"] or ())[:WORKERS] if _waits(status) else []
        found = self._together(
            {
                **self._of_queue(queue, job_id, queue in {codec.text(one) for one in first["fifos"] or ()}),
                **self._of_job(job_id, row, queue, status, parents),
                **self._kin([*{_id_of(one) for one in parents[:NAMED]}, *filter(None, others)]),
                **{f"worker:{one}": _on(lambda pipe, one: pipe.hmget(one, WORKER_FIELDS), one) for one in workers},
                **{f"told:{one}": _on(lambda pipe, one: pipe.hmget(self.keys.job(one), DELIVERY_FIELDS), one) for one in told},
                **{f"told due:{one}": _on(lambda pipe, one: pipe.zscore(self.keys.scheduled, one), one) for one in told},
                **(self._of_stream(row) if stream else {}),
            }
        )
        known = {one: _kin(one, found[f"kin:{one}"]) for one in others if one}
        holders = [codec.text(one) for one, _ in found["holders"] or ()]
        asked = [*holders, *filter(None, [codec.text(found["unique"])])]
        last = self._together(self._kin(asked)) if asked else {}
        known |= {one: _kin(one, last[f"kin:{one}"]) for one in asked}
        now_ms = seconds * 1000 + micros / 1000
        serving = [worker_of(self.keys.name_of_worker(one), _texts(found[f"worker:{one}"]), {}, now_ms) for one in workers]
        score = found["kept"]
        events, complete = _events(job_id, found) if stream else ((), False)
        return JobFacts(
            id=job_id,
            at=at,
            row=row,
            sizes={name: size for name, size in sizes.items() if size},
            too_large=tuple(name for name, size in sizes.items() if size and name not in row),
            queue=_queue(found, queue, [one for one in serving if one.alive and not one.probation and _serves(one, queue)]),
            key=_key(row, found, holders, known),
            run=self._run(row, found, at) if status == "started" else None,
            due=None if found["due"] is None else moment(found["due"]),
            kept_until=None if score is None or score == float("inf") else moment(score),
            blocked_why=masked_text(codec.text(found["why"]).partition(" ")[2]),
            unique_holder=codec.text(found["unique"]),
            unique_left_ms=max(0, found["unique_left"] or 0),
            batch={} if found["batch"] is None else _named(_BATCH, found["batch"]),
            parents=tuple(_parent(one, found) for one in parents[:NAMED]),
            parents_count=len(parents),
            more_parents=bool(found["more_parents"]),
            children=tuple(children),
            children_count=int(first["children_count"] or 0),
            others=known,
            deliveries=tuple(filter(None, (_delivery(one, found) for one in told))),
            log=_log(found["log"], from_iso(row.get("created_at"))),
            events=events,
            all_events=complete,
        )

    # -- what is asked

    def _of_queue(self, queue: str, job_id: str, beside_rq: bool) -> _Asks:
        """`beside_rq`: its own key is a LIST of stock RQ's."""
        keys = self.keys
        ready = keys.fifo(queue) if beside_rq else keys.ready(queue)
        inbox: dict[str, Callable[[Any], object]] = {
            "inbox rank": lambda pipe: pipe.lpos(keys.queue(queue), job_id, maxlen=10_000),
            "inbox length": lambda pipe: pipe.llen(keys.queue(queue)),
        }
        return (inbox if queue in LIST_QUEUES else {}) | {
            "rank": lambda pipe: pipe.zrevrank(ready, job_id),
            "length": lambda pipe: pipe.zcard(ready),
            "running": lambda pipe: pipe.zcount(keys.wip(queue), _LEAST_LEASE, "(+inf"),
            "pause": lambda pipe: pipe.get(keys.paused(queue)),
            "pause left": lambda pipe: pipe.pttl(keys.paused(queue)),
            "suspended": lambda pipe: pipe.exists(keys.suspended),
            "gate": lambda pipe: pipe.hget(keys.gates, queue),
            "closed": lambda pipe: pipe.get(keys.wake_closed(queue)),
        }

    def _of_job(self, job_id: str, row: Mapping[str, bytes], queue: str, status: str, parents: Sequence[str]) -> _Asks:
        """Return what to read about related things. A name that the job lacks is read all the same, as that of nothing."""
        keys = self.keys
        waits_in, key, unique = (codec.text(row.get(name)) for name in ("waits_in", "concurrency_key", "unique_key"))
        ended = keys.set_of(status, queue) if status in ENDED else keys.failed
        worker = codec.text(row.get("worker_name"))
        return {
            "due": lambda pipe: pipe.zscore(keys.scheduled, job_id),
            "kept": lambda pipe: pipe.zscore(ended, job_id),
            "lease": lambda pipe: pipe.zscore(keys.wip(queue), job_id),
            "why": lambda pipe: pipe.hget(keys.waits, waits_in),
            "limit": lambda pipe: pipe.hgetall(keys.limit(key)),
            "holders": lambda pipe: pipe.zrevrange(keys.limit_held(key), 0, HOLDERS - 1, withscores=True),
            "held": lambda pipe: pipe.zcard(keys.limit_held(key)),
            "key waiting": lambda pipe: pipe.zcard(keys.limit_waiting(key)),
            "slot": lambda pipe: pipe.zscore(keys.limit_held(key), job_id),
            "key rank": lambda pipe: pipe.zrevrank(keys.limit_waiting(key), job_id),
            "unique": lambda pipe: pipe.get(keys.unique(unique)),
            "unique_left": lambda pipe: pipe.pttl(keys.unique(unique)),
            "batch": lambda pipe: pipe.hmget(keys.batch(codec.text(row.get("batch"))), _BATCH),
            "more_parents": lambda pipe: pipe.exists(keys.parents(job_id)),
            "log": lambda pipe: pipe.hgetall(keys.log(job_id)),
            "worker": lambda pipe: pipe.hmget(keys.worker(worker), WORKER_FIELDS),
            "execution": lambda pipe: pipe.hget(keys.worker_jobs(worker), job_id),
            **{f"unmet:{one}": _on(lambda pipe, one: pipe.sismember(keys.unmet(job_id), one), one) for one in parents[:NAMED]},
        }

    def log(self, job_id: str, created: datetime | None) -> StoredLog | None:
        """Return the last lines that a run of the job printed and logged; None if it has none. `created`: when the job was."""
        found: Any = self.connection.hgetall(self.keys.log(job_id))
        return _log(found, created)

    def _of_stream(self, row: Mapping[str, bytes]) -> _Asks:
        created = from_iso(row.get("created_at"))
        since = 0 if created is None else int(created.timestamp() * 1000) - _BEFORE
        asks: dict[str, Callable[[Any], object]] = {
            "events": lambda pipe: pipe.xrevrange(self.keys.events, min=str(max(0, since)), count=_LAST)
        }
        for begin, end in _windows(_moments(row)):
            asks[f"events:{begin}"] = _on(
                lambda pipe, span: pipe.xrange(self.keys.events, min=span[0], max=span[1], count=_AROUND), (str(begin), str(end))
            )
        if run := _last_run(row):  # what its task said in between
            asks["events:run"] = lambda pipe: pipe.xrange(self.keys.events, min=run[0], max=run[1], count=_OF_RUN)
            asks["events:run's end"] = lambda pipe: pipe.xrevrange(self.keys.events, min=run[0], max=run[1], count=_OF_RUN)
        return asks

    def _kin(self, ids: Iterable[str]) -> _Asks:
        return {f"kin:{one}": _on(lambda pipe, one: pipe.hmget(self.keys.job(one), _KIN), one) for one in ids}

    def _together(self, asks: _Asks) -> _Answers:
        """Return the replies by name; None for one whose key is of another type."""
        replies = self._batch(lambda pipe: [ask(pipe) for ask in asks.values()], raise_on_error=False)
        for reply in replies:
            if isinstance(reply, RedisError) and (isinstance(reply, NoPermissionError) or not isinstance(reply, ResponseError)):
                raise reply
        return {name: None if isinstance(reply, Exception) else reply for name, reply in zip(asks, replies, strict=True)}

    def _run(self, row: Mapping[str, bytes], found: _Answers, at: datetime) -> RunFacts:
        fields = _texts(found["worker"])
        worker = worker_of(codec.text(row.get("worker_name")), fields, {}, at.timestamp() * 1000) if fields else None
        lease = found["lease"]
        until = moment(lease / 1000) if lease is not None and _LEAST_LEASE <= lease < float("inf") else None
        execution = codec.text(row.get("execution_id"))
        return RunFacts(worker, until, execution.endswith(codec.AHEAD) and codec.text(row.get("begun")) != execution)


_BATCH = ("name", "closed_at", "canceled_at", "ended_at", "success_at")


def _on(ask: Callable[[Any, Any], object], given: Any) -> Callable[[Any], object]:
    """Return the command for one of several."""
    return lambda pipe: ask(pipe, given)


def _affordable(sizes: Mapping[str, int]) -> Iterable[str]:
    """Yield the fields to read: the small ones first, and none that is too large."""
    room = ALL
    for name in sorted(sizes, key=lambda name: sizes[name]):
        if 0 < sizes[name] <= min(room, LARGEST):
            room -= sizes[name]
            yield name


def _waits(status: str) -> bool:
    return status not in ENDED


def _listed(raw: bytes | None) -> list[str]:
    try:
        found = json.loads(raw or b"[]")
        return [one for one in found if isinstance(one, str) and one.isascii()] if isinstance(found, list) else []
    except (ValueError, RecursionError):
        return []


def _id_of(member: str) -> str:
    return member[1:] if member[:1] in ("?", "~") else member


def _named(names: Sequence[str], values: Sequence[bytes | None]) -> dict[str, str]:
    return {name: codec.text(value) for name, value in zip(names, values, strict=True) if value is not None}


def _texts(values: Sequence[bytes | None] | None) -> dict[str, str]:
    return _named(WORKER_FIELDS, values) if values else {}


def _kin(job_id: str, values: Sequence[bytes | None] | None) -> Kin:
    status, queue, home, function = map(codec.text, values or (None,) * len(_KIN))
    return Kin(job_id, status, queue, home, function)


def _parent(member: str, found: _Answers) -> Kin:
    job_id = _id_of(member)
    one = _kin(job_id, found[f"kin:{job_id}"])
    return replace(one, sign=member[: len(member) - len(job_id)], unmet=bool(found[f"unmet:{member}"]))


def _serves(worker: WorkerInfo, queue: str) -> bool:
    return any(fnmatchcase(queue, name) for name in worker.queues)


def _queue(found: _Answers, queue: str, workers: Sequence[WorkerInfo]) -> QueueFacts:
    ahead, length = found["rank"], found["length"] or 0
    if queue in LIST_QUEUES:
        if ahead is None and found["inbox rank"] is not None:
            ahead = found["inbox rank"] + length
        length += found["inbox length"] or 0
    left = found["pause left"]
    pause = None if left is None or left == -2 else read_pause(found["pause"] or b"", left)
    closed = found["closed"] in (b"rate", "rate")
    gate = Gate.of(read_gate(found["gate"]), closed=closed)
    running = int(found["running"] or 0)
    return QueueFacts(ahead, length, running, pause, bool(found["suspended"]), gate, tuple(workers))


def _key(row: Mapping[str, bytes], found: _Answers, holders: Sequence[str], known: Mapping[str, Kin]) -> KeyFacts | None:
    if not (key := codec.text(row.get("concurrency_key"))):
        return None
    limit = read_limit(key, texts(found["limit"] or {}))
    named = tuple(known[one] for one in holders)
    return KeyFacts(limit, found["held"] or 0, found["key waiting"] or 0, found["slot"] is not None, found["key rank"], named)


def _delivery(delivery: str, found: _Answers) -> DeliveryInfo | None:
    values = found[f"told:{delivery}"]
    if not values or not values[0]:
        return None
    named = dict(zip(DELIVERY_FIELDS, map(codec.text, values), strict=True))
    return delivery_of(delivery, named, found[f"told due:{delivery}"])


# -- the stream


def _moments(row: Mapping[str, bytes]) -> list[datetime]:
    """Return when something happened to the job, as far as its record shows; the newest first."""
    found = [from_iso(row.get(name)) for name in ("ended_at", "started_at", "enqueued_at", "created_at")]
    for line in row.get("history", b"").split(b"\n")[-10:]:
        try:
            one = json.loads(line)
            found += [from_iso(one[name]) for name in ("end", "start") if isinstance(one.get(name), str)]
        except (ValueError, AttributeError, RecursionError):
            continue
    return sorted((one for one in found if one is not None), reverse=True)


def _last_run(row: Mapping[str, bytes]) -> tuple[str, str] | None:
    """Return the start and end of its last run, in the stream's time; the end is `+` while it runs. None if it never ran."""
    started, ended = from_iso(row.get("started_at")), from_iso(row.get("ended_at"))
    if started is None:
        return None
    over = ended is not None and ended >= started
    return str(max(0, int(started.timestamp() * 1000))), str(int(ended.timestamp() * 1000)) if over and ended else "+"


def _windows(moments: Iterable[datetime]) -> list[tuple[int, int]]:
    """Return the parts of the stream to read, in ms; overlapping ones are merged."""
    found: list[tuple[int, int]] = []
    for one in list(moments)[:_MOMENTS]:
        ms = int(one.timestamp() * 1000)
        begin, end = max(0, ms - _BEFORE), max(0, ms + _AFTER)
        if found and end >= found[-1][0]:
            found[-1] = min(begin, found[-1][0]), found[-1][1]
        else:
            found.append((begin, end))
    return found


def _events(job_id: str, found: _Answers) -> tuple[tuple[StreamEntry, ...], bool]:
    """Return the job's newest events, and True if none is missing: everything since its creation was read, and the event of its arrival still
    exists."""
    rows: dict[Any, Any] = {}
    for name, page in found.items():
        if name == "events" or name.startswith("events:"):
            rows.update((entry_id, fields) for entry_id, fields in page or ())
    flat = [(entry_id, [part for pair in fields.items() for part in pair]) for entry_id, fields in rows.items() if fields]
    entries = [to_entry(one) for one in flat]
    mine = sorted((one for one in entries if one.fields.get("job_id") == job_id), key=_order)
    seen = len(found["events"] or ()) < _LAST
    came = bool(mine) and mine[0].fields.get("event") in ("queued", "scheduled", "deferred")
    return tuple(mine[-EVENTS:]), seen and came and "reason" not in mine[0].fields and len(mine) <= EVENTS


def _log(found: Mapping[bytes, bytes] | None, created: datetime | None) -> StoredLog | None:
    """Return the job's log; None if it has none. That of a former job of its id is not its own."""
    log = {codec.text(name): value for name, value in (found or {}).items()}
    if not log or (created is not None and codec.number(log.get("at")) < int(created.timestamp() * 1000)):
        return None
    lines = [one.partition(" ") for one in codec.text(log.get("lines")).split("\n")]
    known = tuple((moment(codec.number(ms.encode()) / 1000), text) for ms, _, text in lines)
    return StoredLog(known, codec.number(log.get("left_out")), codec.number(log.get("attempt"), 1))


def _order(entry: StreamEntry) -> tuple[int, int]:
    ms, _, number = entry.id.partition("-")
    return int(ms), int(number or 0)
