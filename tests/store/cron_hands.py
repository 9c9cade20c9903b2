"""What the tests of the cron scripts share: an entry and a scheduler's hands without a plan, so that the ticks are what a test says."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import redis

from fusion.store.layout.keys import Keys
from fusion.store.layout.records import NewJob, StoredEntry, Tick
from fusion.store.write.cron_broker import CronBroker, tick_name
from tests.kit.hands import DATA, LEASE, now_ms

PLAN, SPEC = '{"every":60}', '{"func":"tasks.sms.sendSMS"}'


def now_s(conn: redis.Redis) -> int:
    return now_ms(conn) // 1000


def job(*, priority: int = 1, ttl: float | None = None, **fields: Any) -> NewJob:
    return NewJob("", priority, {"data": DATA, "result_ttl": 500, **fields}, ttl=ttl)


def job_id(entry: str, tick: int) -> str:
    return f"cron-{entry}-{tick_name(tick)}"


def mark_of(conn: redis.Redis, entry: str = "e") -> int | None:
    found = conn.zscore("rq:cron:marks", entry)
    return None if found is None else int(found)


def look_of(conn: redis.Redis, entry: str = "e") -> float | None:
    """When the entry is to be looked at next, Unix seconds."""
    return conn.zscore("rq:cron:due", entry)


def fields_of_entry(conn: redis.Redis, entry: str = "e") -> dict[str, str]:
    raw: dict[bytes, bytes] = conn.hgetall(f"rq:cron:entry:{entry}")
    return {name.decode(): value.decode() for name, value in raw.items()}


def history_of(conn: redis.Redis, entry: str = "e") -> list[tuple[int, str, str]]:
    """(tick, outcome, what), the oldest first."""
    rows = [line.decode().split(" ", 3) for line in conn.lrange(f"rq:cron:history:{entry}", 0, -1)]
    return [(int(row[0]), row[1], row[3]) for row in rows]


def rung(conn: redis.Redis) -> bool:
    """Whether a scheduler was woken; takes the token, of which there is one at most."""
    tokens = conn.lrange("rq:wake:_scheduler", 0, -1)
    conn.delete("rq:wake:_scheduler")
    assert tokens in ([], [b"1"])
    return bool(tokens)


class Cron:
    """One entry, stored, and a scheduler's hands."""

    def __init__(
        self, conn: redis.Redis, entry: str = "e", *, since: int = 600, queue: str = "q", overlap: str = "allow"
    ) -> None:
        self.conn, self.entry, self.queue, self.overlap = conn, entry, queue, overlap
        self.broker = CronBroker(conn)
        assert self.put() == "new"
        self.now = now_s(conn)
        #: As if its last tick had been decided this many seconds ago, and another were due.
        self.set_mark(self.now - since)
        rung(conn)

    def put(self, plan: str = PLAN, spec: str = SPEC, **more: str) -> str:
        return self.broker.cron_put(self.entry, plan, spec, rev_of(plan, spec), **more)

    def set_mark(self, mark: int | None) -> None:
        if mark is None:
            self.conn.zrem("rq:cron:marks", self.entry)
        else:
            self.conn.zadd("rq:cron:marks", {self.entry: mark})

    @property
    def stored(self) -> StoredEntry:
        """As `cron_due` reads it, whether it is due or not."""
        keys = Keys()
        mark = self.conn.eval("return redis.call('ZSCORE', KEYS[1], ARGV[1]) or ''", 1, keys.cron_marks, self.entry)
        found = self.conn.hmget(keys.cron_entry(self.entry), "plan", "spec", "rev")
        return StoredEntry(self.entry, mark.decode(), *((value or b"").decode() for value in found))

    def tick(
        self,
        *ticks: int,
        read: StoredEntry | None = None,
        upto: int | None = None,
        following: int | None = 0,
        missed: int = 0,
        delay: float = 0.0,
        nonce: str = "",
        of: NewJob | None = None,
    ) -> tuple[str, int, int]:
        """Decide these; `following`: the first tick after them, 0 = a minute from now."""
        end = upto if upto is not None else ticks[-1]
        plan = Tick(end, tuple((at, delay) for at in ticks), now_s(self.conn) + 60 if following == 0 else following, missed)
        return self.broker.cron_tick(
            read or self.stored, plan, of or job(), self.queue, nonce or secrets.token_hex(6), overlap=self.overlap
        )

    def run(self, nonce: str = "", *, rev: str = "", overlap: str = "") -> tuple[str, str]:
        rev = rev or rev_of(PLAN, SPEC)
        return self.broker.cron_run(
            self.entry, rev, job(), self.queue, nonce or secrets.token_hex(6), overlap=overlap or self.overlap
        )

    def id(self, tick: int) -> str:
        return job_id(self.entry, tick)


def rev_of(plan: str, spec: str) -> str:
    return f"rev of {plan} {spec}"


def said_nothing(_answer: object) -> None:
    """For methods that count what they did: the second time, that is less."""


def of_cron(conn: redis.Redis) -> dict[str, Callable[[], Any]]:
    """Calls that have to do with cron, for the tests of resends."""
    once, guarded = Cron(conn, "once"), Cron(conn, "guarded", overlap="skip")
    broker = once.broker
    guarded.tick(guarded.now - 60)
    broker.cron_put("old", "p", "s", "r", app="a", version="1")
    broker.cron_retire("a", "1", ["old"])
    broker.cron_put("paused", "p", "s", "r")
    broker.cron_pause("paused")
    broker.scheduler_beat("gone", "i", LEASE, 420, {"app": "a"})
    read, held = once.stored, guarded.stored
    return {
        "cron_put": lambda: said_nothing(broker.cron_put("new", "p", "s", "r")),
        "cron_put_changed": lambda: said_nothing(once.put(plan="another")),
        "cron_put_faulty": lambda: broker.cron_put("once", "", "", "", error="no such zone"),
        "cron_retire": lambda: said_nothing(broker.cron_retire("a", "2", ["new"])),
        "cron_remove": lambda: said_nothing(broker.cron_remove("once")),
        "cron_pause": lambda: broker.cron_pause("once"),
        "cron_resume": lambda: said_nothing(broker.cron_resume("paused")),
        "cron_run": lambda: once.run("nonce"),
        "cron_tick": lambda: once.tick(once.now - 60, once.now, read=read, missed=3, delay=0.5, nonce="nonce"),
        "cron_tick_overlap": lambda: guarded.tick(guarded.now, read=held, following=None, nonce="nonce"),
        "cron_fault": lambda: broker.cron_fault(read, "damaged"),
        "scheduler_beat": lambda: broker.scheduler_beat("new", "i", LEASE, 420, {"app": "a", "version": "2"}),
        "scheduler_leave": lambda: said_nothing(broker.scheduler_leave("gone", "i")),
    }
