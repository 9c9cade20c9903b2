"""Many jobs at once in one process: what they share, and what one may do to the others."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import redis

from fusion import Job, Queue, Retry
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import events_of
from tests.kit.length import gate_case, soak_case
from tests.kit.promises import claim
from tests.kit.waiting import eventually
from tests.kit.witnesses import field, lines, losses_of, runs_of, status_of
from tests.kit.workers import Workers

ENV = {"FUSION_TASKS": "tests.jobs.crowd", "FUSION_TIMEOUT_GRACE": "0.5"}


def _all(conn: redis.Redis, jobs: list[Job], status: str, timeout: float = 10.0) -> None:
    eventually(lambda: {status_of(conn, job.id) for job in jobs} == {status}, timeout, why=f"all are {status}")


def _begun(seen: Path, count: int) -> None:
    eventually(lambda: len(runs_of(seen, "begun")) >= count, why=f"{count} have begun")


class Crowd:
    """A worker of one process that runs many jobs at once, and tasks of the kind that its executor is for."""

    def __init__(self, workers: Workers, conn: redis.Redis, executor: str) -> None:
        self.executor, self.queue = executor, Queue("c", conn)
        threads = ("--threads", "60") if executor == "thread" else ()
        self.worker = workers.start("c", "--executor", executor, *threads, "--neighbour-grace", "2", env=ENV)

    def enqueue(self, task: str, *args: Any, **options: Any) -> Job:
        name = task if self.executor == "asyncio" else f"plain_{task}"
        return self.queue.enqueue_call(f"tests.jobs.crowd.{name}", args, **options)


@pytest.fixture(params=["asyncio", "thread"])
def crowd(request: pytest.FixtureRequest, workers: Workers, conn: redis.Redis) -> Crowd:
    return Crowd(workers, conn, request.param)


def test_they_share_a_process_and_know_each_who_they_are(crowd: Crowd, conn: redis.Redis, tmp_path: Path) -> None:
    jobs = [crowd.enqueue("where") for _ in range(60)]
    _all(conn, jobs, "finished")
    found = [job.result for job in jobs]
    assert len({pid for pid, _, _ in found}) == 1
    assert [[job.id, job.id] for job in jobs] == [ids for _, *ids in found]
    assert [Job.fetch(job.id, conn).meta for job in jobs] == [{"seen": job.id} for job in jobs]
    begun = time.monotonic()
    naps = [
        crowd.queue.enqueue_call(f"tests.jobs.crowd.{task}", (str(tmp_path / "seen"), 1.0)) for task in ("nap", "plain_nap") * 25
    ]
    _all(conn, naps, "finished")
    assert time.monotonic() - begun < 4
    assert [job.result for job in naps] == [job.id for job in naps]
    check_conservation(conn, [job.id for job in (*jobs, *naps)])


@pytest.mark.long
def test_a_soft_timeout_and_a_stop_end_one_and_leave_the_others(crowd: Crowd, conn: redis.Redis, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    late = crowd.enqueue("nap", str(seen), 60.0, timeout=1)
    stopped = crowd.enqueue("nap", str(seen), 60.0)
    other = crowd.enqueue("nap", str(seen), 1.5)
    _begun(seen, 3)
    assert stopped.stop() == "pending"
    _all(conn, [stopped], "stopped")
    _all(conn, [late], "failed")
    assert field(conn, late.id, "error_class") == "fusion.exceptions.JobTimeoutException"
    assert "exceeded maximum timeout value (1 seconds)" in field(conn, late.id, "reason")
    _all(conn, [other], "finished")
    assert len(set(runs_of(seen, "begun"))) == 1 and len(runs_of(seen, "begun")) == 3


@claim("P8")
@pytest.mark.parametrize("crowd", [gate_case("asyncio"), gate_case("thread")], indirect=True)
def test_one_that_does_not_end_is_killed_with_its_process_and_no_neighbour_runs_twice(
    crowd: Crowd, conn: redis.Redis, tmp_path: Path
) -> None:
    """Those that end within the grace. Meanwhile another process has its place."""
    seen = tmp_path / "seen"
    late = crowd.enqueue("swallows", str(seen), timeout=1)
    others = [crowd.enqueue("nap", str(seen), 2.5) for _ in range(5)]
    _begun(seen, 6)
    crowd.worker.says("gets no more jobs")
    assert status_of(conn, late.id) == "started"
    after = crowd.enqueue("nap", str(seen), 0.0)
    _all(conn, [after], "finished")
    _all(conn, [late], "failed")
    assert "did not end within its timeout of 1 s plus 0.5 s grace and was killed" in field(conn, late.id, "reason")
    _all(conn, others, "finished")
    assert len(runs_of(seen, "begun")) == 7 and len(set(runs_of(seen, "begun"))) == 2
    assert not any(event["event"] in ("displaced", "abandoned") for event in events_of(conn))


@claim("P5")
@pytest.mark.long
def test_a_neighbour_that_takes_longer_than_the_grace_goes_back_unharmed(crowd: Crowd, conn: redis.Redis, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    late = crowd.enqueue("swallows", str(seen), timeout=1)
    other = crowd.enqueue("nap", str(seen), 6.0)
    _all(conn, [late], "failed")
    eventually(lambda: len(runs_of(seen, "begun", other.id)) == 2, why="it begins anew")
    counted = [field(conn, other.id, name) for name in ("attempts", "lost")]  # its end forgets what was lost
    assert set(counted) <= {"", "0"}
    _all(conn, [other], "finished", 12)
    assert len(runs_of(seen, "begun", other.id)) == 2
    assert [event["event"] for event in events_of(conn, other.id)] == [
        "queued",
        "processing",
        "displaced",
        "processing",
        "completed",
    ]


@pytest.mark.long
@pytest.mark.parametrize("crowd", ["asyncio", soak_case("thread")], indirect=True)
def test_one_that_is_displaced_twice_runs_alone(crowd: Crowd, conn: redis.Redis, tmp_path: Path) -> None:
    """Or jobs beside it that do not end would keep it from ever coming to an end."""
    seen = tmp_path / "seen"
    other = crowd.enqueue("nap", str(seen), 6.0)
    for times in (1, 2):
        late = crowd.enqueue("swallows", str(seen), timeout=1)
        _all(conn, [late], "failed")
        eventually(lambda times=times: len(runs_of(seen, "begun", other.id)) == times + 1, 10, why=f"it begins anew, {times}")
    late = crowd.enqueue("swallows", str(seen), timeout=1)
    _all(conn, [late], "failed")
    _all(conn, [other], "finished", 12)
    assert len(runs_of(seen, "begun", other.id)) == 3
    assert field(conn, other.id, "suspect") == ""


@pytest.mark.long
def test_those_whose_time_is_over_end_by_it_when_they_cost_each_other_their_process(
    workers: Workers, conn: redis.Redis, tmp_path: Path
) -> None:
    """A thread is struck, which condemns the process, and it gives no sign of life, as its loop is blocked: nobody has used up its grace."""
    seen, queue = tmp_path / "seen", Queue("c", conn)
    other = queue.enqueue_call("tests.jobs.crowd.nap", (str(seen), 0.7))
    late = [
        queue.enqueue_call("tests.jobs.crowd.plain_swallows", (str(seen),), timeout=1),
        queue.enqueue_call("tests.jobs.crowd.hogs", (60.0,), timeout=1),
    ]
    worker = workers.start("c", "--executor", "asyncio", env={**ENV, "FUSION_TIMEOUT_GRACE": "30"})
    _all(conn, late, "failed", 15)
    for job in late:
        assert field(conn, job.id, "reason").endswith(
            "did not end within its timeout of 1 s and its grace ended with its process [FUS-157]"
        )
    _all(conn, [other], "finished")
    assert worker.output.count("gets no more jobs") == 1


@claim("P5")
@pytest.mark.long
def test_only_a_job_that_kills_its_process_alone_is_charged(crowd: Crowd, conn: redis.Redis, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    others = [crowd.enqueue("nap", str(seen), 0.8) for _ in range(9)]
    wild = crowd.enqueue("dies", str(seen), 0.3)
    _all(conn, [wild], "failed", 20)
    assert "killed by SIGSEGV" in field(conn, wild.id, "reason")
    _all(conn, others, "finished", 30)
    assert len(runs_of(seen, "begun", wild.id)) in (3, 4), "among ten, among five, among two unless it is left over, then alone"
    assert len(runs_of(seen, "begun")) <= 10 + 10 + 5 + 2 + 1, "half of the suspects are cleared with each death"
    assert all(field(conn, job.id, name) in ("", "0") for job in others for name in ("attempts", "suspect"))
    assert [losses_of(conn, job.id) for job in others] == [0] * 9
    check_conservation(conn, [job.id for job in (*others, wild)])


def test_one_that_blocks_the_loop_is_named(workers: Workers, conn: redis.Redis) -> None:
    crowd = Crowd(workers, conn, "asyncio")
    job = crowd.enqueue("hogs", 2.0)
    crowd.worker.says(f"blocked by job {job.id}")
    assert "time.sleep(seconds)" in crowd.worker.output
    _all(conn, [job], "finished")


def test_a_warm_end_lets_them_finish(crowd: Crowd, conn: redis.Redis, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    jobs = [crowd.enqueue("nap", str(seen), 1.0) for _ in range(5)]
    _begun(seen, 5)
    crowd.worker.signal(signal.SIGTERM)
    assert crowd.worker.wait() == 0, crowd.worker.output
    _all(conn, jobs, "finished", 0.1)
    assert len(list(lines(seen))) == 10


@pytest.mark.long
def test_a_process_killed_from_outside_costs_nobody_a_life(crowd: Crowd, conn: redis.Redis, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    jobs = [crowd.enqueue("nap", str(seen), 0.7) for _ in range(8)]
    _begun(seen, 8)
    os.kill(runs_of(seen, "begun")[0], signal.SIGKILL)
    _all(conn, jobs, "finished", 30)
    assert [losses_of(conn, job.id) for job in jobs] == [0] * 8
    check_conservation(conn, [job.id for job in jobs])


def test_tasks_that_a_coroutine_leaves_behind_go_on_until_their_process_ends(
    workers: Workers, conn: redis.Redis, tmp_path: Path
) -> None:
    """They are no part of the job: it has ended, and what they say in its name counts for nothing. At the end they may clean up."""
    seen, crowd = tmp_path / "seen", Crowd(workers, conn, "asyncio")
    job = crowd.enqueue("leaves_tasks", str(seen), 0.5)
    _all(conn, [job], "finished")
    assert not runs_of(seen, "later")
    eventually(lambda: runs_of(seen, "later"), why="one goes on")
    after = crowd.enqueue("nap", str(seen), 0.0)
    _all(conn, [after], "finished")
    assert (Job.fetch(job.id, conn).meta, status_of(conn, job.id)) == ({}, "finished")
    assert not runs_of(seen, "closed")
    crowd.worker.signal(signal.SIGTERM)
    assert crowd.worker.wait() == 0, crowd.worker.output
    assert runs_of(seen, "closed") == [*runs_of(seen, "later")]


def _blocked(
    workers: Workers, conn: redis.Redis, seen: Path, hogs: float | Path, limit: float, before: tuple[float, float] | None
) -> tuple[Job, list[Job], list[Job]]:
    """One that blocks the loop, those that it keeps from going on (their seconds, and their limit), and those that come meanwhile."""
    crowd = Crowd(workers, conn, "asyncio")
    begun = [crowd.enqueue("nap", str(seen), before[0], timeout=before[1]) for _ in range(10)] if before else []
    eventually(lambda: len(runs_of(seen, "begun")) == len(begun), why="they have begun")
    if isinstance(hogs, Path):  # until this file is there
        blocker = crowd.enqueue("hogs_until", str(seen), str(hogs), timeout=limit)
    else:
        blocker = crowd.enqueue("hogs_and_notes", str(seen), hogs, timeout=limit)
    eventually(lambda: runs_of(seen, "hogs"), why="it blocks the loop")
    return blocker, begun, [crowd.enqueue("nap", str(seen), 0.0, timeout=1) for _ in range(30)]


def _unharmed(conn: redis.Redis, jobs: list[Job]) -> None:
    assert {status_of(conn, job.id) for job in jobs} == {"finished"}
    assert {field(conn, job.id, name) for job in jobs for name in ("attempts", "lost", "exc_info")} <= {"", "0"}


def test_those_that_come_while_the_loop_is_blocked_run_elsewhere(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen, freed = tmp_path / "seen", tmp_path / "freed"
    blocker, _, later = _blocked(workers, conn, seen, freed, 120, None)
    _all(conn, later, "finished", 40)  # however slow the machine is: the loop stays blocked meanwhile
    assert status_of(conn, blocker.id) == "started"
    freed.touch()
    _all(conn, [blocker], "finished")
    _unharmed(conn, [blocker, *later])
    assert len(runs_of(seen, "begun")) == 30, "each began once"
    check_conservation(conn, [job.id for job in (blocker, *later)])


@pytest.mark.long
def test_the_time_for_which_another_blocks_the_loop_is_not_ones_own(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    """Neither inside the process nor for the worker: each has what was left of its time."""
    seen = tmp_path / "seen"
    blocker, begun, later = _blocked(workers, conn, seen, 4.0, 60, (1.0, 2.0))
    _all(conn, [blocker, *begun, *later], "finished")
    _unharmed(conn, [blocker, *begun, *later])
    assert len(runs_of(seen, "begun")) == 40, "each began once"


@pytest.mark.long
def test_only_the_job_that_blocks_the_loop_is_charged(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    blocker, begun, later = _blocked(workers, conn, seen, 60.0, 2, (1.0, 2.0))
    _all(conn, [*begun, *later], "finished", 15)
    _all(conn, [blocker], "failed")
    assert field(conn, blocker.id, "error_class") == "fusion.exceptions.JobTimeoutException"
    _unharmed(conn, [*begun, *later])
    check_conservation(conn, [job.id for job in (blocker, *begun, *later)])


def test_each_way_to_end_is_told(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    """Whatever a coroutine does to its own task, and whatever its error is like."""
    seen, crowd = tmp_path / "seen", Crowd(workers, conn, "asyncio")
    naps = [crowd.enqueue("nap", str(seen), 1.0), crowd.queue.enqueue_call("tests.jobs.crowd.plain_nap", (str(seen), 1.0))]
    _begun(seen, 2)
    failing = {
        "cancels_itself": ((), "builtins.ValueError"),
        "exits_in_a_subtask": ((True,), "builtins.SystemExit"),
        "raises_unreadable": ((), "tests.jobs.crowd.Unreadable"),
        "plain_raises_unreadable": ((), "tests.jobs.crowd.Unreadable"),
    }
    jobs = {name: crowd.enqueue(name, *args, timeout=5, retry=Retry(0)) for name, (args, _) in failing.items()}
    fine = crowd.enqueue("exits_in_a_subtask", False)
    _all(conn, [*jobs.values()], "failed")
    assert {name: field(conn, job.id, "error_class") for name, job in jobs.items()} == {
        name: error for name, (_, error) in failing.items()
    }
    _all(conn, [*naps, fine], "finished")
    assert len(set(runs_of(seen, "begun"))) == 1, "in one process"
    _unharmed(conn, [*naps, fine])


@pytest.mark.parametrize("how", ["own", "imported before"])
def test_a_job_that_cancels_all_tasks_cancels_only_its_own(workers: Workers, conn: redis.Redis, tmp_path: Path, how: str) -> None:
    seen, crowd = tmp_path / "seen", Crowd(workers, conn, "asyncio")
    tasks = ("nap", "plain_nap", "naps_in_subtasks")
    naps = [crowd.queue.enqueue_call(f"tests.jobs.crowd.{task}", (str(seen), 1.0)) for task in tasks]
    _begun(seen, 3)
    rude = crowd.enqueue("cancels_all", how)
    _all(conn, [*naps, rude], "finished")
    assert (rude.result == 0) is (how == "own")
    _unharmed(conn, naps)
    again = [job.id for job in naps if len(runs_of(seen, "begun", job.id)) > 1]
    assert again == ([] if how == "own" else [naps[2].id]), "what still reaches a neighbour is not charged to it"


@pytest.mark.long
@pytest.mark.parametrize("executor", ["process", "pool", "thread"])
def test_an_error_that_nobody_can_look_at_is_told(workers: Workers, conn: redis.Redis, executor: str) -> None:
    job = Queue("c", conn).enqueue_call("tests.jobs.crowd.plain_raises_unreadable", (), retry=Retry(0))
    workers.start("c", "--executor", executor, env=ENV)
    _all(conn, [job], "failed")
    assert field(conn, job.id, "error_class") == "tests.jobs.crowd.Unreadable"


def test_a_flush_that_hangs_holds_up_no_job_and_keeps_no_thread(crowd: Crowd, conn: redis.Redis) -> None:
    hangs = crowd.enqueue("hangs_stdout")
    _all(conn, [hangs], "finished")
    counts = []
    for _ in range(8):  # one after another: each finds an idle thread, or another is made
        job = crowd.enqueue("here")
        _all(conn, [job], "finished")
        counts.append(job.result)
    assert {pid for pid, _ in counts} == {hangs.result}
    assert counts[-1][1] == counts[1][1]


def test_a_process_in_which_fusion_itself_fails_is_replaced(crowd: Crowd, conn: redis.Redis) -> None:
    spoilt = crowd.enqueue("breaks_fusion")
    _all(conn, [spoilt], "finished")
    for _ in range(3):
        job = crowd.enqueue("here", retry=Retry(0))
        _all(conn, [job], "failed")
    job = crowd.enqueue("here", retry=Retry(0))
    _all(conn, [job], "finished")
    assert job.result[0] != spoilt.result
