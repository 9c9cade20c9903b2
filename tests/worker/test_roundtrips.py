"""What a job costs: round trips, connections, time to its start, and what a worker at rest takes."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import redis

from fusion import Queue
from tests.jobs import basic
from tests.support import eventually
from tests.worker.harness import Workers, lines
from tests.worker.monitor import Monitor


@pytest.fixture
def monitor(redis_url: str, conn: redis.Redis) -> Iterator[Monitor]:
    watching = Monitor(redis_url, conn)
    yield watching
    watching.close()


def connections_made(conn: redis.Redis) -> int:
    return int(conn.info("stats")["total_connections_received"])


def at_doorbell(conn: redis.Redis) -> bool:
    return any(client["cmd"] == "blpop" for client in conn.client_list())


def test_an_enqueue_is_one_command(conn: redis.Redis, monitor: Monitor) -> None:
    queue = Queue("sms")
    queue.enqueue(basic.noop)  # from here on the server knows the script
    before = connections_made(conn)
    monitor.commands()
    for n in range(20):
        queue.enqueue(basic.noop, n, priority=n % 3, ttl=60, meta={"n": n})
    assert monitor.commands() == ["EVALSHA"] * 20
    queue.enqueue_many([Queue.prepare_data(basic.noop, (n,)) for n in range(1200)])
    assert monitor.commands() == ["EVALSHA"] * 3
    assert connections_made(conn) == before


def test_a_busy_worker_needs_one_round_trip_a_job(workers: Workers, conn: redis.Redis, monitor: Monitor) -> None:
    worker = workers.start("sms", "--disable-job-desc-logging")
    queue = Queue("sms")
    datas = [Queue.prepare_data(basic.noop) for _ in range(500)]
    queue.enqueue(basic.noop).wait(10)  # all connections are made, all scripts are loaded
    eventually(lambda: at_doorbell(conn))
    before = connections_made(conn)
    monitor.commands()
    queue.enqueue_many(datas)
    eventually(lambda: conn.zcard("rq:finished:sms") == 501, timeout=40, interval=0.2, why=worker.output)
    sent = Counter(monitor.commands())
    polls = sent.pop("ZCARD")
    evals = sent.pop("EVALSHA") - 1  # the enqueue
    # one second of its life may cost a handful for the duties and the doorbell, no job does
    assert 500 <= evals <= 500 * 1.02 + 5 + 3 * (polls * 0.2 + 1)
    assert sum(sent.values()) <= 5 + 3 * (polls * 0.2 + 1), sent
    assert connections_made(conn) == before


def test_an_idle_worker_starts_a_job_at_once(workers: Workers, conn: redis.Redis) -> None:
    workers.start("sms", env={"FUSION_IDLE_WAIT": "60"})
    queue = Queue("sms")
    waits = []
    for _ in range(50):
        eventually(lambda: at_doorbell(conn), interval=0.002)
        before = time.time()
        job = queue.enqueue(basic.moment)
        assert job.wait(10) == "finished"
        waits.append((job.result - before) * 1000)
    cuts = statistics.quantiles(waits, n=100)
    print(f"enqueue -> start on an idle worker: p50 {cuts[49]:.2f} ms, p99 {cuts[98]:.2f} ms")
    assert cuts[49] < 50


def test_a_worker_at_rest_takes_next_to_no_cpu(workers: Workers, conn: redis.Redis, monitor: Monitor) -> None:
    worker = workers.start("--customq", "all")
    Queue("sms").enqueue(basic.noop).wait(10)
    eventually(lambda: at_doorbell(conn))

    def spent() -> float:
        resident = (psutil.Process(worker.pid), worker.fork_server())
        return sum(times.user + times.system for times in (process.cpu_times() for process in resident))

    monitor.commands()
    before, begin = spent(), time.monotonic()
    time.sleep(3)  # not a wait for anything: the window of the measurement
    share = (spent() - before) / (time.monotonic() - begin)
    rate = (len(monitor.commands()) - 1) / (time.monotonic() - begin)
    print(f"a worker at rest: {share:.2%} of a CPU, {rate:.1f} commands a second")
    assert share < 0.02
    assert rate < 5


def test_the_worker_itself_never_imports_user_code(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    imported = tmp_path / "pids"
    worker = workers.start("sms", env={"FUSION_TASKS": "tests.jobs.gated", "GATED_WITNESS": str(imported)})
    server = worker.fork_server().pid
    jobs = [Queue("sms").enqueue("tests.jobs.gated.parent") for _ in range(5)]
    assert [job.wait(10) for job in jobs] == ["finished"] * 5
    assert [int(line) for line in lines(imported)] == [server]  # once, in the fork server
    pids = [job.result for job in jobs]
    assert {parent for _, parent in pids} == {server}
    assert len({own for own, _ in pids} - {server, worker.pid}) == 5  # a process per job


def test_without_preload_each_job_imports_for_itself(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    imported = tmp_path / "pids"
    env = {"FUSION_TASKS": "tests.jobs.gated", "GATED_WITNESS": str(imported), "FUSION_PRELOAD": "off"}
    worker = workers.start("sms", env=env)
    job = Queue("sms").enqueue("tests.jobs.gated.parent")
    assert job.wait(10) == "finished"
    pids = [int(line) for line in lines(imported)]
    assert job.result[0] in pids
    assert not {worker.pid, worker.fork_server().pid} & set(pids)
