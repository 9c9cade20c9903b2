"""Redis pauses, dies and comes back, forgets everything, holds garbage: jobs under way go on, and nothing accepted is lost or run twice."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from fusion import Queue, StoreFull
from fusion.job import Job
from tests.faults.rig.conservation import check_conservation
from tests.kit import guarded
from tests.kit.private_redis import PrivateRedis
from tests.kit.waiting import eventually
from tests.kit.witnesses import field, runs_of, status_of
from tests.kit.workers import Workers, process_per_job, wait_may_recover

QUICK = {"FUSION_SOCKET_TIMEOUT": "0.3", "FUSION_IDLE_WAIT": "0.5"}


class Jobs:
    """Gated jobs on a Redis of the test's own."""

    def __init__(self, conn: redis.Redis, directory: Path) -> None:
        self.conn, self.queue = conn, Queue("r", conn)
        self.gate, self.seen = directory / "gate", directory / "seen"
        self.gate.touch()
        self.all: list[Job] = []

    def gated(self) -> Job:
        self.all.append(self.queue.enqueue("tests.jobs.basic.until_gone", str(self.gate), str(self.seen)))
        return self.all[-1]

    def short(self, count: int) -> None:
        self.all += [self.queue.enqueue("tests.jobs.basic.witness", str(self.seen), "short") for _ in range(count)]

    def runs(self, job: Job) -> int:
        return len([*runs_of(self.seen, "started", job.id), *runs_of(self.seen, "short", job.id)])

    def begun(self, job: Job) -> None:
        eventually(lambda: self.runs(job), why="the job has begun")

    def finished(self, timeout: float = 10.0) -> None:
        """Every job is, once, after a single run."""
        eventually(lambda: all(status_of(self.conn, job.id) == "finished" for job in self.all), timeout, why="all jobs finished")
        assert [self.runs(job) for job in self.all] == [1] * len(self.all)
        assert set(check_conservation(self.conn, [job.id for job in self.all]).values()) == {"finished"}


@pytest.fixture
def jobs(private_redis: PrivateRedis, tmp_path: Path) -> Jobs:
    return Jobs(private_redis.conn, tmp_path)


def _pause_for(server: PrivateRedis, seconds: float) -> None:
    """A pause is a span of time: there is no condition to wait for."""
    server.pause()
    time.sleep(seconds)
    server.resume()


@pytest.mark.long
def test_a_pause_of_two_leases_takes_no_job_from_a_living_worker(
    private_redis: PrivateRedis, private_workers: Workers, jobs: Jobs
) -> None:
    lease = 1.0
    env = {**QUICK, "FUSION_LEASE": str(lease)}
    running = jobs.gated()
    first = private_workers.start("r", env=env)
    jobs.begun(running)
    second = private_workers.start("r", env=env)
    wait_may_recover(jobs.conn)
    _pause_for(private_redis, 2 * lease)
    # both are back, and have looked for the dead again and again
    eventually(lambda: all("Redis is back" in worker.output for worker in (first, second)), why="both are back")
    wait_may_recover(jobs.conn)
    jobs.short(3)
    eventually(lambda: jobs.runs(jobs.all[-1]), why="jobs run")
    assert jobs.runs(running) == 1
    assert status_of(jobs.conn, running.id) == "started"
    jobs.gate.unlink()
    jobs.finished()
    assert field(jobs.conn, running.id, "lost") in ("", "0")
    assert len(jobs.conn.smembers("rq:workers")) == 2
    assert "not accepted" not in first.output + second.output


@pytest.mark.long
def test_an_outcome_from_the_time_of_a_pause_is_told_after_it(
    private_redis: PrivateRedis, private_workers: Workers, jobs: Jobs
) -> None:
    worker = private_workers.start("r", env=QUICK)
    jobs.begun(jobs.gated())
    private_redis.pause()
    jobs.gate.unlink()
    eventually(lambda: "Redis is away" in worker.output, why="the outcome can't be committed")
    private_redis.resume()
    jobs.short(2)
    jobs.finished()
    assert worker.output.count("Redis is away") == worker.output.count("Redis is back") == 1


def test_a_killed_redis_comes_back_with_everything(private_redis: PrivateRedis, private_workers: Workers, jobs: Jobs) -> None:
    workers = [private_workers.start("r", "--slots", "2", env=QUICK) for _ in range(2)]
    for _ in range(4):
        jobs.gated()
    jobs.short(30)
    eventually(lambda: len(runs_of(jobs.seen, "started")) == 4, why="all slots run a job")
    for worker in workers:
        eventually(lambda worker=worker: worker.output.count("(") >= 4, why="it says what it runs")
    private_redis.kill()
    jobs.gate.unlink()
    for worker in workers:
        eventually(lambda worker=worker: "Redis is away" in worker.output, why="its outcomes can't be committed")
    private_redis.revive()
    jobs.finished(20)
    for worker in workers:
        assert worker.process.poll() is None
        assert worker.output.count("Redis is back") == 1
    # doorbells and commands are connected again: an idle worker is woken
    jobs.short(1)
    jobs.finished()


