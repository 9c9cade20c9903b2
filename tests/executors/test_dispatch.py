"""Each claimed job gets to the executor or goes back, and ends with exactly one outcome."""

from __future__ import annotations

import random
from signal import SIGKILL, SIGSEGV
from typing import Any

import pytest

from fusion.executors.base import KillCause
from fusion.store.layout.records import Claimed
from tests.executors.rig import Rig, claimed
from tests.kit.fake_executor import FakeExecutor


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_jobs_beyond_the_slots_go_back(slots: int) -> None:
    rig = Rig(slots=slots)
    jobs = [rig.start() for _ in range(slots + 2)]
    assert [run.claimed for run in rig.executor.running] == jobs[:slots]
    assert [(commit.job_id, commit.kind, commit.reason) for commit in rig.told()] == [
        (job.id, "release", "no free process") for job in jobs[slots:]
    ]


@pytest.mark.parametrize(
    "stop",
    [
        Rig.stop,
        Rig.be_quiet,
        lambda rig: setattr(rig.recycling, "jobs", 3),
        lambda rig: rig.executor.drain(),
    ],
    ids=["stopping", "quiet", "max_jobs", "no executor"],
)
@pytest.mark.parametrize("ahead", [False, True])
def test_a_worker_that_takes_nothing_gives_back_what_it_claimed(stop: Any, ahead: bool) -> None:
    rig = Rig(slots=2, max_jobs=3)
    stop(rig)
    rig.start(ahead=ahead)
    assert rig.kinds() == ["release"] and not rig.executor.running
    assert rig.slots.free() == ([], 0)


def test_a_job_behind_another_never_starts_elsewhere() -> None:
    rig = Rig(FakeExecutor(2, depth=2))
    first = rig.start()
    behind = claimed(ahead=True)
    behind.fields[b"follows"] = f"{behind.execution_id} {first.execution_id}".encode()
    rig.dispatcher.start(behind)
    assert [run.claimed for run in rig.executor.running] == [first]
    (run,) = rig.executor.queued
    rig.dispatcher.returned(run, "no room ahead")
    assert [run.claimed for run in rig.executor.running] == [first]
    assert [(commit.job_id, commit.kind) for commit in rig.told()] == [(behind.id, "release")]


@pytest.mark.parametrize("stop", [Rig.stop, Rig.be_quiet], ids=["stopping", "quiet"])
def test_a_worker_quieted_during_a_turn_returns_its_prefetched_jobs(stop: Any) -> None:
    rig = Rig(FakeExecutor(1, depth=2))
    running = rig.start()
    stop(rig)
    late = rig.start(ahead=True)
    assert [run.claimed for run in (*rig.executor.running, *rig.executor.queued)] == [running]
    assert [(commit.job_id, commit.kind) for commit in rig.told()] == [(late.id, "release")]


@pytest.mark.parametrize(
    ("timeout", "limit"), [(b"10", 15.0), (b"0.5", 5.5), (b"-1", float("inf")), (b"0", float("inf")), (b"", 185.0)]
)
def test_a_run_is_limited_by_its_timeout_and_the_grace(timeout: bytes, limit: float) -> None:
    rig = Rig(timeout_grace=5.0, job_timeout=180.0)
    assert rig.run_of(rig.start(timeout=timeout)).limit == limit


@pytest.mark.parametrize("timeout", [b"nan", b"inf", b"soon", b"1h", b"\xff", b"--1"])
def test_a_timeout_that_is_no_number_fails_its_job_alone(timeout: bytes) -> None:
    rig = Rig()
    rig.start(timeout=timeout)
    assert rig.kinds() == ["failed"] and not rig.executor.running
    rig.start()
    assert len(rig.executor.running) == 1


@pytest.mark.parametrize(
    ("names", "queue", "isolated"), [(("q",), "q", True), (("r*",), "q", False), (("r*",), "rare", True), (None, "q", False)]
)
def test_jobs_of_some_queues_get_a_process_of_their_own(names: tuple[str, ...] | None, queue: str, isolated: bool) -> None:
    rig = Rig(isolate_queues=names)
    assert (rig.run_of(rig.start(queue=queue)).claimed.fields.get(b"isolate") == b"1") is isolated


