"""The clock of the Redis host is set: nothing runs too early, nothing twice, and no storm follows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fusion.cron.scheduler import Scheduler
from fusion.store.redis_server.binary import ServerBinary
from tests.faults.rig.clock import SetClockRedis, why_not
from tests.kit.schedulers import SchedulerProcess, Schedulers
from tests.kit.waiting import eventually
from tests.scheduler.harness import NOOP, arrivals, at, bells, entry_of, mark_of, ticks_of

pytestmark = pytest.mark.skipif(why_not() is not None, reason=why_not() or "")

HOUR = 3600
#: Entries whose first tick is half an hour away, all others a minute behind the one before.
POLICIES = ("latest", "all", "skip")


class World:
    """Two schedulers with a lease of one second on a Redis whose clock can be set, and entries that are due at once and much later."""

    def __init__(self, server: SetClockRedis, schedulers: Schedulers) -> None:
        self.server, self.conn = server, server.conn
        self.cron = Scheduler(server.conn)
        self.began = int(server.now())
        for policy in POLICIES:
            self.cron.every(60, NOOP, id=policy, queue="q", misfire=policy, start=at(self.began + 1800))
        self.cron.every(1, NOOP, id="seconds", queue="q")
        self._factory = schedulers
        self.schedulers = [self.start("one"), self.start("two")]
        # only one that has looked before can notice
        eventually(lambda: bells(self.conn) == 2 and ticks_of(self.conn, "seconds"))

    def start(self, name: str) -> SchedulerProcess:
        return self._factory.start("--lease", "1", "--name", name)

    def jobs(self) -> dict[str, int]:
        return {policy: len(ticks_of(self.conn, policy)) for policy in POLICIES}

    def say(self, text: str) -> None:
        for scheduler in self.schedulers:
            scheduler.says(text)

    def ran_once(self) -> None:
        assert set(arrivals(self.conn).values()) == {1}

    @property
    def output(self) -> str:
        return "".join(scheduler.output for scheduler in self.schedulers)


@pytest.fixture
def world(server_binary: ServerBinary, tmp_path: Path) -> Iterator[World]:
    server = SetClockRedis(server_binary)
    schedulers = Schedulers(server.url, tmp_path)
    try:
        yield World(server, schedulers)
    finally:
        schedulers.stop()
        server.close()


def test_an_hour_ahead_is_held_off_for_a_lease_and_then_ticks_run_by_policy(world: World) -> None:
    seconds = len(ticks_of(world.conn, "seconds"))
    world.server.set(HOUR)
    jumped = world.server.now()
    world.say("the clock of Redis was set by +3600 s: no cron tick is decided for 1 s")
    eventually(lambda: mark_of(world.conn, "seconds") > jumped + 1, why="it ticks on after the hold-off")
    eventually(lambda: all(mark_of(world.conn, policy) > jumped - 60 for policy in POLICIES))
    history = world.cron.history("seconds")
    first = min((line for line in history if line.at > at(jumped)), key=lambda line: line.at)
    assert first.at >= at(jumped + 0.5), "nothing was decided at once"
    # 30 minutes of ticks a minute apart were jumped over
    assert world.jobs()["latest"] in (1, 2)
    assert world.jobs()["skip"] in (0, 1, 2), "one whose time has come just now"
    assert 30 <= world.jobs()["all"] <= 32
    assert len(ticks_of(world.conn, "seconds")) < seconds + 15, "no storm"
    assert entry_of(world.conn, "seconds").missed >= HOUR // 4  # counted up to 1,000
    world.ran_once()


@pytest.mark.long
def test_two_hours_back_entries_wait_for_their_mark_until_pause_and_resume_free_them(world: World) -> None:
    world.server.set(-2 * HOUR)
    world.say("the clock of Redis was set by -7200 s")
    ran, waits_for = ticks_of(world.conn, "seconds"), mark_of(world.conn, "seconds")
    world.schedulers[0].kill()
    fresh = world.start("fresh")
    world.cron.every(1, NOOP, id="seconds", queue="q", log_tag="changed")
    made = int(world.server.now())
    world.cron.every(1, NOOP, id="beside", queue="q")
    eventually(lambda: mark_of(world.conn, "beside") > made + 1, why="what was made since then runs")
    shown = at(waits_for).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert f"cron entry seconds has run up to {shown} and waits for that" in world.output + fresh.output
    assert ticks_of(world.conn, "seconds") == ran
    assert mark_of(world.conn, "seconds") == waits_for > world.server.now() + HOUR
    assert world.conn.zscore("rq:cron:due", "seconds") == waits_for, "it is not looked at before that"

    world.cron.pause("seconds")
    world.cron.resume("seconds")
    eventually(lambda: len(ticks_of(world.conn, "seconds")) > len(ran), why="it is free")
    more = sorted(set(ticks_of(world.conn, "seconds")) - set(ran))
    assert made <= more[0] <= more[-1] <= world.server.now()
    assert world.jobs() == dict.fromkeys(POLICIES, 0)
    world.ran_once()


@pytest.mark.long
def test_a_jump_that_is_taken_back_during_the_hold_off_ran_nothing_early(world: World) -> None:
    world.server.set(HOUR)
    world.say("was set by +3600 s")
    world.server.set(0)
    world.say("was set by -3600 s")
    resumed = world.server.now()
    eventually(lambda: mark_of(world.conn, "seconds") > resumed + 1, why="it ticks on")
    assert world.jobs() == dict.fromkeys(POLICIES, 0)
    assert max(ticks_of(world.conn, "seconds")) <= world.server.now()
    world.ran_once()
