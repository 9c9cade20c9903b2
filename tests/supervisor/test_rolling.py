"""HUP: every worker is replaced, none before its successor is ready, and no job notices."""

from __future__ import annotations

import logging
import re
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
import redis

from fusion import Queue
from fusion.job import Job
from fusion.runtime.child_process import Child
from fusion.supervisor.rolling import Rolling
from fusion.supervisor.supervisor import Post
from tests.faults.rig.conservation import check_conservation
from tests.kit.waiting import eventually, unhurried
from tests.kit.witnesses import alive, field, status_of
from tests.supervisor.conftest import Gate
from tests.supervisor.harness import Services

#: In the log: a worker can take jobs; one was told to take no more.
_READY, _LEAVES = re.compile(r"worker \d+ \(pid .*\) is ready"), "warm shutdown"


def least_ready(output: str, full: int) -> int:
    """The fewest workers that could take jobs at any time since all of them could."""
    now, least = 0, full
    complete = False
    for line in output.splitlines():
        now += bool(_READY.search(line)) - (_LEAVES in line)
        complete = complete or now == full
        if complete:
            least = min(least, now)
    return least


@pytest.mark.long
def test_a_rolling_restart_under_load_loses_nothing(services: Services, conn: redis.Redis) -> None:
    service = services.start(3, "s", "--slots", "2")
    before = set(service.ready_pids())
    queue, jobs, enough = Queue("s", conn), list[Job](), threading.Event()

    def produce() -> None:
        while not enough.is_set():
            jobs.append(queue.enqueue("tests.jobs.basic.sleep", 0.02))
            enough.wait(0.01)

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        eventually(lambda: len(jobs) > 10)
        service.signal(signal.SIGHUP)
        service.says("rolling restart is complete", timeout=unhurried(30))
    finally:
        enough.set()
        producer.join()
    eventually(lambda: all(status_of(conn, job.id) == "finished" for job in jobs), unhurried(20), why="all jobs ran")
    after = {worker.pid for worker in service.workers()}
    assert len(after) == 3
    assert not before & after
    assert least_ready(service.output, 3) == 3
    assert not [job.id for job in jobs if field(conn, job.id, "lost") or field(conn, job.id, "deliveries") != "1"]
    check_conservation(conn, [job.id for job in jobs])
    print(f"{len(jobs)} jobs during a rolling restart of 3 workers")
    service.signal(signal.SIGTERM)
    service.ended(0)
    assert "ProcessExitError" not in service.output


@pytest.mark.long
def test_the_new_ones_run_the_new_code_and_the_old_ones_finish(
    services: Services, conn: redis.Redis, tmp_path: Path, gate: Gate
) -> None:
    code = tmp_path / "shopcode.py"
    code.write_text("def version():\n    return 'old'\n")
    service = services.start(1, "s", "-P", str(tmp_path), "--tasks", "shopcode")
    running = gate.enqueue()
    gate.begun(running)
    code.write_text("def version():\n    return 'brand-new'\n")
    service.signal(signal.SIGHUP)
    service.until_ready(2)
    job = gate.queue.enqueue("shopcode.version")
    eventually(lambda: status_of(conn, job.id) == "finished")
    assert Job.fetch(job.id, conn).result == "brand-new"
    assert status_of(conn, running.id) == "started"
    assert len(service.workers()) == 2
    gate.open()
    service.says("rolling restart is complete")
    assert status_of(conn, running.id) == "finished"
    assert len(gate.pids(running)) == 1
    assert len(service.workers()) == 1


@pytest.mark.long
def test_a_second_hup_meanwhile_rolls_again(services: Services, conn: redis.Redis, gate: Gate) -> None:
    job = gate.enqueue()
    service = services.start(1, "s")
    gate.begun(job)
    service.signal(signal.SIGHUP)
    service.until_ready(2)
    service.signal(signal.SIGHUP)
    service.signal(signal.SIGHUP)
    gate.open()
    service.says("rolling restart is complete", 2)
    assert len(set(service.ready_pids())) == 3
    assert [worker.pid for worker in service.workers()] == [service.ready_pids()[-1]]


@pytest.mark.long
def test_a_stop_in_the_middle_of_a_roll_ends_old_and_new(services: Services, conn: redis.Redis, gate: Gate) -> None:
    job = gate.enqueue()
    service = services.start(2, "s")
    gate.begun(job)
    service.signal(signal.SIGHUP)
    service.until_ready(3)
    service.note()
    service.signal(signal.SIGTERM)
    service.says("stopping 3 process(es)")
    gate.open()
    service.ended(0)
    assert status_of(conn, job.id) == "finished"
    assert conn.smembers("rq:workers") == set()


@pytest.mark.parametrize("dead", [False, True])
def test_a_successor_that_never_gets_ready_calls_it_off(dead: bool) -> None:
    old = Child("worker 1", [sys.executable, "-c", "import time; time.sleep(60)"], 1.0)
    post, other = Post("worker 1", (), old), Post("worker 2", ())
    started: list[Child] = []

    def start(to: Post) -> None:
        to.child = Child(to.label, [sys.executable, "-c", "input()" if dead else "import time; time.sleep(60)"], 1.0)
        started.append(to.child)

    rolling = Rolling(start, 1.0, logging.getLogger("fusion.supervisor"))
    now = time.monotonic()
    try:
        rolling.start([post, other], now)
        (new,) = started
        if dead:  # and buried, as the supervisor does it
            eventually(lambda: new.collect() is not None)
            post.child = None
        rolling.tick(now + 60)
        assert old.told == ""
        rolling.tick(now + 121)
        rolling.tick(now + 122)
        assert (post.child, old.told) == (old, "")
        assert post.leaving == ([] if dead else [new])
        assert dead or new.told == "SIGQUIT"
        assert len(started) == 1
        assert alive(old.pid)
    finally:
        for child in (old, *started):
            if child.collect() is None:
                child.signal(signal.SIGKILL, 0.0)
            eventually(lambda child=child: child.collect() is not None)
            child.close()


def test_the_log_reader_of_these_tests_counts() -> None:
    lines = ["worker 1 (pid 1, a) is ready", "worker 2 (pid 2, b) is ready", "warm shutdown (x)", "worker 1 (pid 3, c) is ready"]
    assert least_ready("\n".join(lines), 2) == 1