@pytest.mark.parametrize("reserve", [0, 1, 2])
@pytest.mark.parametrize("running", [0, 1, 2, 3])
def test_reserved_slots_are_for_high_jobs(reserve: int, running: int) -> None:
    rig = Rig(slots=3, reserve_high=reserve)
    for _ in range(running):
        rig.executor.start(claimed(), 1.0)
    floors = rig.slots.floors()
    assert len(floors) == 3 - running and floors.count(0) == max(0, 3 - running - reserve)
    assert rig.slots.fits(claimed(priority=2)) is (running < 3)
    assert rig.slots.fits(claimed(priority=1)) is (running < 3 - reserve)


@pytest.mark.parametrize("max_jobs", [None, 1, 4, 9])
@pytest.mark.parametrize("depth", [0, 2, 8])
def test_no_more_is_claimed_ahead_than_may_wait_and_may_run(depth: int, max_jobs: int | None) -> None:
    rig = Rig(FakeExecutor(2, depth=depth), max_jobs=max_jobs)
    floors, ahead = rig.slots.free()
    assert ahead == min(max(0, depth - len(floors)), (max_jobs or 99) - len(floors))


def test_a_prefetched_job_runs_at_once_where_a_slot_is_free() -> None:
    rig = Rig(FakeExecutor(1, depth=2))
    first, second = rig.start(ahead=True), rig.start(ahead=True)
    assert [run.claimed for run in rig.executor.running] == [first]
    assert [run.claimed for run in rig.executor.queued] == [second]


def test_a_prefetched_job_without_room_goes_back() -> None:
    rig = Rig(FakeExecutor(1, depth=1))
    jobs = [rig.start(ahead=True) for _ in range(3)]
    assert [(commit.job_id, commit.reason) for commit in rig.told()] == [(jobs[2].id, "no process for it")]


@pytest.mark.parametrize("why", ["quiet", "suspended", "the job before it takes long"])
def test_a_recalled_job_goes_back_with_its_reason(why: str) -> None:
    rig = Rig(FakeExecutor(1, depth=2))
    rig.start()
    jobs = [rig.start(ahead=True) for _ in range(2)]
    rig.executor.recall(why)
    assert [(commit.job_id, commit.kind, commit.reason) for commit in rig.told()] == [(job.id, "release", why) for job in jobs]


def test_a_recalled_job_takes_a_slot_that_is_free_by_then() -> None:
    rig = Rig(FakeExecutor(1, depth=1))
    first, second = rig.start(), rig.start(ahead=True)
    rig.executor.running.clear()
    rig.executor.recall("the process it waited for died")
    assert [run.claimed for run in rig.executor.running] == [second] and rig.told() == []
    assert first is not second


def test_jobs_that_came_back_do_not_count_for_max_jobs() -> None:
    rig = Rig(FakeExecutor(1, depth=1), max_jobs=2)
    rig.start()
    rig.start(ahead=True)
    assert rig.recycling.room(5) == 0
    rig.executor.recall("quiet")
    assert rig.recycling.room(5) == 1


def test_the_begin_of_a_short_prefetched_job_is_reported() -> None:
    rig = Rig(FakeExecutor(1, depth=1))
    first, second = rig.start(), rig.start(ahead=True)
    rig.executor.finish(rig.run_of(first))
    rig.executor.advance()
    rig.told()
    assert rig.broker.begun == [(second.id, second.execution_id)]


def test_room_that_appears_asks_for_a_turn() -> None:
    rig = Rig(FakeExecutor(0), slots=1)
    assert not rig.slots.turn_due
    rig.executor.make_room(1)
    assert rig.slots.turn_due


def test_meta_and_lines_are_no_outcomes() -> None:
    rig = Rig()
    run = rig.run_of(rig.start())
    rig.executor.say(run, b"meta", meta=b'{"a": 1}')
    rig.executor.say(run, b"log", message=b"x")
    assert rig.told() == [] and rig.executor.running == [run]
    assert rig.broker.metas == [(run.claimed.id, b'{"a": 1}')] and rig.task_logs.next_at < float("inf")


