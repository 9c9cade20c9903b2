"""Limits and rates of queues through real workers: what starts when, by Redis's clock; what idle workers do meanwhile; kills."""

from __future__ import annotations

import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import redis

from fusion import Job, Queue
from tests.faults.rig.conservation import check_conservation
from tests.jobs import bounded
from tests.kit.length import SOAK_ONLY, soaked
from tests.kit.waiting import eventually
from tests.kit.witnesses import lines
from tests.kit.workers import Workers, wait_may_recover

ENV = {"FUSION_TASKS": "tests.jobs.bounded"}


def starts(conn: redis.Redis) -> list[float]:
    """Seconds by Redis's clock at which jobs were claimed."""
    return [int(stamp.split(b"-")[0]) / 1000 for stamp, event in conn.xrange("rq:events") if event[b"event"] == b"processing"]


def most_over(found: list[float], per_second: float) -> float:
    """By how many the starts in any window were more than the rate allows in it."""
    low, excess = float("inf"), 0.0
    for nth, at in enumerate(found):
        low = min(low, nth - per_second * at)  # of the best beginning of a window so far
        excess = max(excess, nth + 1 - per_second * at - low)
    return excess


def turns(conn: redis.Redis) -> int:
    """Turns that all workers have taken."""
    found = (conn.hget(key, "turn") for key in conn.smembers("rq:workers"))
    return sum(int(memory.split(b"\n")[0]) for memory in found if memory)


def _rated(workers: Workers, conn: redis.Redis, seconds: float) -> None:
    queue = Queue("r")
    queue.set_rate("100/s", burst=20)
    queue.enqueue_many([queue.prepare_data(bounded.noop) for _ in range(int(100 * (seconds + 10)))])
    for worker in [workers.start("r", "--horses", "1", env=ENV, ready=False) for _ in range(4)]:
        worker.wait_ready()
    eventually(lambda: len(starts(conn)) > 40, why="the burst is over")
    last, found, end = "-", list[float](), time.monotonic() + seconds
    before = len(starts(conn))
    while True:  # only the last 10,000 events are kept
        for stamp, event in conn.xrange("rq:events", last):
            last = f"({stamp.decode()}"
            if event[b"event"] == b"processing":
                found.append(int(stamp.split(b"-")[0]) / 1000)
        if time.monotonic() > end:
            break
        time.sleep(0.5)  # not a wait for anything: the window of the measurement
    assert most_over(found, 100) <= 20 + 1, "an event has a millisecond's time"
    shown = found[before:]
    count = len([at for at in shown if at < shown[0] + seconds - 0.5]) - 1
    wanted = 100 * (seconds - 0.5)
    print(
        f"100/s over 4 workers: {count} starts where {wanted:.0f} are due, at most {most_over(found, 100):.1f} more in any window"
    )
    assert abs(count - wanted) <= 0.02 * wanted + 1


@pytest.mark.long
def test_a_rate_over_four_workers(workers: Workers, conn: redis.Redis) -> None:
    _rated(workers, conn, 2.5)


@SOAK_ONLY
@pytest.mark.long
@pytest.mark.timeout(180)
def test_a_rate_over_four_workers_for_a_minute(workers: Workers, conn: redis.Redis) -> None:
    _rated(workers, conn, 60)


def _herd(workers: Workers, conn: redis.Redis, count: int, seconds: float) -> None:
    queue = Queue("h")
    queue.set_rate("10/s", burst=1)
    for _ in range(count):
        workers.start("h", env=ENV, ready=False)
    eventually(lambda: conn.scard("rq:workers") == count, 120)
    eventually(lambda: all(conn.hget(key, "turn") for key in conn.smembers("rq:workers")))
    time.sleep(1)  # what their start cost
    before, began = turns(conn), time.monotonic()
    time.sleep(seconds)
    at_rest = (turns(conn) - before) / (time.monotonic() - began)
    queue.enqueue_many([queue.prepare_data(bounded.nap, [0.15]) for _ in range(int(10 * seconds + 50))])
    eventually(lambda: len(starts(conn)) > 3)
    before, first, began = turns(conn), len(starts(conn)), time.monotonic()
    time.sleep(seconds)
    taken, spent, started = turns(conn) - before, time.monotonic() - began, len(starts(conn)) - first
    each = (taken - at_rest * spent) / started
    print(
        f"{count} idle workers: {at_rest:.1f} turns/s at rest, {started} starts in {spent:.1f} s, {each:.2f} turns more for each"
    )
    assert started >= 9 * spent - 2
    assert each <= 3.0


