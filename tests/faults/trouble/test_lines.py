"""Lines that fall silent, crawl or break: the worker notices, goes on, and keeps what it runs."""

from __future__ import annotations

import json
import os
import re
import time

import pytest
import redis

from fusion import Queue
from fusion.runtime import commands
from fusion.store.client.connections import connect
from tests.cli.conftest import run_worker
from tests.faults.rig.proxy import FaultProxy
from tests.faults.trouble.test_replies import at_doorbell
from tests.kit.waiting import eventually
from tests.kit.witnesses import field, status_of
from tests.kit.workers import WorkerProcess, Workers, wait_may_recover
from tests.worker.test_probes import get, url_of
from tests.worker.test_quiet import is_quiet, listening, name_of
from tests.worker.test_redis_trouble import QUICK, Jobs

FULL = os.environ.get("FUSION_TEST_CRASH") == "full"
pytestmark = pytest.mark.timeout(600 if FULL else 180)
#: Outages that a busy machine makes by itself would spoil what is counted.
PATIENT = {"FUSION_SOCKET_TIMEOUT": "1", "FUSION_IDLE_WAIT": "0.5"}


def silenced(proxy: FaultProxy, command: str) -> None:
    eventually(lambda: proxy.silence(command), why=f"a connection that says {command}")


# -- half-open: nothing comes, nothing ends


def test_a_silent_main_line_is_replaced_and_running_jobs_never_notice(proxy: FaultProxy, fleet: Workers, jobs: Jobs) -> None:
    worker = fleet.start("r", "--slots", "2", env={**QUICK, "FUSION_LEASE": "9"})
    job = jobs.gated()
    jobs.begun(job)
    silenced(proxy, "turn")
    jobs.short(3)
    eventually(lambda: status_of(jobs.conn, jobs.all[-1].id) == "finished", 20, why="the other slot goes on")
    jobs.gate.unlink()
    jobs.finished(20)
    assert field(jobs.conn, job.id, "deliveries") == "1"
    assert "Redis is away" in worker.output
    assert "no longer this worker's" not in worker.output


def test_a_silent_doorbell_costs_one_wait(proxy: FaultProxy, fleet: Workers, jobs: Jobs) -> None:
    """The server still holds the dead line for a waiting worker, and gives it the first token."""
    worker = fleet.start("r", env=QUICK)
    for _ in range(2):
        eventually(lambda: at_doorbell(jobs.conn), why="it waits for a job")
        silenced(proxy, "BLPOP")
        jobs.short(1)
        jobs.finished(20)
    assert "Redis is away" not in worker.output


@pytest.mark.parametrize("how", ["cut", *(["silent"] if FULL else [])])
def test_a_subscription_that_is_lost_is_made_again(
    proxy: FaultProxy, fleet: Workers, conn: redis.Redis, redis_url: str, how: str
) -> None:
    worker = fleet.start("r", env=QUICK)
    eventually(lambda: listening(conn, worker), why="it listens for commands")
    made = sum("SUBSCRIBE" in link.sent for link in proxy.links)
    if how == "silent":
        silenced(proxy, "SUBSCRIBE")
    else:
        conn.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    eventually(lambda: sum("SUBSCRIBE" in link.sent for link in proxy.links) > made, 30, why="it subscribes again")
    eventually(lambda: run_worker("quiet", name_of(worker, conn), FUSION_REDIS_URL=redis_url).returncode == 0, 20)
    eventually(lambda: is_quiet(conn, worker), 20, why="it has heard the command")


