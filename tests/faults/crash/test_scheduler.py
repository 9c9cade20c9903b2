"""SIGKILL of a scheduler before and after each script that it calls: the next one goes on, and nothing happens twice."""

from __future__ import annotations

import signal
from datetime import datetime, timezone
from pathlib import Path

import pytest
import redis

from fusion.cron.scheduler import Scheduler
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation, check_ended, dead_entries, leftovers, memberships
from tests.kit.hands import Hand, events_of, expire_lease, may_reap, new, outcome, status_of
from tests.kit.length import gate_case
from tests.kit.schedulers import Schedulers
from tests.kit.waiting import eventually
from tests.scheduler.harness import NOOP, arrivals, due_since, each_once, entry_of, mark_of

OWN = ("scheduler_beat", "cron_due", "cron_tick", "cron_fault", "cron_retire", "scheduler_leave")
#: What others call as well.
SHARED = ("reap", "prune", "promote", "clean", "cron_put")
JOBS = [f"j{i}" for i in range(5)]
_FAR = datetime(2100, 1, 1, tzinfo=timezone.utc)
_DECLARED = f"""
import datetime

def register(scheduler):
    scheduler.every(3600, "{NOOP}", id="declared", queue="q", start={_FAR!r})
"""


class World:
    """All that a scheduler may have to do: due ticks, a broken entry, due jobs, a dead worker's job, and entries that code declares, of
    which one is declared no more."""

    def __init__(self, conn: redis.Redis, schedulers: Schedulers, directory: Path) -> None:
        self.conn, self._schedulers, self.broker = conn, schedulers, Broker(conn)
        cron = Scheduler(conn)
        self.ticks = due_since(cron, conn, "a", "b")
        cron.every(60, NOOP, id="broken", queue="q")
        conn.hset("rq:cron:entry:broken", "spec", "{")
        conn.zadd("rq:cron:due", {"broken": 0})
        cron.every(3600, NOOP, id="gone", queue="q", start=_FAR)
        conn.hset("rq:cron:entry:gone", mapping={"app": "shop", "version": "1.0"})
        conn.hset("rq:cron:apps", "shop", "1.0")
        self.broker.enqueue("q", [new("held")], "1")
        dead = Hand(self.broker, "q", name="host.9", lease=0.1)
        dead.take()
        expire_lease(conn, "q", "held")
        may_reap(conn)
        self.broker.enqueue("q", [new(job, delay=0.1) for job in JOBS], "2")
        (directory / "planned.py").write_text(_DECLARED)
        self._flags = ("-P", str(directory), "--schedule", "planned", "--app", "shop", "--app-version", "1.1", "--lease", "2")

    def strike(self, place: str) -> None:
        dies = self._schedulers.start(*self._flags, ready=False, env={"FUSION_FAILPOINTS": f"{place}=kill"})
        if place.startswith("scheduler_leave"):
            dies.wait_ready()
            dies.signal(signal.SIGTERM)
        assert dies.wait() == -signal.SIGKILL, dies.output

    def done(self) -> bool:
        """All of it, by a scheduler that lives."""
        return (
            all(mark_of(self.conn, entry) == self.ticks[-1] for entry in ("a", "b"))
            and {status_of(self.conn, job) for job in ("held", *JOBS)} == {"queued"}
            and set(Scheduler(self.conn).ids()) == {"a", "b", "broken", "declared"}
            and bool(entry_of(self.conn, "broken").error)
            and not dead_entries(self.conn)
        )

    def finish(self) -> None:
        self._schedulers.start(*self._flags)
        eventually(self.done, 20, why=f"the work is done\n{self._schedulers.output}")
        for entry in ("a", "b"):
            each_once(self.conn, entry, self.ticks)
        came = arrivals(self.conn)
        assert {came[job] for job in JOBS} == {1}
        assert [event["event"] for event in events_of(self.conn, "held")] == ["queued", "processing", "abandoned"]
        jobs = memberships(self.conn)
        assert len(jobs) == len(JOBS) + 1 + 2 * len(self.ticks)
        check_conservation(self.conn, jobs)
        hand = Hand(self.broker, "q", name="host.10")
        while claimed := hand.claim(10):
            hand.turn(*map(outcome, claimed))
        assert set(check_ended(self.conn, jobs).values()) == {"finished"}
        assert leftovers(self.conn) == []


@pytest.mark.parametrize("script", [*map(gate_case, OWN), *SHARED])
def test_one_killed_around(script: str, schedulers: Schedulers, conn: redis.Redis, tmp_path: Path) -> None:
    world = World(conn, schedulers, tmp_path)
    world.strike(f"{script}.before")
    world.strike(f"{script}.after")
    world.finish()
