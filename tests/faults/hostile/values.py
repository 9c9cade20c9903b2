"""What somebody who can write to Redis puts there: values for every field, and jobs that hold one of them each."""

from __future__ import annotations

import pickle
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import redis

from fusion import Queue
from fusion.store.write.broker import Broker
from tests.kit.hands import new
from tests.kit.process import ROOT

#: Fields of a job that processes take for a number or a time, for JSON or a call, for a word or a text. docs/keys.md has them all.
NUMBERS = (
    "priority timeout result_ttl failure_ttl ttl expires_at retryCount attempts deliveries lost seq enqueued_at created_at held_since "
    "started_at ended_at requeued cancel at_front hooks"
).split()
STRUCTURES = "data retry on_success on_failure meta history result".split()
TEXTS = (
    "serializer signature success_task_handler failed_task_handler callback_url on_lost description log_tag origin original_queue status "
    "execution_id worker_name nonce exc_info reason error_class error_bases error_frame quarantined result_error callback_error raw_id"
).split()
FIELDS = (*NUMBERS, *STRUCTURES, *TEXTS)
_DOCUMENTED = (ROOT / "docs" / "keys.md").read_text().partition("## Fields of a job\n")[2].partition("\n## ")[0]
#: Every other field that the page names, rare ones.
REST = tuple(
    name
    for row in re.findall(r"^\| (`.+?) \|", _DOCUMENTED, re.MULTILINE)
    for name in re.findall(r"`(\w+)`", row)
    if name not in (*FIELDS, "func")
)
_ODD = {
    "empty": b"",
    "not UTF-8": b"\xff\xfe",
    "nul": b"tests.jobs\x00.basic.noop",
    "lines and escapes": b"a\r\nb: c\x1b[2J\x1b]0;t\x07\xe2\x80\xae{\n",
}
#: What such a field must not hold, by what is wrong with it.
BAD_NUMBERS = {
    **_ODD,
    "nan": b"NaN",
    "infinity": b"-Infinity",
    "huge integer": b"9" * 5000,
    "large integer": b"9" * 4000,
    "beyond all time": b"9" * 19,
    "huge exponent": b"1e999",
    "negative": b"-1",
}
BAD_STRUCTURES = {
    **_ODD,
    "nan inside": b'{"max":NaN,"func":NaN,"timeout":Infinity}',
    "a key twice": b'{"func":"a.b","func":"c.d","max":1,"max":2}',
    "huge integer": b"9" * 5000,
    "numbers inside": b'{"max":%b,"timeout":%b,"interval":[1e999]}' % (b"9" * 4000, b"9" * 4000),
    "deep": b"[" * 100_000,
    "deep object": b'{"a":' * 50_000,
    "lone surrogate": b'["tests.jobs.basic.noop",null,["\\ud800"],{"\\udfff":1}]',
    "surrogate bytes": b'"\xed\xa0\x80"',
    "overlong": b'"\xc0\x80\xe0\x80\xaf"',
    "foreign type": b'["tests.jobs.basic.noop",null,[{"__fusion__":["dataclass",["subprocess:Popen",{"args":"true"}]]}],{}]',
}
BAD_TEXTS = {**_ODD, "surrogate bytes": b"\xed\xa0\x80", "overlong": b"\xc0\x80\xe0\x80\xaf", "long": b"x" * 300_000}
TRAPS: tuple[tuple[str, bytes], ...] = tuple(
    (field, value)
    for fields, values in ((NUMBERS, BAD_NUMBERS), (STRUCTURES, BAD_STRUCTURES), (TEXTS, BAD_TEXTS))
    for field in fields
    for value in values.values()
)
REST_TRAPS: tuple[tuple[str, bytes], ...] = tuple(
    (field, value) for field in REST for value in {**BAD_NUMBERS, "a list": b'["x",5]', "deep": b"[" * 100_000}.values()
)


