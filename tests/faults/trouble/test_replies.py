"""Answers that are lost on their way, after Redis has done what was asked: each thing happens once, and whoever asked goes on."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from fusion import Queue
from fusion.cron.scheduler import Scheduler
from fusion.exceptions import StoreUnavailable
from fusion.job import Job
from fusion.store.client.connections import connect
from tests.faults.rig.conservation import check_conservation
from tests.faults.rig.proxy import CUT, LOSE, RESET, FaultProxy
from tests.jobs import basic
from tests.kit.private_redis import PrivateRedis
from tests.kit.promises import claim
from tests.kit.schedulers import Schedulers
from tests.kit.waiting import eventually
from tests.kit.witnesses import field, runs_of, status_of
from tests.kit.workers import Workers, wait_may_recover
from tests.scheduler.harness import arrivals, due_since, each_once
from tests.worker.test_redis_trouble import QUICK, Jobs

FULL = os.environ.get("FUSION_TEST_CRASH") == "full"
pytestmark = pytest.mark.timeout(600 if FULL else 180)


def producer(proxy: FaultProxy) -> Queue:
    return Queue("r", connect(proxy.url))


def at_doorbell(conn: redis.Redis) -> bool:
    return any(client["cmd"] == "blpop" for client in conn.client_list())


@pytest.mark.parametrize("what", [LOSE, *([CUT, RESET] if FULL else [])])
def test_an_enqueue_that_got_no_answer_is_one_job(proxy: FaultProxy, fleet: Workers, jobs: Jobs, what: str) -> None:
    fleet.start("r", env=QUICK)
    queue = producer(proxy)
    jobs.all.append(queue.enqueue(basic.witness, str(jobs.seen), "short"))  # from here on its connection and its script are known
    lost = proxy.on("enqueue", what, nth=2, every=2, times=3)
    for _ in range(4):
        jobs.all.append(queue.enqueue(basic.witness, str(jobs.seen), "short"))
    jobs.all += queue.enqueue_many([Queue.prepare_data(basic.witness, (str(jobs.seen), "short")) for _ in range(5)])
    assert lost.struck == 3
    jobs.finished()
    assert len({job.id for job in jobs.all}) == 10
    assert jobs.conn.zcard("rq:finished:r") == 10


@claim("P5")
@pytest.mark.parametrize(("nth", "which"), [(1, "the job"), (2, "what happened to it")])
def test_a_turn_whose_answer_is_lost(proxy: FaultProxy, fleet: Workers, jobs: Jobs, nth: int, which: str) -> None:
    """The answer carries `which`."""
    worker = fleet.start("r", env=QUICK)
    eventually(lambda: at_doorbell(jobs.conn), why="it waits for a job")
    lost = proxy.on("turn", LOSE, nth=nth)
    jobs.gated()
    jobs.begun(jobs.all[0])
    jobs.gate.unlink()
    jobs.finished()
    assert lost.struck == 1
    assert field(jobs.conn, jobs.all[0].id, "deliveries") == "1"
    assert "not accepted" not in worker.output


def test_leases_hold_though_the_answers_to_beats_are_lost(proxy: FaultProxy, fleet: Workers, jobs: Jobs) -> None:
    env = {**QUICK, "FUSION_LEASE": "1.5"}
    worker = fleet.start("r", env=env)
    fleet.start("r", env=env)  # would take the job over
    job = jobs.gated()
    jobs.begun(job)
    wait_may_recover(jobs.conn)  # before that nobody is buried, renewed or not
    lost = proxy.on("extend", LOSE, every=2, times=float("inf"))
    eventually(lambda: lost.struck >= 5, 30, why="beats go unanswered for more than a lease")
    assert (status_of(jobs.conn, job.id), field(jobs.conn, job.id, "lost")) == ("started", "")
    jobs.gate.unlink()
    jobs.finished()
    assert "no longer this worker's" not in worker.output


def test_scheduled_jobs_and_cron_ticks_come_once_though_answers_are_lost(proxy: FaultProxy, jobs: Jobs, tmp_path: Path) -> None:
    cron = Scheduler(jobs.conn)
    ticks = due_since(cron, jobs.conn, "e", "f", "g", ticks=5)  # each is one call where the server knows the script
    due = [jobs.queue.enqueue_in(0.01, basic.noop) for _ in range(5)]
    lost = [proxy.on(name, LOSE, every=2, times=2) for name in ("cron_tick", "promote")]
    schedulers = Schedulers(proxy.url, tmp_path)
    try:
        schedulers.start(env={"FUSION_SOCKET_TIMEOUT": "0.5"})
        for queue, count in (("q", 15), ("r", 5)):
            eventually(
                lambda queue=queue, count=count: jobs.conn.zcard(f"rq:queue:{queue}") == count, 30, why=f"all are in {queue}"
            )
        eventually(lambda: all(rule.struck == 2 for rule in lost), 30, why="answers were lost")
        for entry in "efg":
            each_once(jobs.conn, entry, ticks)
        assert set(arrivals(jobs.conn).values()) == {1}
        check_conservation(jobs.conn, [job.id for job in due])
    finally:
        proxy.lift()
        schedulers.stop()


@pytest.mark.parametrize(("what", "every"), [(LOSE, 20), *([(RESET, 7), (CUT, 3)] if FULL else [])])
def test_any_answer_may_be_lost_under_load(proxy: FaultProxy, fleet: Workers, jobs: Jobs, what: str, every: int) -> None:
    count = 1500 if FULL else 200
    workers = [fleet.start("r", "--slots", "2", "--disable-job-desc-logging", env=QUICK) for _ in range(2)]
    rule = proxy.on("*", what, nth=every, every=every, times=float("inf"))
    jobs.gate.unlink()
    queue = producer(proxy)
    for _ in range(count):
        jobs.all.append(_surely(lambda: queue.enqueue(basic.witness, str(jobs.seen), "short")))
    eventually(lambda: jobs.conn.zcard("rq:finished:r") >= count, 60 + count / 5, interval=0.1, why="all have run")
    struck = rule.struck
    proxy.lift()
    jobs.finished(30)
    assert jobs.conn.zcard("rq:finished:r") == count
    assert struck >= count / every
    assert all(worker.process.poll() is None for worker in workers)
    assert "not accepted" not in "".join(worker.output for worker in workers)


def _surely(call: Callable[[], Job]) -> Job:
    """As a program does that may not lose a job: repeated until there is an answer."""
    try:
        return call()
    except StoreUnavailable as error:
        return _surely(error.repeat)


def test_copies_that_run_when_redis_wakes_up_are_one_job(
    private_redis: PrivateRedis, private_workers: Workers, tmp_path: Path
) -> None:
    """A stopped server runs whatever was sent to it meanwhile, though nobody waits for the answers any more."""
    jobs = Jobs(private_redis.conn, tmp_path)
    worker = private_workers.start("r", env=QUICK)
    jobs.begun(jobs.gated())
    impatient = Queue("r", connect(private_redis.url + "&socket_timeout=2"))
    ready = impatient.enqueue(basic.witness, str(jobs.seen), "short")
    before = jobs.conn.info("commandstats")["cmdstat_evalsha"]["calls"]
    made: list[Job] = []
    thread = threading.Thread(target=lambda: made.append(impatient.enqueue(basic.witness, str(jobs.seen), "short")))
    private_redis.pause()
    try:
        jobs.gate.unlink()
        eventually(lambda: "Redis is away" in worker.output, why="its turn has timed out")
        thread.start()
        thread.join(3)  # its second attempt of three is under way: no condition shows that from outside
    finally:
        private_redis.resume()
    thread.join(10)
    jobs.all += [ready, *made]
    jobs.finished()
    assert len(made) == 1
    assert jobs.conn.zcard("rq:finished:r") == 3
    assert jobs.conn.info("commandstats")["cmdstat_evalsha"]["calls"] >= before + 5, "no copy of a call has run"
    assert runs_of(jobs.seen, "short", made[0].id)