@pytest.mark.long
def test_idle_workers_do_not_stampede(workers: Workers, conn: redis.Redis) -> None:
    _herd(workers, conn, *soaked((20, 6), (50, 10)))


@pytest.mark.long
def test_a_killed_worker_that_waited_for_a_rate_is_replaced(workers: Workers, conn: redis.Redis) -> None:
    queue = Queue("w")
    queue.set_rate("2/s", burst=1)
    jobs = queue.enqueue_many([queue.prepare_data(bounded.noop) for _ in range(4)])
    fleet = {name: workers.start("w", "--name", name, env=ENV) for name in ("one", "two")}
    eventually(lambda: all(job.get_status() == "finished" for job in jobs))
    queue.set_rate("1/8s", burst=1)
    more = queue.enqueue_many([queue.prepare_data(bounded.noop) for _ in range(2)])

    def waits() -> str:  # one look: between two it may have ended
        name = (conn.hget("rq:gate:w", "waiter") or b"").decode()
        return name if name in fleet and len(starts(conn)) == 5 else ""

    waiter = eventually(waits)
    fleet[waiter].process.kill()
    killed = time.monotonic()
    eventually(lambda: conn.hget("rq:gate:w", "waiter") not in (None, waiter.encode()), 10)
    print(f"the worker that waits is replaced after {time.monotonic() - killed:.1f} s")
    assert more[1].wait(15) == "finished"


def _waiter_of(conn: redis.Redis, queue: str) -> str:
    return (conn.hget(f"rq:gate:{queue}", "waiter") or b"").decode()


