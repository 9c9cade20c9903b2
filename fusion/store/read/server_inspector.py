"""The server itself, as far as this user's rights allow: its settings, missing permissions, and clock."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redis.exceptions import ResponseError

from fusion.store.client.server import read_server
from fusion.store.layout import codec
from fusion.store.layout.acl import acl_rules
from fusion.store.layout.slots import tag_of
from fusion.store.read.base import InspectorBase

#: Most replies of PING that are awaited, and seconds after which no more are sent.
_PINGS, _PATIENCE = 50, 0.5
#: Returns which of these commands the caller may not use. Requires Redis 7 or newer.
_MAY = """
local lacking = {}
for i, words in ipairs(ARGV) do
  local command = {}
  for word in string.gmatch(words, '%S+') do command[#command + 1] = word end
  local known, may = pcall(redis.acl_check_cmd, unpack(command))
  if known and not may then lacking[#lacking + 1] = command[1] end
end
return lacking
"""
#: What workers, schedulers, relays and the command line use, each in a form that could be sent. `{key}`: a key under the prefix, which need
#: not exist.
_USED = (
    "GET {key}", "SET {key} a", "DEL {key}", "EXISTS {key}", "TYPE {key}", "EXPIRE {key} 1", "PEXPIRE {key} 1", "PERSIST {key}", "PTTL {key}",
    "HGET {key} a", "HGETALL {key}", "HMGET {key} a", "HSET {key} a a", "HDEL {key} a", "HINCRBY {key} a 1", "INCR {key}",
    "LLEN {key}", "LRANGE {key} 0 1", "RPUSH {key} a", "LPOP {key}", "BLPOP {key} 1", "SADD {key} a", "SREM {key} a", "SMEMBERS {key}",
    "SSCAN {key} 0", "ZADD {key} 1 a", "ZREM {key} a", "ZCARD {key}", "ZCOUNT {key} 0 1", "ZRANGE {key} 0 1", "ZREVRANGE {key} 0 1",
    "XADD {key} * a a", "XLEN {key}", "XRANGE {key} - +", "XTRIM {key} MAXLEN 9", "XACK {key} a 1-1", "TIME", "INFO", "PING", "SELECT 0",
    "EVALSHA a 0", "PUBLISH {key} a", "SUBSCRIBE {key}",
)  # fmt: skip
#: The same on a cluster, besides.
_USED_ON_CLUSTER = ("CLUSTER SLOTS", "CLUSTER MYID", "SPUBLISH {key} a", "SSUBSCRIBE {key}")


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Facts about one server. `info`: its INFO. `config`: some of its settings, None if this user may not read them. `user`: who is logged
    in, empty if that is unknown. `lacking`: commands that Fusion uses and this user may not, None if that is unknown. `skew`: seconds by
    which the server's clock is ahead of this machine's, exact to `doubt`. `pings`: seconds until each reply."""

    info: Mapping[str, Any]
    config: Mapping[str, str] | None
    user: str
    lacking: tuple[str, ...] | None
    skew: float
    doubt: float
    pings: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class CommandTime:
    """The cost of a command since the counters began: `seconds` in all; `p99` in seconds, None if this server does not keep it."""

    name: str
    calls: int
    seconds: float
    p99: float | None


@dataclass(frozen=True, slots=True)
class SlowCommand:
    """A slow command: when it ended in Unix seconds, and how many seconds it took. Only its first word is kept, as the others may hold
    anything."""

    at: int
    seconds: float
    name: str


class ServerInspector(InspectorBase):
    """Reads facts about the server, none about jobs."""

    def facts(self, *, deep: bool = False) -> ServerFacts:
        """Read the clock and INFO; if `deep` also settings, rights and how fast the server replies, for half a second at most."""
        info: Any = self.connection.info()
        if not deep:
            return ServerFacts(info, None, "", None, *self._skew())
        user = self._allowed("ACL", "WHOAMI")
        return ServerFacts(info, self._config(), codec.text(user or b""), self._lacking(), *self._skew(), self._pings())

    def commands(self, limit: int) -> list[CommandTime]:
        """Return the commands that took the server most time, the most first."""
        stats, percentiles = self._section("commandstats", "cmdstat_"), self._section("latencystats", "latency_percentiles_usec_")
        found = [
            CommandTime(name, int(row["calls"]), row["usec"] / 1e6, _seconds_of(percentiles.get(name, {}).get("p99")))
            for name, row in stats.items()
            if {"calls", "usec"} <= row.keys()
        ]
        return sorted(found, key=lambda one: -one.seconds)[:limit]

    def slow(self, limit: int) -> list[SlowCommand] | None:
        """Return the last slow commands, the newest first; None if this user may not read them."""
        found = self._allowed("SLOWLOG", "GET", limit)
        if found is None:
            return None
        rows = [row if isinstance(row, dict) else {"start_time": row[1], "duration": row[2], "command": row[3]} for row in found]
        return [SlowCommand(int(row["start_time"]), row["duration"] / 1e6, _first_word(row["command"])) for row in rows]

    def _section(self, name: str, prefix: str) -> dict[str, dict[str, Any]]:
        """Return rows of figures of one section of INFO, by name; empty if the server has no such section."""
        try:
            info: Any = self.connection.info(name)
        except ResponseError:
            return {}
        return {key.removeprefix(prefix): row for key, row in info.items() if key.startswith(prefix) and isinstance(row, dict)}

    def rules(self) -> str:
        """Return the rights that a user needs under this prefix, in the form that this server accepts."""
        return acl_rules(self.keys.prefix, server=read_server(self.connection).version[0])

    def rq_workers(self, limit: int = 100) -> list[str]:
        """Return the registered workers of stock RQ, at most `limit`: they are in the same set as ours."""
        members: Any = self.connection.sscan(self.keys.workers, 0, count=limit)[1]
        keys = sorted(codec.text(key) for key in members)[:limit]
        rows = self._batch(
            lambda pipe: [pipe.hmget(self.keys.worker(self.keys.name_of_worker(key)), ["incarnation", "birth"]) for key in keys]
        )
        return [self.keys.name_of_worker(key) for key, (own, birth) in zip(keys, rows, strict=True) if birth and not own]

    def _skew(self) -> tuple[float, float]:
        best = (0.0, float("inf"))
        for _ in range(3):
            began = time.time()
            clock: Any = self.connection.time()
            took = time.time() - began
            if 0 <= took / 2 < best[1]:
                best = (clock[0] + clock[1] / 1e6 - began - took / 2, took / 2)
        return best

    def _pings(self) -> tuple[float, ...]:
        found, end = list[float](), time.monotonic() + _PATIENCE
        while len(found) < _PINGS and time.monotonic() < end:
            began = time.perf_counter()
            self.connection.ping()
            found.append(time.perf_counter() - began)
        return tuple(found)

    def _config(self) -> Mapping[str, str] | None:
        names = ("maxmemory", "hash-max-listpack-value", "hash-max-ziplist-value", "appendonly", "save", "timeout", "maxclients")
        found = dict[str, str]()
        for name in names:
            pairs = self._allowed("CONFIG", "GET", name)
            if pairs is None:
                return None
            items = pairs.items() if isinstance(pairs, dict) else zip(pairs[::2], pairs[1::2], strict=True)
            found |= {codec.text(key): codec.text(value) for key, value in items}
        return found

    def _lacking(self) -> tuple[str, ...] | None:
        key = f"{self.keys.prefix}job:doctor"
        used = _USED + _USED_ON_CLUSTER if tag_of(self.keys.prefix) else _USED
        found = self._allowed("EVAL", _MAY, 0, *(command.format(key=key) for command in used))
        return None if found is None else tuple(codec.text(name) for name in found)

    def _allowed(self, *command: Any) -> Any:
        """Return the reply; None if this user may not send the command, or the server does not know it."""
        try:
            return self.connection.execute_command(*command)  # type: ignore[no-untyped-call]
        except ResponseError:
            return None


def _seconds_of(microseconds: Any) -> float | None:
    return microseconds / 1e6 if isinstance(microseconds, int | float) else None


def _first_word(command: Any) -> str:
    words = command if isinstance(command, list) else codec.text(command).split(" ", 1)
    return codec.text(words[0]).lower() if words else ""
