"""Short jobs wait in warm processes behind others: whatever happens to those does not affect them."""

from __future__ import annotations

import itertools
import json
import secrets
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import redis

from fusion import Queue, Retry
from fusion.job import Job
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.private_redis import PrivateRedis
from tests.kit.waiting import eventually
from tests.kit.witnesses import alive, field, losses_of, runs_of, status_of
from tests.kit.workers import CROWDED, WorkerProcess, Workers

pytestmark = pytest.mark.long

#: A budget at which jobs are claimed ahead on a busy machine too.
WARM = {
    "FUSION_TASKS": "tests.jobs.warm,tests.jobs.stubborn,tests.jobs.basic",
    "FUSION_TIMEOUT_GRACE": "0.5",
    "FUSION_CLAIM_AHEAD": "100",
}
Call = tuple[Any, ...]


def at_once(conn: redis.Redis, *calls: Call, queue: str = "w", **options: Any) -> list[Job]:
    """Enqueue in one script: the worker finds all of them or none."""
    prepared = [Queue.prepare_data(task if "." in task else f"tests.jobs.warm.{task}", args, **options) for task, *args in calls]
    return list(Queue(queue, conn).enqueue_many(prepared))


def finished(conn: redis.Redis, *jobs: Job) -> list[Any]:
    for job in jobs:
        eventually(lambda job=job: status_of(conn, job.id) == "finished", 30, why=f"{job.id} is finished")  # type: ignore[misc]
    return [json.loads(field(conn, job.id, "result") or "null") for job in jobs]


def seasoned(workers: Workers, conn: redis.Redis, *flags: str, env: dict[str, str] | None = None) -> WorkerProcess:
    """A worker that has seen enough short jobs to expect more of them."""
    worker = workers.start("w", *flags, env={**WARM, **(env or {})})
    for _ in range(3):
        finished(conn, *at_once(conn, *[("pid",)] * 5))
    return worker


def marked(conn: redis.Redis, job: Job) -> bool:
    """Whether it was claimed ahead."""
    return field(conn, job.id, "execution_id").endswith("a")


def unharmed(conn: redis.Redis, *jobs: Job) -> None:
    for job in jobs:
        assert (field(conn, job.id, "attempts"), losses_of(conn, job.id)) == ("", 0), job.id


def test_many_short_jobs_cost_few_round_trips(workers: Workers, conn: redis.Redis) -> None:
    seasoned(workers, conn, "--horses", "2")
    conn.config_resetstat()
    jobs = at_once(conn, *[("pid",)] * 400)
    finished(conn, *jobs)
    assert conn.info("commandstats")["cmdstat_evalsha"]["calls"] < len(jobs)
    deliveries = [int(field(conn, job.id, "deliveries")) for job in jobs]
    assert sum(deliveries) < 1.5 * len(jobs)
    assert CROWDED or max(deliveries) <= 3, "threads share their process with the one that looks after them"
    assert any(marked(conn, job) for job in jobs)


def test_none_is_claimed_ahead_where_that_is_not_wanted(workers: Workers, conn: redis.Redis) -> None:
    seasoned(workers, conn, "--horses", "2", "--claim-ahead", "0")
    jobs = at_once(conn, *[("pid",)] * 100)
    finished(conn, *jobs)
    assert not any(marked(conn, job) for job in jobs)


def test_large_jobs_are_not_claimed_ahead_again_and_again(workers: Workers, conn: redis.Redis) -> None:
    """They fit into no socket behind another: each would be carried from Redis and back many times."""
    seasoned(workers, conn, "--horses", "2")
    jobs = at_once(conn, *[("pid", secrets.token_urlsafe(100_000))] * 200)  # which hardly compresses
    finished(conn, *jobs)
    assert sum(int(field(conn, job.id, "deliveries")) for job in jobs) < 300


