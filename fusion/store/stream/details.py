"""From entries of the stream to events as sinks get them: what the stream leaves out comes from the jobs' hashes, masked on the way."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Any

from redis import Redis
from redis.exceptions import RedisError, ResponseError

from fusion.events.event import JobEvent
from fusion.events.wording import message_of, seconds_of, whole_of
from fusion.exceptions import DeserializationError
from fusion.kernel.compression import plain
from fusion.kernel.redaction import UNREADABLE, masked_call, masked_result
from fusion.kernel.timeutil import EPOCH
from fusion.store.client.adapter import batch
from fusion.store.layout import codec
from fusion.store.layout.compact import call_of, meant
from fusion.store.layout.keys import Keys
from fusion.store.write.event_broker import StreamEntry

REDACTED = "[redacted]"
#: Characters of a payload or result that is shown in full.
_FULL = 64 * 1024
#: Bytes of jobs' data held at a time, and of one job's: of a larger one only the size is shown.
_HELD, _LARGEST = 4 * 1024 * 1024, 8 * 1024 * 1024
#: Workers whose host is remembered.
_WORKERS = 1000
#: The field in place of `result`, if the job keeps none.
_ONCE = "result_once"
#: 1 January 9999, in ms: an entry's id may be anything an outsider wrote.
_LAST = 253_370_764_800_000
_FUNCTION = re.compile(rb'\s*\[\s*"([A-Za-z_][\w.]{0,255})"')
_ABOUT = ("serializer", "priority", "result_ttl", "func")
_NUMBERS = re.compile(r"(?:\d+\.)+")


@dataclass(slots=True)
class _Job:
    """A job's part of its events, and the bytes that it stores: `data`, and the result in the field `kept`."""

    priority: int | None = None
    serializer: str = "json"
    func: bytes | None = None
    data_size: int = 0
    result_size: int = 0
    kept: str = "result"
    func_name: str = ""
    payload: str = ""
    result: str = ""

    @property
    def readable(self) -> dict[str, int]:
        """The fields that are read, with their sizes: of a larger one only the size is shown."""
        return {name: size for name, size in (("data", self.data_size), (self.kept, self.result_size)) if 0 < size <= _LARGEST}