@pytest.mark.long
def test_a_quiet_worker_passes_on_its_wait_for_a_rate(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    queue = Queue("w")
    queue.set_rate("1/8s", burst=1)
    gate = tmp_path / "gate"
    gate.touch()
    held = Queue("other").enqueue("tests.jobs.basic.until_gone", str(gate))
    env = ENV | {"FUSION_TASKS": "tests.jobs", "FUSION_IDLE_WAIT": "30"}
    one = workers.start("w", "other", "--slots", "2", "--name", "one", env=env)
    eventually(lambda: held.get_status() == "started")
    queue.enqueue_many([queue.prepare_data(bounded.noop) for _ in range(3)])
    eventually(lambda: _waiter_of(conn, "w") == "one")
    two = workers.start("w", "--name", "two", env=env)
    one.signal(signal.SIGTERM)  # its other slot is busy for long
    eventually(lambda: _waiter_of(conn, "w") == "two", 2, why="the other one waits")
    workers.start("w", "--name", "three", env=env)
    two.signal(signal.SIGTSTP)  # quiet
    eventually(lambda: _waiter_of(conn, "w") == "three", 2, why="the third one waits")
    gate.unlink()
    assert one.wait(10) == 0


@pytest.mark.long
def test_a_limit_holds_as_the_tasks_see_it_whoever_dies(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    _killed(workers, conn, tmp_path, jobs=30, kills=2)


@pytest.mark.long
def test_a_limit_holds_through_many_deaths(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    _killed(workers, conn, tmp_path, jobs=200, kills=12)


def _killed(workers: Workers, conn: redis.Redis, tmp_path: Path, *, jobs: int, kills: int) -> None:
    (tmp_path / "running").mkdir()
    queue, chance = Queue("l"), random.Random(11)
    queue.set_limit(3)
    env = ENV | {"FUSION_LEASE": "1", "FUSION_MAX_LOST": "100"}
    accepted = queue.enqueue_many([queue.prepare_data(bounded.counted, [str(tmp_path), 0.03]) for _ in range(jobs)])
    fleet = [workers.start("l", "--slots", "3", env=env, ready=False) for _ in range(2)]
    for worker in fleet:
        worker.wait_ready()
    wait_may_recover(conn)
    for _ in range(kills):
        eventually(lambda: list(lines(tmp_path / "seen")))
        victim = chance.choice(fleet)
        horses = victim.horses()
        if horses and chance.random() < 0.5:
            with suppress(psutil.NoSuchProcess):  # it was faster
                chance.choice(horses).kill()
        else:
            victim.process.kill()
            fleet.remove(victim)
            fleet.append(workers.start("l", "--slots", "3", env=env))
    eventually(lambda: conn.zcard("rq:finished:l") + conn.zcard("rq:queue:failed") == jobs, 60)
    seen = [int(line.split()[0]) for line in lines(tmp_path / "seen")]
    assert max(seen) == 3
    assert len(seen) >= jobs
    check_conservation(conn, [job.id for job in accepted])
    assert conn.zcard("rq:wip:l") == 0


def test_a_providers_429(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    workers.start("p", "--slots", "2", env=ENV)
    first = Queue("p").enqueue(bounded.refused, str(tmp_path / "seen"), 1.5, 1)
    eventually(lambda: first.get_status() == "scheduled")
    held = conn.hget("rq:gates", "p") or b""
    assert held.startswith(b"until=")
    second = Queue("p").enqueue(bounded.noop)
    assert first.wait(10) == "finished"
    assert second.wait(10) == "finished"
    at = starts(conn)
    assert min(at[1], at[2]) - at[0] >= 1.5
    job = Job.fetch(first.id)
    assert (job.result, job.attempts, job.retry_count) == ("run 2", 0, 7)
    eventually(lambda: conn.exists("rq:gates") == 0)
    check_conservation(conn, [first.id, second.id])


def test_a_task_with_a_key_holds_its_key_back(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    workers.start("p", "--slots", "2", env=ENV)
    queue, key = Queue("p"), {"concurrency_key": "smtp"}
    first = queue.enqueue(bounded.refused, str(tmp_path / "seen"), 0.5, 1, **key)
    second, other = queue.enqueue(bounded.noop, **key), queue.enqueue(bounded.noop)
    assert [job.wait(10) for job in (other, first, second)] == ["finished"] * 3
    ids = [event[b"job_id"].decode() for _, event in conn.xrange("rq:events") if event[b"event"] == b"processing"]
    began = list(zip(ids, starts(conn), strict=True))
    assert [ids[0], ids[1], ids[2:]] == [first.id, other.id, [first.id, second.id]], "only what has the key waits"
    assert began[2][1] - began[0][1] >= 0.5
    job = Job.fetch(first.id)
    assert (job.result, job.attempts) == ("run 2", 0)
    assert conn.hexists("rq:limit:smtp", "held_back")
    assert not conn.exists("rq:gates")
    check_conservation(conn, [first.id, second.id, other.id])


def test_the_setting(workers: Workers, conn: redis.Redis) -> None:
    workers.start("s", env=ENV | {"FUSION_QUEUE_GATES": "s limit=2 rate=100/60s burst=5; other max_wait=5m"})
    assert conn.hgetall("rq:gates") == {b"s": b"limit=2 rate=100/60000/5", b"other": b"max_wait=300000"}


@pytest.mark.long
def test_a_worker_that_starts_again_leaves_what_was_set_by_hand(workers: Workers, conn: redis.Redis) -> None:
    for setting, limit in (("20", b"20"), ("20", b"2"), ("30", b"30")):
        worker = workers.start("s", env=ENV | {"FUSION_QUEUE_GATES": f"s limit={setting}"})
        assert conn.hget("rq:gates", "s") == b"limit=" + limit
        Queue("s").set_limit(2)
        worker.kill()
