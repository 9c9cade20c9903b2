"""The real scripts under a clock of the test, and, for the tests of the tests, with a mistake in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import redis

from fusion.store.scripting import host, scripts
from fusion.store.scripting.constants import FleetConstants
from fusion.store.write.broker import Broker
from fusion.store.write.cron_broker import CronBroker
from fusion.store.write.limit_broker import LimitBroker
from tests.kit.armed import Reading
from tools import lua_build

CLOCK = "model:clock"  # outside of Fusion's prefix: the test looks for keys there that nobody knows
_TIME = "local clock = redis.call('TIME')"
_TEST_TIME = f"local clock = redis.call('HMGET', '{CLOCK}', 's', 'us')"
_BROKER = ("enqueue", "cancel", "stop", "reschedule", "requeue", "quarantine", "delete", "empty", "register", "deregister", "turn", "follow",
           "extend", "reap", "prune", "promote", "expire", "clean", "pause", "unpause", "resume", "set_gate", "release", "report", "open_batch",
           "close_batch", "cancel_batch", "tend_batches")  # fmt: skip
_LIMITS = ("set_limit", "release_slot")
_CRON = ("cron_put", "cron_remove", "cron_pause", "cron_resume", "cron_run", "cron_due", "cron_tick")


@dataclass(frozen=True)
class Mistake:
    """A change of the Lua text of these scripts: `old`, as it stands once in each of them without comments and indents, becomes `new`."""

    name: str
    scripts: tuple[str, ...]
    old: str
    new: str
    of_the_fence: bool = False


@cache
def _changed(name: str, mistakes: tuple[Mistake, ...], read: Callable[[Path], str]) -> scripts.Source:
    def change(body: str) -> str:
        body = body.replace(_TIME, _TEST_TIME)
        assert "'TIME'" not in body, f"{name} reads the clock in a way of its own"
        for mistake in mistakes:
            if body.count(mistake.old) != 1:  # no AssertionError: that would be taken for what a walk found
                raise LookupError(f"{mistake.name}: stands {body.count(mistake.old)} times in {name}")
            body = body.replace(mistake.old, mistake.new)
        return body

    return scripts.parsed(name, lua_build.build(name, read, change))


@contextmanager
def rewritten(mistakes: Iterable[Mistake] = ()) -> Iterator[None]:
    """Scripts that are made meanwhile read the clock of the test."""

    def load(name: str) -> scripts.Source:
        return _changed(name, tuple(mistake for mistake in mistakes if name in mistake.scripts), Reading.read)

    with patch.object(scripts, "load", load), patch.object(host, "load", load):
        yield


def broker_of(conn: redis.Redis, mistakes: Iterable[Mistake] = (), **constants: Any) -> Broker:
    """With all scripts made already: they stay as they are."""
    broker = Broker(conn, FleetConstants(**constants))
    with rewritten(mistakes):
        for name in _BROKER:
            broker._script(name)
    return broker


def cron_broker_of(conn: redis.Redis, mistakes: Iterable[Mistake] = ()) -> CronBroker:
    broker = CronBroker(conn)
    with rewritten(mistakes):
        for name in _CRON:
            broker._script(name)
    return broker


def limit_broker_of(conn: redis.Redis, mistakes: Iterable[Mistake] = ()) -> LimitBroker:
    broker = LimitBroker(conn)
    with rewritten(mistakes):
        for name in _LIMITS:
            broker._script(name)
    return broker


def clock_at(ms: int) -> tuple[Any, ...]:
    """The command that sets it."""
    return "HSET", CLOCK, "s", ms // 1000, "us", ms % 1000 * 1000


#: Everything under a prefix: name, type and contents of each key; of a stream what comes behind the entry named.
_SNAPSHOT = """
local out = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do
  local kind, value = redis.call('TYPE', key).ok
  if kind == 'hash' then value = redis.call('HGETALL', key)
  elseif kind == 'zset' then value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  elseif kind == 'list' then value = redis.call('LRANGE', key, 0, -1)
  elseif kind == 'set' then value = redis.call('SMEMBERS', key)
  elseif kind == 'stream' then value = redis.call('XRANGE', key, '(' .. ARGV[2], '+')
  else value = redis.call('GET', key) end
  out[#out + 1] = { key, kind, value }
end
return out
"""


@dataclass(frozen=True)
class Snapshot:
    """What Redis holds: hashes and sorted sets as dicts (the latter best first, as a claim reads them), lists, sets; events since the last look."""

    keys: Mapping[str, Any]
    events: list[dict[str, str]]


class Line(redis.Redis):
    """A client whose every command is sent with others: those in `before` first, and a look at all there is after it. One round trip."""

    @classmethod
    def like(cls, conn: redis.Redis) -> Line:
        line = cls(connection_pool=conn.connection_pool)
        line.begin()
        return line

    def begin(self, *first: tuple[Any, ...]) -> None:
        """On a server that holds nothing, or after these."""
        self.before, self._seen = list(first), "0-0"
        self._raw: list[list[Any]] = []

    def execute_command(self, *args: Any, **options: Any) -> Any:
        pipe = self.pipeline(transaction=False)
        for command in self.before:
            pipe.execute_command(*command)
        pipe.execute_command(*args, **options)
        pipe.execute_command("EVAL", _SNAPSHOT, 0, "rq:", self._seen)
        *_, answer, self._raw = pipe.execute(raise_on_error=False)
        self.before = []
        if isinstance(answer, Exception):
            raise answer
        return answer

    def look(self) -> Snapshot:
        """After the last command. Each event is read once."""
        keys: dict[str, Any] = {}
        events: list[dict[str, str]] = []
        for raw_key, raw_kind, value in self._raw:
            key, kind = raw_key.decode(), raw_kind.decode()
            if kind == "stream":
                events = [_texts(fields) for _, fields in value]
                if value:
                    self._seen = value[-1][0].decode()
                keys[key] = None
            elif kind == "hash":
                keys[key] = _texts(value)
            elif kind == "zset":
                flat = [part.decode() for part in value]
                keys[key] = {flat[i]: float(flat[i + 1]) for i in range(len(flat) - 2, -1, -2)}
            elif kind == "list":
                keys[key] = [part.decode() for part in value]
            elif kind == "set":
                keys[key] = {part.decode() for part in value}
            else:
                keys[key] = value.decode()
        return Snapshot(keys, events)


def _texts(flat: list[bytes]) -> dict[str, str]:
    texts = [part.decode() for part in flat]
    return dict(zip(texts[::2], texts[1::2], strict=True))
