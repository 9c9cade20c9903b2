"""Frozen data: everything under a prefix as a JSON document, and back.

Contents are texts where they are UTF-8, else `{"b64": ...}`. Times to live are kept in ms. Consumer groups of streams are rebuilt: who
holds which entry, and what was handed out last. Loading shifts all times, so that a lease that was alive is alive again, or long over.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import redis

ROOT = Path(__file__).parent / "golden"
Document = dict[str, Any]

#: Scores and fields that are times: pattern of the key -> what one second is there. A field of "" is the score.
_TIMES: list[tuple[str, str, int]] = [
    (r"wip:.*", "", 1000),
    (r"(finished|canceled|stopped):.*|queue:failed|scheduler:scheduled_jobs", "", 1),
    (r"schedulers|relays", "", 1000),
    (r"cron:due|cron:marks|callbacks:gone", "", 1),
    (r"job:[^:]*", "expires_at|held_since", 1000),
    (r"worker:[^:]*|scheduler:process:.*|relay:.*", "beat_ms", 1000),
    (r"reap", "last|hold", 1000),
    (r"events:meta", "cap_until", 1),
    (r"sink:.*", "served_ms|at_ms", 1000),
    (r"cron:entry:.*", "next", 1),
]


def _text(raw: bytes) -> Any:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(raw).decode()}


def _bytes(value: Any) -> bytes:
    return base64.b64decode(value["b64"]) if isinstance(value, dict) else str(value).encode()


def _pairs(row: Mapping[bytes, bytes]) -> list[list[Any]]:
    return [[_text(name), _text(value)] for name, value in sorted(row.items())]


def _score(score: float) -> str:
    return repr(score)


def _stream(conn: redis.Redis, key: bytes) -> Document:
    groups = []
    for group in conn.xinfo_groups(key):
        rows = conn.xpending_range(key, group["name"], "-", "+", 10_000)
        held = [[_text(row["message_id"]), _text(row["consumer"])] for row in rows]
        groups.append({"name": _text(group["name"]), "last": _text(group["last-delivered-id"]), "held": held})
    entries = [[_text(entry), [[_text(n), _text(v)] for n, v in row.items()]] for entry, row in conn.xrange(key)]
    return {"entries": entries, "groups": groups}


_READ: dict[bytes, Callable[[redis.Redis, bytes], Any]] = {
    b"string": lambda conn, key: _text(conn.get(key)),
    b"hash": lambda conn, key: _pairs(conn.hgetall(key)),
    b"set": lambda conn, key: sorted(_text(member) for member in conn.smembers(key)),
    b"list": lambda conn, key: [_text(value) for value in conn.lrange(key, 0, -1)],
    b"zset": lambda conn, key: [[_text(member), _score(score)] for member, score in conn.zrange(key, 0, -1, withscores=True)],
    b"stream": _stream,
}


def dump(conn: redis.Redis) -> list[Document]:
    """All keys, sorted."""
    found = []
    for key in sorted(conn.scan_iter(count=1000)):
        kind = conn.type(key)
        ttl = conn.pttl(key)
        found.append(
            {"key": _text(key), "type": kind.decode(), "ttl": ttl if ttl >= 0 else None, "content": _READ[kind](conn, key)}
        )
    return found


def text_of(document: Document) -> str:
    """A line per job and per key, for those who look at differences."""
    head = {name: value for name, value in document.items() if name not in ("jobs", "keys")}
    lines = [json.dumps(head)[:-1], ', "jobs": {']
    lines.append(",\n".join(f"{json.dumps(job_id)}: {json.dumps(pair)}" for job_id, pair in document["jobs"].items()))
    lines.append('}, "keys": [')
    lines.append(",\n".join(json.dumps(one, ensure_ascii=False) for one in document["keys"]))
    return "\n".join([*lines, "]}", ""])


def load(conn: redis.Redis, document: Document, *, age: int | None) -> None:
    """Write what `dump` read, as if it had been taken `age` seconds ago: what has expired meanwhile is not there. None: with the times as
    they were, and without times to live."""
    seconds = 0 if age is None else conn.time()[0] - int(document["taken_at"]) - age
    for one in document["keys"]:
        left = None if one["ttl"] is None or age is None else one["ttl"] - age * 1000
        if left is not None and left <= 0:
            continue
        _write(conn, one["key"], one["type"], one["content"], seconds)
        if left is not None:
            conn.pexpire(one["key"], left)


def _unit(key: str, field: str) -> int:
    """What a second is in this place; 0 if no time is there."""
    short = key.removeprefix("rq:")
    return next((unit for pattern, fields, unit in _TIMES if re.fullmatch(pattern, short) and re.fullmatch(fields, field)), 0)


def _write(conn: redis.Redis, key: str, kind: str, content: Any, seconds: int) -> None:
    def moved(field: str, value: Any) -> bytes:
        unit = _unit(key, field)
        raw = _bytes(value)
        if not unit or not re.fullmatch(rb"-?[0-9.e+]+", raw):
            return raw
        return _score(float(raw) + seconds * unit).encode() if field == "" else str(int(raw) + seconds * unit).encode()

    if kind == "string":
        conn.set(key, _bytes(content))
    elif kind == "hash":
        conn.hset(key, mapping={_bytes(name): moved(str(name), value) for name, value in content})
    elif kind == "set":
        conn.sadd(key, *(_bytes(member) for member in content))
    elif kind == "list":
        conn.rpush(key, *(_bytes(value) for value in content))
    elif kind == "zset":
        for member, score in content:
            conn.execute_command("ZADD", key, moved("", score), _bytes(member))
    else:
        _write_stream(conn, key, content)


def _write_stream(conn: redis.Redis, key: str, content: Document) -> None:
    for entry, pairs in content["entries"]:
        conn.execute_command("XADD", key, entry, *(_bytes(part) for pair in pairs for part in pair))
    for group in content["groups"]:
        name, held = _bytes(group["name"]), group["held"]
        conn.xgroup_create(key, name, "0")
        for entry, consumer in held:
            conn.xclaim(key, name, _bytes(consumer).decode(), 0, [entry], force=True, justid=True)
        conn.execute_command("XGROUP", "SETID", key, name, group["last"])


def read(version: int) -> Document:
    found: Document = json.loads((ROOT / str(version) / "listing.json").read_text())
    return found


def versions() -> list[int]:
    return sorted(int(path.name) for path in ROOT.iterdir() if path.name.isdecimal())