@pytest.mark.long
def test_redis_killed_again_and_again_under_load(private_redis: PrivateRedis, private_workers: Workers, jobs: Jobs) -> None:
    workers = [private_workers.start("r", "--disable-job-desc-logging", env=QUICK) for _ in range(2)]
    jobs.gate.unlink()
    jobs.short(300)
    for goal in (60, 120, 180):
        eventually(lambda goal=goal: len(runs_of(jobs.seen, "short")) >= goal, 20, why="work goes on")
        private_redis.kill()
        private_redis.revive()
    jobs.finished(30)
    assert all(worker.process.poll() is None for worker in workers)


@pytest.mark.long
def test_a_redis_that_forgot_everything_is_served_on(private_redis: PrivateRedis, private_workers: Workers, jobs: Jobs) -> None:
    worker = private_workers.start("r", env={**QUICK, "FUSION_LEASE": "0.6"})
    forgotten = jobs.gated()
    jobs.begun(forgotten)
    jobs.conn.flushall()
    jobs.conn.script_flush()
    jobs.gate.unlink()
    eventually(lambda: f"job {forgotten.id} not accepted" in worker.output or "no longer this worker's" in worker.output)
    eventually(lambda: len(jobs.conn.smembers("rq:workers")) == 1, why="it is registered again")
    jobs.all.clear()
    jobs.short(5)
    jobs.finished()
    assert not jobs.conn.exists(f"rq:job:{forgotten.id}"), "a part of the forgotten job came back"
    assert worker.process.poll() is None


def test_cut_connections_are_made_again(private_redis: PrivateRedis, private_workers: Workers, jobs: Jobs) -> None:
    worker = private_workers.start("r", env=QUICK)
    jobs.gate.unlink()
    for _ in range(2):
        before = {client["id"] for client in jobs.conn.client_list()}
        jobs.conn.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        jobs.conn.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        jobs.short(3)
        jobs.finished()
        eventually(
            lambda before=before: len({client["id"] for client in jobs.conn.client_list()} - before) >= 3,
            why="main line, doorbell and commands are new",
        )
    assert worker.process.poll() is None


def _refuse_logins(conn: redis.Redis) -> None:
    guarded.change_password(conn, "changed")
    conn.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


def _refuse_connections(conn: redis.Redis) -> None:
    conn.config_set("maxclients", 1)
    conn.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    conn.execute_command("CLIENT", "KILL", "TYPE", "pubsub")


#: What an operator or a failover does to a running server, the word the log has for it, and how it ends.
_OUTAGES: dict[str, tuple[Callable[[redis.Redis], object], str, Callable[[redis.Redis], object]]] = {
    "demoted": (lambda conn: conn.replicaof("127.0.0.1", "1"), "read only replica", lambda conn: conn.replicaof("NO", "ONE")),
    "login": (_refuse_logins, "refused the login", lambda conn: guarded.change_password(conn, "")),
    "full of clients": (_refuse_connections, "Redis can't be reached", lambda conn: conn.config_set("maxclients", 1000)),
}


@pytest.mark.parametrize("outage", _OUTAGES)
def test_a_redis_that_refuses_is_waited_for(
    outage: str, private_redis: PrivateRedis, private_workers: Workers, jobs: Jobs
) -> None:
    begin, told, end = _OUTAGES[outage]
    worker = private_workers.start("r", env=QUICK)
    jobs.begun(jobs.gated())
    waiting = jobs.gated()
    begin(jobs.conn)
    try:
        jobs.gate.unlink()
        eventually(lambda: told in worker.output, why="the outcome can't be committed")
        assert worker.output.count("Redis is away") == 1
    finally:
        end(jobs.conn)
    jobs.short(2)
    jobs.finished()
    assert jobs.runs(waiting) == 1
    assert worker.process.poll() is None


@pytest.mark.long
def test_a_redis_busy_with_anothers_script_is_waited_for(
    private_redis: PrivateRedis, private_workers: Workers, jobs: Jobs
) -> None:
    worker = private_workers.start("r", env=QUICK)
    jobs.begun(jobs.gated())
    jobs.conn.config_set("lua-time-limit", 20)
    with redis.Redis.from_url(private_redis.url, socket_timeout=0.05, retry=Retry(NoBackoff(), 0)) as other:
        with pytest.raises(redis.exceptions.TimeoutError):
            other.eval("while true do end", 0)
        jobs.gate.unlink()
        eventually(lambda: "BUSY" in worker.output, why="the outcome can't be committed")
        jobs.conn.script_kill()
    jobs.short(2)
    jobs.finished()
    assert worker.process.poll() is None


def test_a_full_redis_takes_outcomes_and_no_new_jobs(private_redis: PrivateRedis, private_workers: Workers, jobs: Jobs) -> None:
    worker = private_workers.start("r", env=QUICK)
    running = jobs.gated()
    jobs.begun(running)
    jobs.conn.config_set("maxmemory", 1)
    with pytest.raises(StoreFull):
        jobs.short(1)
    jobs.gate.unlink()
    eventually(lambda: status_of(jobs.conn, running.id) == "finished", why="its outcome is taken all the same")
    jobs.conn.config_set("maxmemory", 0)
    jobs.short(2)
    jobs.finished()
    assert "away" not in worker.output