class Details:
    """Completes entries to events. `payload`: `masked`, `full` or `off`. Arguments and results as they are stored never leave this module."""

    def __init__(self, connection: Redis, keys: Keys, payload: str) -> None:
        self._connection, self._keys, self._payload = connection, keys, payload
        self._hosts: dict[str, str] = {}

    def events(self, entries: Sequence[StreamEntry]) -> list[JobEvent]:
        """Make events of entries, in two round trips, or more if the jobs are large. Of a job that is forgotten they tell what the stream holds."""
        finished = {entry.fields.get("job_id", "") for entry in entries if entry.fields.get("event") == "completed"}
        wanted = {entry.fields["job_id"]: entry.fields["job_id"] in finished for entry in entries if entry.fields.get("job_id")}
        jobs = self._jobs(wanted, {entry.fields.get("worker", "") for entry in entries} - {"", *self._hosts})
        return [self._event(entry, jobs.get(entry.fields.get("job_id", ""), _Job())) for entry in entries]

    def _event(self, entry: StreamEntry, job: _Job) -> JobEvent:
        fields = entry.fields
        event, reason, worker = fields.get("event", ""), fields.get("reason", ""), fields.get("worker", "")
        number = whole_of(fields, "n")
        priority = whole_of(fields, "priority")
        written = int(entry.id.partition("-")[0])
        happened = whole_of(fields, "at_ms")
        moment = min(written, _LAST) if happened is None else min(max(happened, 0), written, _LAST)
        elapsed, delay = seconds_of(fields, "elapsed_us", 1e6), seconds_of(fields, "delay_ms", 1e3)
        return JobEvent(
            id=entry.id if number is None else f"{fields.get('epoch', '')}-{number}",
            event=event,
            job_id=fields.get("job_id", ""),
            queue=fields.get("queue", ""),
            at=EPOCH + timedelta(milliseconds=moment),
            log_tag=fields.get("log_tag", ""),
            func_name=job.func_name,
            host=self._hosts.get(worker, ""),
            worker=worker,
            priority=job.priority if priority is None else priority,
            attempts=whole_of(fields, "attempts"),
            elapsed=elapsed,
            delay=delay,
            reason=reason,
            message=message_of(fields),
            payload=job.payload,
            result=reason if event in ("failed", "retry") else job.result if event == "completed" else "",
            source=fields.get("source", ""),
            callback_error=fields.get("callback_error", ""),
        )

    def _jobs(self, wanted: Mapping[str, bool], workers: Iterable[str]) -> dict[str, _Job]:
        """`wanted`: True for a job of which the result is needed, too."""
        workers = list(workers)
        replies = iter(
            self._read(
                lambda pipe: (
                    [
                        (
                            pipe.hmget(key, _ABOUT),
                            pipe.hstrlen(key, "data"),
                            pipe.hstrlen(key, "result"),
                        )
                        for key in map(self._keys.job, wanted)
                    ],
                    [pipe.hget(self._keys.worker(worker), "hostname") for worker in workers],
                )
            )
        )
        jobs = dict[str, _Job]()
        for job_id, needs_result in wanted.items():
            fields, data, result = islice(replies, 3)
            if fields is None or data is None or result is None:  # not a hash
                continue
            about = meant(_ABOUT, _ABOUT, fields)
            priority, ttl = about["priority"], about["result_ttl"]
            job = jobs[job_id] = _Job(
                codec.number(priority, -1) if priority else None, codec.text(about["serializer"]) or "json", about["func"], data
            )
            if needs_result and not result and ttl and codec.number(ttl, -1) == 0:
                result, job.kept = self._connection.hstrlen(self._keys.job(job_id), _ONCE), _ONCE
            job.result_size = result if needs_result else 0
            job.payload, job.result = (self._told(None, size, "", call=False) for size in (data, job.result_size))
        for worker, host in zip(workers, replies, strict=True):
            self._remember(worker, codec.text(host))
        for some in _portions(jobs):
            self._read_data(some)
        return jobs

    def _remember(self, worker: str, host: str) -> None:
        if len(self._hosts) >= _WORKERS:
            self._hosts.clear()
        # without an entry (it ended): by default a worker is called host.pid
        self._hosts[worker] = host or _without_numbers(worker)

    def _read_data(self, some: Mapping[str, _Job]) -> None:
        rows = self._read(lambda pipe: [pipe.hmget(self._keys.job(job_id), [*job.readable]) for job_id, job in some.items()])
        for job, values in zip(some.values(), rows, strict=True):
            found = dict(zip(job.readable, values or (), strict=False))
            if raw := found.get("data"):
                call = raw if job.func is None or job.serializer != "json" else call_of(job.func, raw)
                name = _FUNCTION.match(b'["%b"' % job.func if job.func else raw)
                job.func_name = name[1].decode() if name and job.serializer == "json" else ""
                job.payload = self._told(call, len(call), job.serializer, call=True)
            if raw := found.get(job.kept):
                job.result = self._told(raw, len(raw), job.serializer, call=False)

    def _told(self, raw: bytes | None, size: int, serializer: str, *, call: bool) -> str:
        if self._payload == "off":
            return REDACTED
        if raw is None:
            return f"[{size} bytes]" if size else ""
        if self._payload == "full" and serializer == "json":
            try:
                return _in_full(plain(raw, _LARGEST), call=call)
            except DeserializationError:
                return UNREADABLE
        return masked_call(raw, serializer) if call else masked_result(raw, serializer)

    def _read(self, ask: Callable[[Any], object]) -> list[Any]:
        """The replies; None for a key that is of another type."""
        replies = batch(self._connection, ask, raise_on_error=False)
        for reply in replies:
            if isinstance(reply, RedisError) and not (isinstance(reply, ResponseError) and str(reply).startswith("WRONGTYPE")):
                raise reply
        return [None if isinstance(reply, RedisError) else reply for reply in replies]


def _without_numbers(worker: str) -> str:
    """`host` of `host.12.3`. Looked for from the end: the name may be anything an outsider wrote, of any length."""
    found = _NUMBERS.match(worker[::-1])
    return worker[: len(worker) - found.end()] if found else worker


def _in_full(raw: bytes, *, call: bool) -> str:
    text = codec.text(raw)
    if call:
        try:
            _name, _instance, args, kwargs = json.loads(text)
            text = json.dumps({"args": args, "kwargs": kwargs}, separators=(",", ":"), ensure_ascii=False)
        except (ValueError, TypeError, RecursionError):
            pass
    return text if len(text) <= _FULL else text[:_FULL] + f"... [{len(text)} characters]"


def _portions(jobs: Mapping[str, _Job]) -> Iterator[dict[str, _Job]]:
    """Jobs to read together."""
    some, held = dict[str, _Job](), 0
    for job_id, job in jobs.items():
        size = sum(job.readable.values())
        if some and size and held + size > _HELD:
            yield some
            some, held = {}, 0
        if size:
            some[job_id] = job
            held += size
    if some:
        yield some