def test_a_silent_subscription_is_asked_for_a_sign_of_life(proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a command that did not come would show that it is deaf."""
    monkeypatch.setattr(commands, "_SILENCE", 0.2)
    monkeypatch.setattr(commands, "_PATIENCE", 0.5)
    admin = connect(proxy.url)
    line = commands.Commands(lambda: connect(proxy.url, "blocking"), lambda: "rq:pubsub:w", "rq:pubsub:all")

    def received(word: str) -> bool:
        line.tick(time.monotonic())
        admin.publish("rq:pubsub:w", json.dumps({"command": word}))
        return word in [told.name for told in line.receive()]

    try:
        eventually(lambda: received("first"), 20)
        held = line.fileno()
        until = time.monotonic() + 1.5  # of asking and being answered: there is no condition for being left alone
        while time.monotonic() < until:
            line.tick(time.monotonic())
            line.receive()
            time.sleep(0.01)
        assert line.fileno() == held, "a subscription that lives is left alone"
        proxy.silence("SUBSCRIBE")
        eventually(lambda: received("second"), 20)
    finally:
        line.close()
        admin.close()


def test_an_outage_is_a_line_when_it_begins_and_one_when_it_ends_and_probes_go_red_and_green(
    proxy: FaultProxy, fleet: Workers, jobs: Jobs, redis_url: str
) -> None:
    """Shorter than the lease; nothing passes, on new connections neither."""
    worker = fleet.start("--customq", "all", "--slots", "2", "--probe-port", "0", env={**PATIENT, "FUSION_LEASE": "9"})
    url, name = url_of(worker), name_of(worker, jobs.conn)

    def healthy() -> bool:
        return run_worker("health", "--worker", name, "--max-age", "3.5", FUSION_REDIS_URL=redis_url).returncode == 0

    job = jobs.gated()
    jobs.begun(job)
    eventually(lambda: get(f"{url}/readyz").status == 200 and healthy())
    begun = len(worker.output.splitlines())
    proxy.silence()
    jobs.short(1)
    jobs.gate.unlink()
    eventually(lambda: re.match(r"Redis is away for [2-9] s", get(f"{url}/readyz").text), 30, why="not ready")
    eventually(lambda: not healthy(), 20, why="no sign of life in Redis")
    assert get(f"{url}/livez").status == 200
    proxy.lift()
    jobs.finished(30)
    eventually(lambda: get(f"{url}/readyz").status == 200 and healthy(), 20, why="ready again")
    told = [line for line in worker.output.splitlines()[begun:] if "Redis" in line]
    assert len(told) == 2, told
    assert "Redis is away, running jobs go on: Redis can't be reached" in told[0]
    assert "Redis is back after" in told[1]
    assert field(jobs.conn, job.id, "deliveries") == "1"


# -- slow


@pytest.mark.parametrize("how", ["late", "narrow"])
def test_a_slow_line_costs_time_and_no_lease(proxy: FaultProxy, fleet: Workers, jobs: Jobs, how: str) -> None:
    lease = 30.0 if FULL else 3.0
    env = {"FUSION_LEASE": str(lease), "FUSION_SOCKET_TIMEOUT": "2", "FUSION_IDLE_WAIT": "1"}
    workers = [fleet.start("r", "--slots", "2", env=env) for _ in range(2)]
    job = jobs.gated()
    jobs.begun(job)
    jobs.short(2)
    jobs.begun(jobs.all[-1])  # all scripts of a turn are known to the server
    if how == "late":
        proxy.delay = (0.0, 0.4)
    else:
        proxy.rate = 1024.0
    began = time.monotonic()
    jobs.short(6)
    eventually(lambda: time.monotonic() - began > 1.2 * lease, 60, why="longer than a lease")
    eventually(lambda: all(status_of(jobs.conn, each.id) == "finished" for each in jobs.all[1:]), 60, why="others run meanwhile")
    jobs.gate.unlink()
    jobs.finished(40)
    assert field(jobs.conn, job.id, "lost") in ("", "0")
    assert field(jobs.conn, job.id, "deliveries") == "1"
    assert "no longer this worker's" not in "".join(worker.output for worker in workers)


def test_slowly_sent_results_cost_no_lease(proxy: FaultProxy, fleet: Workers, jobs: Jobs, redis_url: str) -> None:
    """Each attempt to tell them is given up before the answer; beats pass in between, and in the end one attempt was enough."""
    tasks = "tests.jobs.basic,tests.faults.trouble.network_tasks"
    env = {"FUSION_LEASE": "3", "FUSION_SOCKET_TIMEOUT": "0.5", "FUSION_IDLE_WAIT": "1", "FUSION_TASKS": tasks}
    worker = fleet.start("r", "--slots", "2", env=env)
    fleet.start("other", env=env, url=redis_url)  # gives back what it takes for a dead worker's
    wait_may_recover(jobs.conn)
    job = jobs.gated()
    jobs.begun(job)
    go, begun = jobs.gate.with_name("go"), jobs.gate.with_name("begun")
    go.touch()
    large = jobs.queue.enqueue("tests.faults.trouble.network_tasks.large", 80_000, str(begun), str(go))
    eventually(begun.exists)
    proxy.rate = 16 * 1024.0
    go.unlink()
    eventually(lambda: status_of(jobs.conn, large.id) == "finished", 40, why="longer than a lease")
    proxy.lift()
    jobs.gate.unlink()
    jobs.finished(40)
    assert [field(jobs.conn, each.id, "deliveries") for each in (job, large)] == ["1", "1"]
    assert not any(event[b"event"] == b"abandoned" for _, event in jobs.conn.xrange("rq:events"))
    assert "no longer this worker's" not in worker.output


def test_resets_in_a_row(proxy: FaultProxy, fleet: Workers, jobs: Jobs) -> None:
    worker = fleet.start("r", "--slots", "2", env=QUICK)
    jobs.gate.unlink()
    queue = Queue("r", connect(proxy.url))
    for round_ in range(1, 9):
        proxy.reset()
        jobs.all.append(queue.enqueue("tests.jobs.basic.witness", str(jobs.seen), "short"))
        proxy.reset()
        jobs.short(5)
        eventually(lambda n=round_: len(jobs.seen.read_text().splitlines()) >= 6 * n - 3 if jobs.seen.exists() else False, 20)
    jobs.finished(20)
    assert jobs.conn.zcard("rq:finished:r") == 48
    assert worker.process.poll() is None


def test_every_connection_killed_again_and_again_under_load(proxy: FaultProxy, fleet: Workers, jobs: Jobs) -> None:
    workers = [fleet.start("r", "--slots", "2", "--disable-job-desc-logging", env=QUICK) for _ in range(2)]
    jobs.gate.unlink()
    producer = Queue("r", connect(proxy.url))
    count, kills, admin = (1500 if FULL else 150), 0, jobs.conn
    while len(jobs.all) < count:
        jobs.all.append(producer.enqueue("tests.jobs.basic.witness", str(jobs.seen), "short"))
        if len(jobs.all) % 5 == 0:
            killed = [admin.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes") for kind in ("normal", "pubsub")]
            kills += sum(map(int, killed))
    jobs.finished(60)
    assert kills >= 30, "the connections were hardly ever there to be killed"
    assert jobs.conn.zcard("rq:finished:r") == count
    assert all(_alive(worker) for worker in workers)


def _alive(worker: WorkerProcess) -> bool:
    return worker.process.poll() is None and "Traceback" not in worker.output