_WRONG = [
    ("timeout", "soon"),
    ("timeout", "nan"),
    ("retryCount", "many"),
    ("retry", "{"),
    ("retry", '{"max": "x"}'),
    ("on_failure", "["),
]


@pytest.mark.long
def test_a_hash_that_others_wrote_wrong_costs_one_job_not_the_worker(workers: Workers, conn: redis.Redis) -> None:
    queue = Queue("r", conn)
    bad = [queue.enqueue("tests.jobs.basic.boom") for _ in _WRONG]
    for job, (name, value) in zip(bad, _WRONG, strict=True):
        conn.hset(f"rq:job:{job.id}", name, value)
    good = queue.enqueue("tests.jobs.basic.add", 1, 2)
    worker = workers.start("r")
    eventually(lambda: status_of(conn, good.id) == "finished", why="the job behind them runs")
    states = {
        wrong: (status_of(conn, job.id), bool(field(conn, job.id, "exc_info"))) for wrong, job in zip(_WRONG, bad, strict=True)
    }
    assert states == dict.fromkeys(_WRONG, ("failed", True))
    assert worker.process.poll() is None
    check_conservation(conn, [*(job.id for job in bad), good.id])


@pytest.mark.long
def test_a_key_of_the_wrong_type_stops_its_queue_only(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    env = {"FUSION_LEASE": "1", "FUSION_MAINTENANCE_INTERVAL": "0.2"}
    worker = workers.start("r", "broken", env=env)
    wait_may_recover(conn)
    Queue("broken", conn).enqueue("tests.jobs.basic.add", 1, 2)
    eventually(lambda: not conn.exists("rq:queue:broken") and not conn.exists("rq:wip:broken"), why="it has run")
    for key in ("rq:wip:broken", "rq:queue:broken", "rq:finished:broken"):
        conn.delete(key)
        conn.set(key, "not ours")
    jobs = [Queue("r", conn).enqueue("tests.jobs.basic.add", i, 1) for i in range(10)]
    eventually(lambda: all(status_of(conn, job.id) == "finished" for job in jobs))
    last = conn.hget("rq:reap", "last")
    eventually(lambda: conn.hget("rq:reap", "last") != last, why="the worker goes on looking for the dead")
    assert worker.process.poll() is None, worker.output
    assert "queue broken can't be served" in worker.output, "no line in the log"
    for key in ("rq:wip:broken", "rq:queue:broken", "rq:finished:broken"):
        conn.delete(key)
    check_conservation(conn, [job.id for job in jobs])
    mended = Queue("broken", conn).enqueue("tests.jobs.basic.add", 1, 2)
    eventually(lambda: status_of(conn, mended.id) == "finished", why="the mended queue is served again")


@pytest.mark.long
def test_an_outcome_that_a_broken_key_refuses_is_offered_again(workers: Workers, conn: redis.Redis) -> None:
    worker = workers.start("refused", env={"FUSION_LEASE": "1"})
    conn.set("rq:finished:refused", "not ours")
    job = Queue("refused", conn).enqueue("tests.jobs.basic.add", 1, 2)
    eventually(lambda: "it is offered again" in worker.output, why="the outcome is refused")
    conn.delete("rq:finished:refused")
    eventually(lambda: status_of(conn, job.id) == "finished", 20, why="the key was mended")
    assert field(conn, job.id, "deliveries") == "1", "it ran twice though its outcome was known"
    check_conservation(conn, [job.id])


@pytest.mark.long
@process_per_job("an outcome that does not name its execution is none: test_pool.py has such frames")
def test_frames_that_are_no_outcome_cost_one_job(workers: Workers, conn: redis.Redis) -> None:
    """A task can write to the socket of its own process; the worker believes none of it blindly."""
    queue = Queue("r", conn)
    worker = workers.start("r")
    frames = [
        {"kind": "finished", "elapsed": "long"},
        {"kind": "finished", "result": "x", "elapsed": "nan"},
        {"kind": "finished", "elapsed": "1e300"},
        {"kind": "failed", "elapsed": "-inf"},
        {"kind": "nonsense"},
        {"kind": "held", "exc_classes": "\udcff"},
        {"kind": "meta", "meta": "not json"},
        {},
    ]
    jobs = [queue.enqueue("tests.jobs.basic.write_frame", json.dumps(frame)) for frame in frames]
    after = queue.enqueue("tests.jobs.basic.add", 1, 2)
    eventually(lambda: status_of(conn, after.id) == "finished" or worker.process.poll() is not None, why="the next job runs")
    assert worker.process.poll() is None, worker.output
    states = check_conservation(conn, [job.id for job in [*jobs, after]])
    assert all(state in ("finished", "failed", "scheduled") for state in states.values()), states
    assert states[jobs[0].id] == "finished"
    assert "not an outcome" in field(conn, jobs[4].id, "exc_info")
