"""A Redis as it stands at one moment, read by one call: checkers that look at every key after each step of a walk ask this copy."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import redis

#: Of each key that fits one of the patterns: its name, its type, its milliseconds to live, what is in it.
_ALL = """
local READ = {
  hash = function(key) return redis.call('HGETALL', key) end,
  zset = function(key) return redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end,
  set = function(key) return redis.call('SMEMBERS', key) end,
  list = function(key) return redis.call('LRANGE', key, 0, -1) end,
  string = function(key) return { redis.call('GET', key) } end,
  stream = function(key) return redis.call('XRANGE', key, '-', '+') end,
}
local found, seen = {}, {}
for _, pattern in ipairs(ARGV) do
  for _, key in ipairs(redis.call('KEYS', pattern)) do
    if not seen[key] then
      seen[key] = true
      local kind = redis.call('TYPE', key).ok
      local read = READ[kind]
      found[#found + 1] = { key, kind, redis.call('PTTL', key), read and read(key) or {} }
    end
  end
end
return found
"""


def everything_at_once(conn: redis.Redis, *patterns: str) -> Iterator[tuple[str, str, int, Any]]:
    """Each key that fits one of the patterns: its name, its type, its milliseconds to live (-1 if it never expires), and what is in it as the
    client gives it, a sorted set with scores."""
    for key, raw, left, flat in conn.eval(_ALL, 0, *patterns):
        kind = raw.decode()
        if kind == "hash":
            content: Any = _pairs(flat)
        elif kind == "zset":
            content = [(member, float(score)) for member, score in _pairs(flat).items()]
        elif kind == "stream":
            content = [(entry, _pairs(fields)) for entry, fields in flat]
        else:
            content = {"set": set, "list": list, "string": lambda some: some[0]}[kind](flat)
        yield key.decode(), kind, left, content


def _pairs(flat: list[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


class Still:
    """Answers as the client does, of the keys that fit one of the patterns; of others as if they were not there."""

    def __init__(self, conn: redis.Redis, *patterns: str) -> None:
        self._keys: dict[str, tuple[str, int, Any]] = {
            key: (kind, left, dict(content) if kind == "zset" else content)
            for key, kind, left, content in everything_at_once(conn, *patterns)
        }

    @classmethod
    def of(cls, conn: redis.Redis | Still, *patterns: str) -> Still:
        """`conn` itself, if it is one that has been made for this."""
        return conn if isinstance(conn, Still) else cls(conn, *patterns)

    def _of(self, key: str | bytes, kind: str) -> Any:
        name = key.decode() if isinstance(key, bytes) else key
        if name not in self._keys:
            return {}
        found, _, content = self._keys[name]
        if found != kind:
            raise redis.ResponseError(f"WRONGTYPE {name} is a {found}")
        return content

    def scan_iter(self, pattern: str = "*", count: int | None = None) -> Iterator[bytes]:
        return (name.encode() for name in self._keys if fnmatchcase(name, pattern))

    def type(self, key: str | bytes) -> bytes:
        name = key.decode() if isinstance(key, bytes) else key
        return self._keys[name][0].encode() if name in self._keys else b"none"

    def exists(self, *keys: str | bytes) -> int:
        return sum(self.type(key) != b"none" for key in keys)

    def pttl(self, key: str | bytes) -> int:
        name = key.decode() if isinstance(key, bytes) else key
        return self._keys[name][1] if name in self._keys else -2

    def get(self, key: str | bytes) -> bytes | None:
        return self._of(key, "string") or None

    def hget(self, key: str | bytes, field: str) -> bytes | None:
        found: bytes | None = self._of(key, "hash").get(field.encode())
        return found

    def hmget(self, key: str | bytes, *fields: str) -> list[bytes | None]:
        content = self._of(key, "hash")
        return [content.get(field.encode()) for field in fields]

    def hgetall(self, key: str | bytes) -> dict[bytes, bytes]:
        return dict(self._of(key, "hash"))

    def hlen(self, key: str | bytes) -> int:
        return len(self._of(key, "hash"))

    def zscore(self, key: str | bytes, member: str) -> float | None:
        found: float | None = self._of(key, "zset").get(member.encode())
        return found

    def zcard(self, key: str | bytes) -> int:
        return len(self._of(key, "zset"))

    def zrange(self, key: str | bytes, start: int, end: int, withscores: bool = False) -> list[Any]:
        assert (start, end) == (0, -1), "all of it"
        content = self._of(key, "zset")
        return list(content.items()) if withscores else list(content)

    def lrange(self, key: str | bytes, start: int, end: int) -> list[bytes]:
        assert (start, end) == (0, -1), "all of it"
        return list(self._of(key, "list"))

    def hexists(self, key: str | bytes, field: str) -> bool:
        return field.encode() in self._of(key, "hash")

    def scard(self, key: str | bytes) -> int:
        return len(self._of(key, "set"))

    def smembers(self, key: str | bytes) -> set[bytes]:
        return set(self._of(key, "set"))
