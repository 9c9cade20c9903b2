"""One job per entry and tick, whatever schedulers, clocks and late copies of calls do."""

from __future__ import annotations

import os
import random

import pytest
import redis

from tests.faults.model.cron import CronMachine
from tests.faults.model.scripts import Mistake
from tests.faults.model.walk import finds, walk

SOAK = os.environ.get("FUSION_TEST_SOAK", "") not in ("", "0")

MISTAKES = (
    Mistake(
        "a late scheduler decides too",
        ("cron_tick",),
        "if rev ~= A_rev or paused or (redis.call('ZSCORE', K_marks, A_id) or '') ~= A_mark then return { 'stale', 0, 0 } end",
        "",
    ),
    Mistake(
        "the mark stays",
        ("cron_tick",),
        "redis.call('ZADD', K_marks, mark, A_id)\nredis.call('ZADD', K_due,",
        "redis.call('ZADD', K_due,",
    ),
    Mistake("a tick sent again is decided again", ("cron_tick",), "if nonce == A_nonce then", "if false then"),
    Mistake(
        "due jobs leave the schedule first",
        ("promote",),
        "if status ~= 'scheduled' then",
        "redis.call('ZREM', K_scheduled, id)\nif redis.call('ZCARD', K_scheduled) > 0 then return end\nif status ~= 'scheduled' then",
    ),
)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("overlap", ["allow", "skip"])
def test_a_tick_has_one_job(admin: redis.Redis, overlap: str) -> None:
    walk(admin, 1, 20, 50, machine=CronMachine, overlap=overlap)


@pytest.mark.skipif(not SOAK, reason="a long walk: FUSION_TEST_SOAK=1")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("overlap", ["allow", "skip"])
def test_a_tick_has_one_job_on_new_ways(admin: redis.Redis, overlap: str) -> None:
    start = random.randrange(2**32)
    print(f"walk(admin, {start}, 500, 100, machine=CronMachine, overlap={overlap!r})")
    walk(admin, start, 500, 100, machine=CronMachine, overlap=overlap)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name.replace(" ", "-"))
def test_a_walk_finds(admin: redis.Redis, mistake: Mistake) -> None:
    assert finds(admin, mistake, CronMachine)
