"""A scheduler that dies or stands still at the worst places: another goes on, and nothing happens twice."""

from __future__ import annotations

import signal

import pytest
import redis

from fusion.cron.scheduler import Scheduler
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import new
from tests.kit.schedulers import Schedulers
from tests.kit.waiting import eventually
from tests.scheduler.harness import (
    NOOP,
    arrivals,
    bells,
    due_since,
    each_once,
    entry_of,
    mark_of,
    now,
    schedulers_of,
    ticks_of,
    wait_until,
)


@pytest.mark.parametrize(("place", "done"), [("cron_tick.before", 1), ("cron_tick.after", 2)])
def test_one_killed_beside_a_ticks_enqueueing_leaves_it_enqueued_once(
    schedulers: Schedulers, cron: Scheduler, conn: redis.Redis, place: str, done: int
) -> None:
    ticks = due_since(cron, conn, "a", "b", "c")
    dies = schedulers.start(env={"FUSION_FAILPOINTS": f"{place}=kill@2"})
    assert dies.wait() == -signal.SIGKILL
    assert [ticks_of(conn, entry) for entry in ("a", "b", "c")] == [ticks] * done + [[]] * (3 - done)
    schedulers.start()
    eventually(lambda: all(mark_of(conn, entry) == ticks[-1] for entry in ("a", "b", "c")))
    for entry in ("a", "b", "c"):
        each_once(conn, entry, ticks)
        assert entry_of(conn, entry).enqueued == 3


@pytest.mark.parametrize(("place", "calls"), [("promote.before", 1), ("promote.after", 2)])
def test_one_killed_beside_a_batch_of_due_jobs_leaves_each_moved_once(
    schedulers: Schedulers, conn: redis.Redis, place: str, calls: int
) -> None:
    jobs = [f"j{i}" for i in range(450)]
    Broker(conn).enqueue("q", [new(job, delay=0.2) for job in jobs], "n")
    wait_until(conn, now(conn) + 0.2)
    dies = schedulers.start(ready=False, env={"FUSION_FAILPOINTS": f"{place}=kill@2"})
    assert dies.wait() == -signal.SIGKILL
    moved = conn.zcard("rq:queue:q")
    assert moved == 80 if calls == 1 else 80 < moved <= 160, "a call moves 80 at most, and ends between two instants"
    schedulers.start()
    eventually(lambda: conn.zcard("rq:queue:q") == len(jobs), why="all are moved")
    assert arrivals(conn) == dict.fromkeys(jobs, 1)
    check_conservation(conn, jobs)


@pytest.mark.long
def test_a_scheduler_that_stood_still_repeats_nothing(schedulers: Schedulers, cron: Scheduler, conn: redis.Redis) -> None:
    ticks = due_since(cron, conn, "e")
    # it stops with what is to be enqueued in its hands
    stopped = schedulers.start("--lease", "1", "--name", "stopped", env={"FUSION_FAILPOINTS": "cron_tick.before=stop"})
    eventually(lambda: not schedulers_of(conn)["stopped"].alive, why="its lease runs out")
    assert ticks_of(conn, "e") == []
    other = schedulers.start("--lease", "1", "--name", "other")
    eventually(lambda: mark_of(conn, "e") == ticks[-1], why="the other makes up what is due")
    other.kill()
    stopped.signal(signal.SIGCONT)
    eventually(lambda: schedulers_of(conn)["stopped"].alive)
    more = due_since(cron, conn, "f")
    eventually(lambda: mark_of(conn, "f") == more[-1], why="it works on")
    each_once(conn, "e", ticks)
    each_once(conn, "f", more)
    assert entry_of(conn, "e").enqueued == len(ticks)
    assert "was set by" not in stopped.output, "its own standstill is no jump of the server's clock"


@pytest.mark.long
def test_a_token_that_is_lost_with_the_scheduler_that_took_it_delays_and_loses_nothing(
    schedulers: Schedulers, cron: Scheduler, conn: redis.Redis
) -> None:
    first = schedulers.start()
    eventually(lambda: bells(conn) == 1)
    schedulers.start()
    eventually(lambda: bells(conn) == 2)
    first.signal(signal.SIGSTOP)
    cron.every(1, NOOP, id="e", queue="q")
    assert not conn.exists("rq:wake:_scheduler"), "the one that stands still was given the token"
    eventually(lambda: ticks_of(conn, "e"), why="the other looks by itself")