def test_order_is_kept(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    seasoned(workers, conn, "--horses", "1")
    jobs = at_once(conn, *[("nap", 0, str(seen))] * 100)
    finished(conn, *jobs)
    order = [line.split()[1] for line in seen.read_text().splitlines()]
    assert order == [job.id for job in jobs]


def test_a_job_behind_one_that_fails_waits_for_its_retry(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    """It is in the process already, in the slot of the one that fails, and the process goes on at once."""
    seen = tmp_path / "seen"
    seasoned(workers, conn, "--horses", "1")
    keyed: dict[str, Any] = {"concurrency_key": "k", "max_concurrent": 1}
    queue = Queue("w", conn)
    datas = [
        Queue.prepare_data("tests.jobs.warm.nap_and_fail", (0, str(seen), f"f{n}"), retry=Retry(max=1), **keyed)
        if n % 3 == 0
        else Queue.prepare_data("tests.jobs.warm.nap", (0, str(seen), f"n{n}"), **keyed)
        for n in range(60)
    ]
    jobs = list(queue.enqueue_many(datas))
    eventually(lambda: all(status_of(conn, job.id) in ("finished", "failed") for job in jobs), 30)
    order = [line.split()[0] for line in seen.read_text().splitlines()]
    assert order == [word for n in range(60) for word in ([f"f{n}"] * 2 if n % 3 == 0 else [f"n{n}"])]
    assert sum(conn.hexists(f"rq:job:{job.id}", "follows") for job in jobs) > 10, "they were behind each other"


def test_jobs_behind_a_long_one_go_to_another_process(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    gate, seen = tmp_path / "gate", tmp_path / "seen"
    seasoned(workers, conn, "--horses", "2")
    before, long, *behind = at_once(conn, ("pid",), ("gate", str(gate), str(seen)), *[("pid",)] * 12)
    pids = finished(conn, before, *behind)
    assert status_of(conn, long.id) == "started"
    assert not set(pids[1:]) & set(runs_of(seen, "here"))
    gate.touch()
    finished(conn, long)
    unharmed(conn, long, *behind)


def test_jobs_behind_a_long_one_go_back_when_no_process_is_free(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    """Another worker has them long before it ends; and Redis knows that it runs."""
    gate, seen = tmp_path / "gate", tmp_path / "seen"
    worker = seasoned(workers, conn, "--horses", "1")
    before, long, *behind = at_once(conn, ("pid",), ("gate", str(gate), str(seen)), *[("pid",)] * 12)
    finished(conn, before)
    eventually(lambda: [status_of(conn, job.id) for job in behind] == ["queued"] * 12)
    if marked(conn, long):
        eventually(lambda: field(conn, long.id, "begun") == field(conn, long.id, "execution_id"))
    (urgent,) = at_once(conn, ("pid",), priority=2)
    workers.start("w", "--horses", "1", env=WARM)
    finished(conn, urgent, *behind)
    unharmed(conn, *behind)
    assert alive(worker.pid) and status_of(conn, long.id) == "started"
    gate.touch()
    finished(conn, long)


def test_an_urgent_job_goes_before_those_that_wait(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    seasoned(workers, conn, "--horses", "1")
    low = at_once(conn, *[("nap", 0.002, str(seen), "low")] * 300, priority=0)
    eventually(lambda: runs_of(seen, "low"))
    (urgent,) = at_once(conn, ("nap", 0, str(seen), "urgent"), priority=2)
    finished(conn, urgent)
    words = [line.split()[0] for line in seen.read_text().splitlines()]
    assert "queued" in {status_of(conn, job.id) for job in low[-20:]} or words.index("urgent") < 280
    finished(conn, *low)
    unharmed(conn, *low)


def test_a_crash_is_one_jobs_only(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    worker = seasoned(workers, conn, "--horses", "2", env={"FUSION_MAX_LOST": "1"})
    calls: list[Call] = [("pid",)] * 120
    for at in (20, 40, 60, 80):
        calls[at] = ("tests.jobs.basic.signal_self", 11 if at % 40 else 9, str(tmp_path / "seen"))
    jobs = at_once(conn, *calls)
    bad = [jobs[at] for at in (20, 40, 60, 80)]
    good = [job for job in jobs if job not in bad]
    finished(conn, *good)
    unharmed(conn, *good)
    eventually(lambda: {status_of(conn, job.id) for job in bad} == {"failed"})
    assert len(runs_of(tmp_path / "seen", "signal")) == 4
    assert alive(worker.pid)
    check_conservation(conn, [job.id for job in jobs])


def test_a_hard_timeout_is_one_jobs_only(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    seasoned(workers, conn, "--horses", "1")
    calls: list[Call] = [("pid",)] * 30
    calls[7] = ("tests.jobs.stubborn.swallows", str(seen))
    jobs = at_once(conn, *calls, timeout=0.4)
    stuck = jobs.pop(7)
    pids = finished(conn, *jobs)
    assert status_of(conn, stuck.id) == "failed"
    assert "timeout of 0.4 s plus 0.5 s grace and was killed" in field(conn, stuck.id, "exc_info")
    assert len(runs_of(seen, "here")) == 1
    assert len(set(pids)) == 2
    unharmed(conn, *jobs)


def test_an_isolated_job_is_alone_among_short_ones(workers: Workers, conn: redis.Redis) -> None:
    seasoned(workers, conn, "--horses", "2")
    queue = Queue("w", conn)
    prepared = [Queue.prepare_data("tests.jobs.warm.pid", isolate=n % 10 == 9) for n in range(60)]
    jobs = list(queue.enqueue_many(prepared))
    pids = finished(conn, *jobs)
    alone = [pid for n, pid in enumerate(pids) if n % 10 == 9]
    assert all(pids.count(pid) == 1 for pid in alone)
    assert len(set(pids)) < 20


def test_a_process_serves_no_more_jobs_than_it_may(workers: Workers, conn: redis.Redis) -> None:
    seasoned(workers, conn, "--horses", "2", "--max-jobs-per-horse", "7")
    pids = finished(conn, *at_once(conn, *[("pid",)] * 100))
    assert max(pids.count(pid) for pid in pids) <= 7


def test_the_reserve_stays_free(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    """Jobs of lower classes run one at a time beside a reserved process, however many wait."""
    worker = seasoned(workers, conn, "--horses", "2", "--reserve-high", "1")
    spans = finished(conn, *at_once(conn, *[("span", 0.002)] * 150, priority=0))
    spans.sort()
    assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(spans))
    assert alive(worker.pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP])
def test_no_way_to_end_costs_a_waiting_job_anything(workers: Workers, conn: redis.Redis, tmp_path: Path, number: int) -> None:
    seen = tmp_path / "seen"
    worker = seasoned(workers, conn, "--horses", "2")
    jobs = at_once(conn, *[("nap", 0.001, str(seen))] * 600)
    eventually(lambda: len(runs_of(seen, "ran")) > 20)
    worker.signal(number)
    if number == signal.SIGHUP:
        finished(conn, *jobs)
    else:
        assert worker.wait(30) == (number == signal.SIGQUIT)
    states = check_conservation(conn, [job.id for job in jobs])
    assert set(states.values()) <= {"finished", "queued"}
    unharmed(conn, *jobs)
    runs = len(runs_of(seen, "ran"))
    done = sum(state == "finished" for state in states.values())
    assert done <= runs <= done + (2 if number == signal.SIGQUIT else 0), "what was not begun was not run"


def test_a_dead_workers_waiting_jobs_have_lost_nothing(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    """It dies with one job handed out and four behind it. The process runs on for as long as it takes to see that: at most those are run twice."""
    seen = tmp_path / "seen"
    worker = seasoned(workers, conn, "--horses", "1", env={"FUSION_FAILPOINTS": "dispatch.after=kill@20"})
    name = conn.srandmember("rq:workers").decode().removeprefix("rq:worker:")
    jobs = at_once(conn, *[("nap", 0.001, str(seen))] * 12)
    eventually(lambda: worker.process.poll() is not None)
    states = [status_of(conn, job.id) for job in jobs]
    started = [job for job, state in zip(jobs, states, strict=True) if state == "started"]
    ahead = [job for job in started if marked(conn, job)]
    Broker(conn).prune(30, name)
    assert ahead, "some were claimed ahead"
    for job in started:
        lost, spared = field(conn, job.id, "lost"), field(conn, job.id, "spared")
        assert (lost, spared) == (("0", "1") if job in ahead else ("1", "")), job.id
    workers.start("w", "--horses", "1", env=WARM)
    finished(conn, *jobs)
    check_conservation(conn, [job.id for job in jobs])


def test_a_stopped_workers_jobs_are_run_by_another(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    """It wakes up long after its leases: what its processes did meanwhile counts for nothing, and it goes on as one of the fleet."""
    seen = tmp_path / "seen"
    quick = {"FUSION_LEASE": "1", "FUSION_REAP_INTERVAL": "0.2", "FUSION_MAX_LOST": "5"}
    worker = seasoned(workers, conn, "--horses", "1", env=quick)
    jobs = at_once(conn, *[("nap", 0.002, str(seen))] * 300)
    eventually(lambda: len(runs_of(seen, "ran")) > 10)
    worker.signal(signal.SIGSTOP)
    held = [job for job in jobs if status_of(conn, job.id) == "started"]
    workers.start("w", "--horses", "1", env={**WARM, **quick})
    finished(conn, *jobs)
    worker.signal(signal.SIGCONT)
    pids = finished(conn, *at_once(conn, *[("pid",)] * 20))
    assert pids and alive(worker.pid)
    check_conservation(conn, [job.id for job in jobs])
    ran = Counter(line.split()[1] for line in seen.read_text().splitlines())
    assert {job.id for job in jobs if ran[job.id] > 1} <= {job.id for job in held}, "only what it held was run again"
    assert max(ran.values()) <= 2
    assert all(field(conn, job.id, "lost") in ("", "0", "1") for job in jobs)


def test_redis_may_die_while_jobs_wait(private_workers: Workers, private_redis: PrivateRedis, tmp_path: Path) -> None:
    """Processes go on with what they have; each outcome is committed once Redis is back, and no job runs twice."""
    seen, conn = tmp_path / "seen", private_redis.conn
    worker = seasoned(private_workers, conn, "--horses", "2", env={"FUSION_SOCKET_TIMEOUT": "0.5"})
    jobs = at_once(conn, *[("nap", 0.002, str(seen))] * 200)
    eventually(lambda: len(runs_of(seen, "ran")) > 20)
    private_redis.kill()
    eventually(lambda: "Redis is away" in worker.output)
    private_redis.revive()
    finished(private_redis.conn, *jobs)
    states = check_conservation(private_redis.conn, [job.id for job in jobs])
    assert set(states.values()) == {"finished"}
    ran = Counter(line.split()[1] for line in seen.read_text().splitlines())
    assert ran == {job.id: 1 for job in jobs}
    unharmed(private_redis.conn, *jobs)


def test_the_default_budget_loses_no_order(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    workers.start("w", "--horses", "1", env={name: value for name, value in WARM.items() if name != "FUSION_CLAIM_AHEAD"})
    jobs = at_once(conn, *[("nap", 0, str(seen))] * 400)
    finished(conn, *jobs)
    order = [line.split()[1] for line in seen.read_text().splitlines()]
    assert sorted(order) == sorted(job.id for job in jobs), "each once"
    kept = [job.id for job in jobs if field(conn, job.id, "deliveries") == "1"]
    assert [job_id for job_id in order if job_id in set(kept)] == kept, "only jobs that were taken back start out of their order"
