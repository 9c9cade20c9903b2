"""A quiet worker takes no more jobs, finishes what it runs and stays: by signal and by command."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import redis

from fusion import Queue
from tests.cli.conftest import run_worker
from tests.jobs import basic
from tests.kit.length import long_case
from tests.kit.waiting import eventually
from tests.kit.witnesses import status_of
from tests.kit.workers import WorkerProcess, Workers
from tests.worker.test_settings import info, worker_hash

#: Nothing but a doorbell, or what the test does, wakes a worker within the time of a test.
ENV = {"FUSION_IDLE_WAIT": "20"}


def is_quiet(conn: redis.Redis, worker: WorkerProcess) -> bool:
    return worker_hash(conn, worker).get("quiet") == "1"


def name_of(worker: WorkerProcess, conn: redis.Redis) -> str:
    return next(key.decode()[10:] for key in conn.smembers("rq:workers") if key.decode().endswith(f".{worker.pid}"))


def waiting(conn: redis.Redis) -> int:
    return sum(client["cmd"] == "blpop" for client in conn.client_list())


def listening(conn: redis.Redis, worker: WorkerProcess) -> bool:
    return bool(conn.pubsub_numsub(f"rq:pubsub:{name_of(worker, conn)}")[0][1])


@pytest.mark.long
@pytest.mark.parametrize("how", ["command", long_case("signal")])
def test_it_finishes_takes_nothing_and_goes_on_when_told(
    workers: Workers, conn: redis.Redis, redis_url: str, tmp_path: Path, how: str
) -> None:
    gate, started = tmp_path / "gate", tmp_path / "started"
    gate.touch()
    worker = workers.start("sms", "--slots", "2", env=ENV)
    eventually(lambda: listening(conn, worker))
    job = Queue("sms").enqueue(basic.until_gone, str(gate), str(started))
    eventually(started.exists)

    def tell(command: str, number: int) -> None:
        if how == "signal":
            worker.signal(number)
        else:
            done = run_worker(command, name_of(worker, conn), FUSION_REDIS_URL=redis_url)
            assert (done.returncode, done.stdout) == (0, f"{command}: 1 worker(s) told\n")

    tell("quiet", signal.SIGTSTP)
    eventually(lambda: is_quiet(conn, worker))
    behind = [Queue("sms").enqueue(basic.noop) for _ in range(3)]
    assert "quiet" in info("-W")
    assert json.loads(info("--json"))["workers"][0]["quiet"] is True
    gate.unlink()
    assert job.wait(10) == "finished"
    eventually(lambda: worker_hash(conn, worker)["state"] == "idle")
    assert [status_of(conn, other.id) for other in behind] == ["queued"] * 3
    assert worker.process.poll() is None

    tell("unquiet", signal.SIGCONT)
    assert [other.wait(10) for other in behind] == ["finished"] * 3
    eventually(lambda: not is_quiet(conn, worker))
    assert "quiet: running jobs go on" in worker.output and "no longer quiet" in worker.output
    assert "quiet" not in info("-W")


@pytest.mark.long
def test_tokens_that_reach_a_quiet_worker_are_passed_on(workers: Workers, conn: redis.Redis) -> None:
    quiet = workers.start("sms", env=ENV)
    eventually(lambda: waiting(conn) == 1)
    other = workers.start("sms", env=ENV)
    eventually(lambda: waiting(conn) == 2)
    quiet.signal(signal.SIGTSTP)
    eventually(lambda: is_quiet(conn, quiet))
    jobs = []
    for _ in range(5):
        jobs.append(Queue("sms").enqueue(basic.noop))
        assert jobs[-1].wait(10) == "finished"
    assert {job.worker_name for job in jobs} == {name_of(other, conn)}


@pytest.mark.long
def test_all_and_a_wrong_name(workers: Workers, conn: redis.Redis, redis_url: str) -> None:
    both = [workers.start("sms", env=ENV), workers.start("email", env=ENV)]
    eventually(lambda: all(listening(conn, worker) for worker in both))
    done = run_worker("quiet", "--all", FUSION_REDIS_URL=redis_url)
    assert (done.returncode, done.stdout) == (0, "quiet: 2 worker(s) told\n")
    eventually(lambda: all(is_quiet(conn, worker) for worker in both))
    first = name_of(both[0], conn)
    done = run_worker("unquiet", first, "nobody.1", FUSION_REDIS_URL=redis_url)
    assert (done.returncode, done.stdout) == (1, "unquiet: 1 worker(s) told\n")
    assert done.stderr == f"nobody.1: no such worker; there are {', '.join(sorted(name_of(w, conn) for w in both))}\n"
    eventually(lambda: not is_quiet(conn, both[0]))
    assert is_quiet(conn, both[1])


@pytest.mark.long
def test_a_quiet_worker_keeps_its_leases_and_ends_when_told(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    gate, started = tmp_path / "gate", tmp_path / "started"
    gate.touch()
    worker = workers.start("sms", env={"FUSION_LEASE": "1", **ENV})
    job = Queue("sms").enqueue(basic.until_gone, str(gate), str(started))
    eventually(started.exists)
    worker.signal(signal.SIGTSTP)
    eventually(lambda: is_quiet(conn, worker))
    before = conn.zscore("rq:wip:sms", job.id)
    eventually(lambda: (conn.zscore("rq:wip:sms", job.id) or 0) > before + 1500)  # renewed twice: it is alive
    gate.unlink()
    assert job.wait(10) == "finished"
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0


@pytest.mark.long
def test_the_entry_says_quiet_again_after_it_was_lost(workers: Workers, conn: redis.Redis) -> None:
    worker = workers.start("sms", env={"FUSION_LEASE": "1", **ENV})
    worker.signal(signal.SIGTSTP)
    eventually(lambda: is_quiet(conn, worker))
    conn.flushall()
    eventually(lambda: conn.smembers("rq:workers") and is_quiet(conn, worker))