class Bomb:
    """Goes off when it is unpickled: the file appears."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return open, (self.path, "w")


def bombs(path: Path) -> dict[str, bytes]:
    """In each form in which a pickle is stored."""
    bare, call = pickle.dumps(Bomb(path)), pickle.dumps(("tests.jobs.basic.noop", None, (Bomb(path),), {}))
    return {"bare": bare, "compressed": zlib.compress(bare), "call": call, "compressed call": zlib.compress(call)}


def zlib_bomb(mib: int) -> bytes:
    """This many MiB of zeros, in a thousandth of that."""
    packer = zlib.compressobj(9)
    head, block = packer.compress(b""), bytes(1 << 20)
    first, again = (packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    return head + first + again * (mib - 1)


def plant(
    conn: redis.Redis,
    queue: str,
    traps: Iterable[tuple[str, bytes]],
    task: str,
    base: Mapping[str, str | bytes] | None = None,
    prefix: str = "h",
) -> Iterator[tuple[str, str]]:
    """A job for each field and its value, and behind it a probe. Yields the ids of both."""
    broker = Broker(conn)
    for number, (field, value) in enumerate(traps):
        hostile, probe = f"{prefix}{number}-{field}", f"{prefix}p{number}"
        data = f'["{task}",null,[],{{}}]'
        broker.enqueue(queue, [new(hostile, data=data, description=task)], f"nonce-{hostile}")
        conn.hset(f"rq:job:{hostile}", mapping={**(base or {}), field: value})
        Queue(queue, conn).enqueue("tests.jobs.basic.add", 20, 3, job_id=probe)
        yield hostile, probe


def spread(
    conn: redis.Redis,
    traps: Iterable[tuple[str, bytes]] = TRAPS,
    base: Mapping[str, str | bytes] | None = None,
    prefix: str = "h",
) -> list[str]:
    """The hostile jobs, each in a set that people look at, and records of processes, sinks and entries as hostile."""
    found = [hostile for hostile, _ in plant(conn, "sms", traps, "tests.jobs.basic.noop", base, prefix)]
    for n, job_id in enumerate(found):
        status, key = [("queued", ""), ("failed", "rq:queue:failed"), ("scheduled", "rq:scheduler:scheduled_jobs")][n % 3]
        if key:
            conn.zrem("rq:queue:sms", job_id)
            conn.zadd(key, {job_id: [2e9, float("inf"), -1][n % 7 % 3]})
        if not job_id.endswith("-status"):
            conn.hset(f"rq:job:{job_id}", "status", status)
    return found


#: Kinds of records beside jobs: their index and the score in it, their key, and the fields that are read.
_PROCESS = "incarnation birth last_heartbeat beat_ms lease_ms pid hostname schema"
_ENTRY = (
    "plan spec rev app version created_at declared_at declared_error paused next error error_at enqueued overlapped missed last_job manual "
    "manual_job"
)
RECORDS = (
    ("rq:schedulers", 1e15, "rq:scheduler:process", f"{_PROCESS} fusion app version"),
    ("rq:relays", 1e15, "rq:relay", f"{_PROCESS} fusion sinks busy"),
    ("rq:cron:due", 2e9, "rq:cron:entry", _ENTRY),
)
WORKER = f"{_PROCESS} state quiet throttled queues version current_job successful_job_count failed_job_count total_working_us"
EVENT = "event job_id queue log_tag epoch n priority due worker elapsed_us reason attempts delay_ms lost source message at_ms"


#: Once each.
ALL_VALUES = frozenset(value for _, value in TRAPS)


def spoil_the_rest(conn: redis.Redis, values: Iterable[bytes] = ALL_VALUES) -> None:
    """A record of every other kind per value, with that value in all of its fields."""
    for n, value in enumerate(values):
        for index, score, key, names in RECORDS:
            conn.zadd(index, {f"x{n}": score})
            conn.hset(f"{key}:x{n}", mapping=dict.fromkeys(names.split(), value))
        conn.sadd("rq:workers", f"rq:worker:x{n}")
        conn.hset(f"rq:worker:x{n}", mapping=dict.fromkeys(WORKER.split(), value))
        conn.rpush(f"rq:cron:history:x{n}", value)
        conn.hset("rq:dropped", f"state{n}", value)
        conn.xadd("rq:events", dict.fromkeys(EVENT.split(), value))
        conn.xadd("rq:events:parked:file", {"why": value, "document": value})
