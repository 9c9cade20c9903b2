"""Schedulers that are killed at any moment: each tick is enqueued once, whoever was alive then. `make soak` runs it for five minutes."""

from __future__ import annotations

import os
import random
import time

import pytest
import redis

from fusion.cron.scheduler import Scheduler
from tests.kit.promises import claim, promise
from tests.kit.schedulers import SchedulerProcess, Schedulers
from tests.kit.waiting import eventually
from tests.scheduler.harness import NOOP, arrivals, each_once, mark_of, now, window

#: Ticks of one entry in a long run; without it thirteen have 8 each.
SOAK = int(os.environ.get("FUSION_SOAK_TICKS", "0"))
TICKS, ENTRIES = (SOAK, 1) if SOAK else (8, 13)
SEED = int(os.environ.get("FUSION_SOAK_SEED", "4"))


@claim("P9")
@pytest.mark.long
@pytest.mark.timeout(TICKS + 60)
def test_each_tick_is_enqueued_once_while_three_schedulers_are_killed_again_and_again(
    schedulers: Schedulers, cron: Scheduler, conn: redis.Redis
) -> None:
    rng = random.Random(SEED)
    bounds = window(conn, TICKS, lead=2)
    first, last = (int(bounds[name].timestamp()) for name in ("start", "end"))
    entries = [cron.every(1, NOOP, id=f"chaos{i}", queue="c", misfire="all", **bounds) for i in range(ENTRIES)]
    running: list[SchedulerProcess] = [schedulers.start("--lease", "2", ready=False) for _ in range(3)]
    kills = 0
    while now(conn) < last:
        time.sleep(rng.uniform(0.05, 0.8))  # the moments of the kills
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            running.pop(rng.randrange(len(running))).kill()
            kills += 1
        running += [schedulers.start("--lease", "2", ready=False) for _ in range(3 - len(running))]
    eventually(lambda: all(mark_of(conn, entry) == last for entry in entries), 30, why="all ticks are decided")
    for entry in entries:
        with promise("P9"):
            each_once(conn, entry, range(first, last + 1))
    assert sum(arrivals(conn).values()) == TICKS * ENTRIES
    print(f"{TICKS * ENTRIES} jobs for {TICKS * ENTRIES} ticks, {kills} kills")
    assert kills > TICKS / 2
    assert "Traceback" not in schedulers.output
