"""Jobs that are lost with what they share with others: only who is to blame is called a poison pill."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import redis

from fusion import Queue
from fusion.store.access import inspector_of
from tests.faults.rig.conservation import check_ended, runs_seen
from tests.kit.hands import events_of
from tests.kit.length import soak_case
from tests.kit.waiting import eventually
from tests.kit.witnesses import field, runs_of, status_of
from tests.kit.workers import WorkerProcess, Workers

ENV = {
    "FUSION_TASKS": "tests.jobs.shared,tests.jobs.basic",
    "FUSION_LEASE": "1",
    "FUSION_REAP_INTERVAL": "0.2",
    "FUSION_IDLE_WAIT": "0.3",
    "FUSION_CLAIM_AHEAD": "0",
}
pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]
MODES = pytest.mark.parametrize("mode", ["slots", "horses"])


class Fleet:
    """One worker, and another as often as that one dies."""

    def __init__(self, workers: Workers, *args: str) -> None:
        self._workers, self._args = workers, args
        self.deaths = 0
        self.worker = self._start()

    def _start(self) -> WorkerProcess:
        return self._workers.start(*self._args, env=ENV, ready=False)

    def tend(self) -> None:
        if self.worker.process.poll() is not None:
            self.deaths += 1
            self.worker = self._start()


@pytest.mark.parametrize(
    ("pill", "mode"),
    [
        ("takes_its_fork_server", "slots"),
        soak_case("takes_its_fork_server", "horses"),
        soak_case("takes_its_worker", "slots"),
        ("takes_its_worker", "horses"),
    ],
)
def test_a_pill_takes_no_others_with_it(workers: Workers, conn: redis.Redis, tmp_path: Path, mode: str, pill: str) -> None:
    """P4, P5: one that takes down what it shares ends as a poison pill, after a bounded number of runs; three beside it finish."""
    seen = tmp_path / "seen"
    queue = Queue("w", conn)
    culprit = queue.enqueue(f"tests.jobs.shared.{pill}", str(seen))
    others = [queue.enqueue("tests.jobs.shared.long", str(seen)) for _ in range(3)]
    fleet = Fleet(workers, "w", f"--{mode}", "4")
    ids = [culprit.id, *(job.id for job in others)]

    def all_ended() -> bool:
        fleet.tend()
        return all(status_of(conn, job_id) in ("finished", "failed") for job_id in ids)

    eventually(all_ended, 90, why="all have ended")
    assert [status_of(conn, job.id) for job in others] == ["finished"] * 3
    assert status_of(conn, culprit.id) == "failed"
    assert "poison pill" in field(conn, culprit.id, "reason")
    assert len(runs_of(seen, "pill")) == 5
    assert all(field(conn, job.id, "deliveries") in ("2", "3") for job in others)
    check_ended(conn, ids, runs_seen(seen, word="pill") + runs_seen(seen, word="here"))
    told = [event for event in events_of(conn, culprit.id) if event["event"] == "abandoned"]
    assert [event["blame"] for event in told] == ["shared", "shared", "job", "job"]


def test_under_a_supervisor_too(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    """It replaces the worker at once and ends what that left behind, the worker for jobs on probation among it."""
    seen, queue = tmp_path / "seen", Queue("w", conn)
    pills = [queue.enqueue("tests.jobs.shared.takes_its_worker_alone", str(seen), 0.3 + n / 10) for n in range(2)]
    others = [queue.enqueue("tests.jobs.shared.long", str(seen)) for _ in range(2)]
    env = ENV | {"FUSION_MAX_LOST": "3"}  # each life takes a new worker to its end, and those start one after another
    workers.start("-n", "1", "w", "--slots", "4", "--no-scheduler", env=env, program=("run_worker.py", "start"))
    ids = [job.id for job in (*pills, *others)]
    eventually(lambda: all(status_of(conn, job_id) in ("finished", "failed") for job_id in ids), 90, why="all have ended")
    assert [status_of(conn, job.id) for job in others] == ["finished"] * 2
    assert [status_of(conn, job.id) for job in pills] == ["failed"] * 2
    check_ended(conn, ids, runs_seen(seen, word="pill") + runs_seen(seen, word="here"))


@MODES
def test_the_right_passes_from_queue_to_queue(workers: Workers, conn: redis.Redis, tmp_path: Path, mode: str) -> None:
    """Who runs one host's jobs on probation gives that up once there are no more in its queues: those of others wait."""
    seen = tmp_path / "seen"
    jobs = [Queue(name, conn).enqueue("tests.jobs.basic.witness", str(seen)) for name in "ab"]
    for job in jobs:
        conn.hset(f"rq:job:{job.id}", mapping={"lost": 2, "deliveries": 2})
    for name in "ab":
        workers.start(name, f"--{mode}", "2", env=ENV, ready=False)
    eventually(lambda: all(status_of(conn, job.id) == "finished" for job in jobs), 60, why="both have run")
    assert all(field(conn, job.id, "execution_id").endswith("s") for job in jobs)


@pytest.fixture
def suspects(conn: redis.Redis, tmp_path: Path) -> tuple[Path, Path, list[str]]:
    """A gate, what is seen, and two jobs on probation that run until the gate is gone."""
    gate, seen = tmp_path / "gate", tmp_path / "seen"
    gate.touch()
    jobs = [Queue("w", conn).enqueue("tests.jobs.basic.until_gone", str(gate), str(seen)) for _ in range(2)]
    for job in jobs:
        conn.hset(f"rq:job:{job.id}", mapping={"lost": 2, "deliveries": 2})
    return gate, seen, [job.id for job in jobs]


@MODES
def test_a_worker_that_is_told_to_end_takes_no_more_jobs_on_probation(
    workers: Workers, conn: redis.Redis, suspects: tuple[Path, Path, list[str]], mode: str
) -> None:
    """The one that runs is finished; those behind it are left to other workers."""
    gate, seen, ids = suspects
    worker = workers.start("w", f"--{mode}", "2", env=ENV, ready=False)
    eventually(lambda: len(runs_of(seen, "started")) == 1, 60, why="the first of them runs")
    assert sorted(one.probation for one in inspector_of(conn).workers()) == [False, True], "people see which one it is"
    worker.signal(signal.SIGTERM)
    eventually(lambda: "warm shutdown (the supervisor)" in worker.output, why="its worker for jobs on probation has heard of it")
    gate.unlink()
    assert worker.process.wait(30) == 0
    assert sorted(status_of(conn, job_id) == "finished" for job_id in ids) == [False, True]
    assert len(runs_of(seen, "started")) == 1


@MODES
def test_a_job_on_probation_goes_back_when_its_worker_is_killed(
    workers: Workers, conn: redis.Redis, suspects: tuple[Path, Path, list[str]], mode: str
) -> None:
    """Its process gives it back before somebody kills that, too: no lease has to run out."""
    _, seen, ids = suspects
    worker = workers.start("w", f"--{mode}", "2", env={**ENV, "FUSION_LEASE": "60"}, ready=False)
    eventually(lambda: len(runs_of(seen, "started")) == 1, 60, why="the first of them runs")
    worker.signal(signal.SIGKILL)
    job_id = next(job_id for job_id in ids if field(conn, job_id, "started_at"))
    eventually(lambda: status_of(conn, job_id) == "queued", why="it is back in its queue")
    assert len(runs_of(seen, "started")) == 1
