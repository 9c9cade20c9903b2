"""Redis goes and comes back: the scheduler waits, and then makes up what the policies say."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from fusion.cron.scheduler import Scheduler
from fusion.store.client.connections import connect
from tests.kit.private_redis import PrivateRedis
from tests.kit.schedulers import Schedulers
from tests.kit.waiting import eventually
from tests.scheduler.harness import NOOP, at, due_since, each_once, entry_of, mark_of, now, schedulers_of, ticks_of, without_gap
from tests.scheduler.test_declaring import Module


@pytest.mark.long
@pytest.mark.parametrize("how", ["pause", "kill"])
def test_ticks_of_an_outage_are_made_up_by_policy(private_schedulers: Schedulers, private_redis: PrivateRedis, how: str) -> None:
    conn = private_redis.conn
    cron = Scheduler(conn)
    for policy in ("all", "latest"):
        cron.every(1, NOOP, id=policy, queue="q", misfire=policy)
    made = mark_of(conn, "latest")
    scheduler = private_schedulers.start(env={"FUSION_SOCKET_TIMEOUT": "0.5"})
    eventually(lambda: all(ticks_of(conn, policy) for policy in ("all", "latest")))
    gone = int(now(conn))
    getattr(private_redis, how)()
    scheduler.says("Redis is away", timeout=10)
    eventually(lambda: at(gone + 3) < _host_now(), why="some ticks pass")
    private_redis.revive()
    conn = connect(private_redis.url)
    eventually(lambda: mark_of(conn, "all") > gone + 3, 20)
    scheduler.says("Redis is back")
    scheduler.signal(signal.SIGTERM)
    assert scheduler.wait() == 0
    ticks = ticks_of(conn, "all")
    assert without_gap(ticks)
    each_once(conn, "all", ticks)
    info = entry_of(conn, "latest")
    assert info.missed >= 1
    assert len(ticks_of(conn, "latest")) + info.missed == (info.mark or 0) - made
    assert scheduler.output.count("Redis is away") == 1
    assert "Traceback" not in scheduler.output
    conn.close()


@pytest.mark.long
def test_declared_entries_are_stored_again_after_redis_lost_them(
    private_schedulers: Schedulers, private_redis: PrivateRedis, tmp_path: Path
) -> None:
    module = Module(tmp_path / "app")
    module.write(f"def register(scheduler):\n    scheduler.every(1, '{NOOP}', id='e', queue='q')\n")
    scheduler = private_schedulers.start(*module.flags, "--lease", "1")
    scheduler.says("1 cron entries declared")
    private_redis.kill()
    scheduler.says("Redis is away")
    for kept in Path(private_redis.url.removeprefix("unix://")).parent.glob("appendonly*"):
        shutil.rmtree(kept) if kept.is_dir() else kept.unlink()
    private_redis.revive()
    with connect(private_redis.url) as conn:
        eventually(lambda: ticks_of(conn, "e"), 20, why="it ticks again")
    scheduler.says("cron entry e: new", times=2)
    assert scheduler.output.count("1 cron entries declared") == 1


@pytest.mark.long
def test_a_full_server_takes_ticks_and_declarations_once_there_is_room(
    private_schedulers: Schedulers, private_redis: PrivateRedis, tmp_path: Path
) -> None:
    conn = private_redis.conn
    cron = Scheduler(conn)
    ticks = due_since(cron, conn, "e")
    module = Module(tmp_path / "app")
    module.write(f"def register(scheduler):\n    scheduler.every(60, '{NOOP}', id='declared', queue='q')\n")
    conn.config_set("maxmemory", "1mb")
    began = now(conn)
    scheduler = private_schedulers.start(*module.flags, "--lease", "1")
    scheduler.says("cron entries can't be looked after: OOM command not allowed when used memory > 'maxmemory'", times=2)
    eventually(lambda: now(conn) > began + 2, why="longer than its lease")
    assert schedulers_of(conn)[scheduler.name].alive
    assert ticks_of(conn, "e") == []
    conn.config_set("maxmemory", "0")
    eventually(lambda: mark_of(conn, "e") == ticks[-1])
    each_once(conn, "e", ticks)
    scheduler.says("app shop version 0: 1 cron entries declared")
    scheduler.says("cron entries are looked after again", times=2)
    assert scheduler.output.count("OOM") == 2
    assert "Redis is away" not in scheduler.output


def _host_now() -> object:
    import datetime

    return datetime.datetime.now(datetime.timezone.utc)
