"""TERM, TERM twice, QUIT, to the supervisor, to one worker and to the whole tree; and the supervisor's own death."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable

import pytest
import redis

from fusion.job import Job
from tests.faults.rig.conservation import check_conservation
from tests.kit.length import long_case
from tests.kit.waiting import eventually
from tests.kit.witnesses import alive, field, status_of
from tests.supervisor.conftest import Gate
from tests.supervisor.harness import Service, Services

Busy = tuple[Service, Job]
Sender = Callable[[Service, int], None]
TO_WHOM: dict[str, Sender] = {"supervisor": Service.signal, "tree": Service.signal_tree}


def unspent(conn: redis.Redis, job: Job) -> bool:
    """It is back at its place, as if it had never run."""
    return [status_of(conn, job.id), field(conn, job.id, "attempts") or "0", field(conn, job.id, "lost") or "0"] == [
        "queued",
        "0",
        "0",
    ]


def all_is_told(conn: redis.Redis, *jobs: Job) -> None:
    """Nothing is left in Redis but the jobs."""
    assert conn.smembers("rq:workers") == set()
    assert not list(conn.scan_iter("rq:worker:*"))
    check_conservation(conn, [job.id for job in jobs])


@pytest.mark.parametrize(
    ("whom", "number"),
    [
        ("tree", signal.SIGINT),
        ("supervisor", signal.SIGTERM),
        long_case("tree", signal.SIGTERM),
        long_case("supervisor", signal.SIGINT),
    ],
)
def test_one_signal_is_a_warm_end(busy: Busy, conn: redis.Redis, gate: Gate, whom: str, number: signal.Signals) -> None:
    service, job = busy
    (horse,) = gate.pids(job)
    TO_WHOM[whom](service, number)
    service.says("warm shutdown", 2)
    waiting = gate.enqueue()
    assert service.process.poll() is None
    assert alive(horse)
    gate.open()
    service.ended(0)
    assert [status_of(conn, one.id) for one in (job, waiting)] == ["finished", "queued"]
    assert len(gate.pids(job)) == 1
    all_is_told(conn, job, waiting)


@pytest.mark.long
@pytest.mark.parametrize("whom", ["tree", long_case("supervisor")])
def test_a_second_signal_is_a_cold_end(busy: Busy, conn: redis.Redis, gate: Gate, whom: str) -> None:
    service, job = busy
    TO_WHOM[whom](service, signal.SIGTERM)
    service.says("warm shutdown", 2)
    TO_WHOM[whom](service, signal.SIGTERM)
    service.ended(1)
    assert unspent(conn, job)
    all_is_told(conn, job)


@pytest.mark.parametrize("whom", ["supervisor", long_case("tree")])
def test_quit_is_a_cold_end_at_once(busy: Busy, conn: redis.Redis, gate: Gate, whom: str) -> None:
    service, job = busy
    TO_WHOM[whom](service, signal.SIGQUIT)
    service.ended(1)
    assert unspent(conn, job)
    all_is_told(conn, job)


@pytest.mark.long
def test_a_process_that_does_not_end_in_time_is_killed(services: Services, conn: redis.Redis, gate: Gate) -> None:
    job = gate.enqueue()
    service = services.start(2, "s", "--shutdown-timeout", "0.5")
    gate.begun(job)
    service.note()
    busy = service.worker_of(conn, job.id)
    service.signal(signal.SIGTERM)
    service.ended(1)
    assert service.count(re.compile(rf"pid {busy.pid}\b.*has not ended in time: SIGQUIT")) == 1
    assert unspent(conn, job)
    all_is_told(conn, job)


@pytest.mark.long
def test_a_term_to_one_worker_ends_that_one_warm_and_a_fresh_one_comes(busy: Busy, conn: redis.Redis, gate: Gate) -> None:
    service, job = busy
    worker = service.worker_of(conn, job.id)
    worker.send_signal(signal.SIGTERM)
    service.says("warm shutdown (signal)")
    gate.open()
    eventually(lambda: not alive(worker.pid), why="it has ended")
    assert status_of(conn, job.id) == "finished"
    service.until_ready(3)
    assert len(service.workers()) == 2
    assert "ProcessExitError" not in service.output
    service.signal(signal.SIGTERM)
    service.ended(0)
    all_is_told(conn, job)


@pytest.mark.long
def test_without_a_supervisor_workers_finish_and_go(busy: Busy, conn: redis.Redis, gate: Gate) -> None:
    service, job = busy
    workers = service.workers()
    service.process.kill()
    service.process.wait(10)
    service.says("warm shutdown (the supervisor)", 2)
    waiting = gate.enqueue()
    eventually(lambda: sum(alive(worker.pid) for worker in workers) == 1, why="the idle one has gone")
    gate.open()
    service.nothing_left()
    assert [status_of(conn, one.id) for one in (job, waiting)] == ["finished", "queued"]
    all_is_told(conn, job, waiting)


@pytest.mark.long
def test_without_a_supervisor_nothing_runs_for_ever(services: Services, conn: redis.Redis, gate: Gate) -> None:
    job = gate.enqueue(job_timeout=-1)
    service = services.start(1, "s", "--shutdown-timeout", "0")
    gate.begun(job)
    service.note()
    service.process.kill()
    service.process.wait(10)
    service.nothing_left(timeout=10)
    assert unspent(conn, job)
    all_is_told(conn, job)


def test_a_stop_during_the_start_ends_at_once(services: Services, conn: redis.Redis) -> None:
    service = services.start(3, "s", ready=False)
    service.says("supervisor (pid")
    service.signal_tree(signal.SIGTERM)
    service.ended(0)
    all_is_told(conn)


@pytest.mark.long
def test_quiet_workers_take_no_job_nor_do_those_that_come_later(services: Services, conn: redis.Redis, gate: Gate) -> None:
    service = services.start(1, "s")
    service.signal(signal.SIGTSTP)
    service.says("quiet")
    service.workers()[0].kill()
    service.until_ready(2)
    gate.open()
    job = gate.enqueue()
    service.says("quiet", 2)
    assert status_of(conn, job.id) == "queued"
    service.signal(signal.SIGCONT)
    eventually(lambda: status_of(conn, job.id) == "finished")