@pytest.mark.parametrize("lost", range(4))
def test_runs_whose_lease_is_lost_are_killed(lost: int) -> None:
    rig = Rig(FakeExecutor(3, depth=1, slow_kills=True))
    jobs = [rig.start() for _ in range(3)] + [rig.start(ahead=True)]
    rig.membership.lost = {jobs[lost].execution_id}
    rig.dispatcher.renew_leases(rig.membership, 0.0)
    assert [job for job, _ in rig.membership.held] == [job.id for job in jobs]
    rig.dispatcher.renew_leases(rig.membership, 1.0)
    assert [job for job, _ in rig.membership.held] == [job.id for job in jobs if job is not jobs[lost]], "its lease is another's"
    rig.executor.reap()
    assert rig.told() == []


def test_leases_of_outcomes_that_wait_are_renewed() -> None:
    rig = Rig()
    job = rig.start()
    rig.executor.finish(rig.run_of(job))
    rig.dispatcher.renew_leases(rig.membership, 0.0)
    assert rig.membership.held == [(job.id, job.execution_id)]


@pytest.mark.parametrize("per_process", [1, 2, 4])
def test_a_process_of_many_jobs_takes_them_along(per_process: int) -> None:
    rig = Rig(FakeExecutor(4, per_process=per_process))
    jobs = [rig.start() for _ in range(4)]
    rig.executor.crash(rig.executor.neighbours(rig.run_of(jobs[0])))
    assert rig.kinds() == ["struck"] * per_process
    assert len(rig.executor.running) == 4 - per_process


@pytest.mark.parametrize("per_process", [1, 4])
def test_one_of_many_runs_in_a_process_can_be_ended_alone(per_process: int) -> None:
    rig = Rig(FakeExecutor(4, per_process=per_process))
    jobs = [rig.start() for _ in range(4)]
    rig.executor.kill(rig.run_of(jobs[1]), KillCause.COMMAND)
    assert [(commit.job_id, commit.kind) for commit in rig.told()] == [(jobs[1].id, "failed")]
    assert [run.claimed for run in rig.executor.running] == [jobs[0], jobs[2], jobs[3]]


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_each_job_has_exactly_one_outcome(seed: int) -> None:
    """Random steps of a worker's day; at the end the executor is closed."""
    chance = random.Random(seed)
    rig = Rig(FakeExecutor(chance.randint(1, 4), per_process=chance.choice((1, 2)), depth=chance.randint(0, 3)))
    executor, jobs, elsewhere = rig.executor, list[Claimed](), set[str]()

    def start() -> None:
        jobs.append(rig.start(ahead=chance.random() < 0.4, priority=chance.randint(0, 3)))

    def finish() -> None:
        executor.finish(chance.choice(executor.running), chance.choice((b"finished", b"failed", b"held", b"nonsense")))

    def die() -> None:
        executor.die(chance.choice(executor.running), chance.choice((0, SIGKILL, SIGSEGV)))

    def kill() -> None:
        run, cause = chance.choice(executor.running), chance.choice(list(KillCause))
        if cause in (KillCause.LOST, KillCause.COLD):
            elsewhere.add(run.claimed.id)
        executor.kill(run, cause)

    def crash() -> None:
        executor.crash(executor.neighbours(chance.choice(executor.running)))

    for _ in range(80):
        step = chance.choice((start, start, start, finish, die, kill, crash, lambda: executor.recall("x"), executor.advance))
        if step == executor.advance and not (executor.queued and executor.capacity):
            continue
        if step in (finish, die, kill, crash) and not executor.running:
            continue
        step()
        assert len(executor.running) <= executor.slots and len(executor.queued) <= executor.depth
    executor.close()
    told = [commit.job_id for commit in rig.told()]
    assert sorted(told) == sorted(job.id for job in jobs if job.id not in elsewhere)
    assert not executor.running and not executor.queued
