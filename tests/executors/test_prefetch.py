"""Jobs that wait in warm horses, without a process: what waits where, and what comes back."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from fusion.executors.base import Death, KillCause, Run
from fusion.executors.prefetch import MOST
from tests.executors.rig import claimed
from tests.executors.stage import Stage
from tests.kit.fake_fork_server import settle

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs a socket that keeps boundaries")


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """Two slots, warm, after some short jobs; nothing counts as long but by `late`."""
    made = Stage(monkeypatch, True)
    made.ready()
    estimator = made.executor._current.estimator  # type: ignore[union-attr]
    for _ in range(100):
        estimator.saw(1e-5)
    monkeypatch.setattr(estimator, "patience", 1000.0)
    yield made
    made.executor.close()


def wait(stage: Stage, lanes: int = 2, **fields: Any) -> Run:
    run = stage.executor.start(claimed(ahead=True, **fields), 10.0, behind=lanes)
    assert run is not None
    stage.executor.flush()
    return run


def read(stage: Stage, run: Run) -> list[bytes]:
    """The executions that a run's horse reads now."""
    return [frame[b"execution_id"] for frame in stage.server.jobs(stage.serial(run)) if b"execution_id" in frame]


def name(run: Run) -> bytes:
    return run.claimed.execution_id.encode()


@pytest.mark.parametrize("lanes", [0, 1, 2])
@pytest.mark.parametrize("free", [0, 1, 2])
@pytest.mark.parametrize("running", [0, 1, 2])
def test_room_grows_with_lanes_that_have_a_job_or_are_about_to(stage: Stage, running: int, free: int, lanes: int) -> None:
    for _ in range(running):
        stage.start()
    free = min(free, 2 - running)
    assert stage.executor.prefetch_room(lanes, free) == max(0, min(MOST * min(lanes, running + free), MOST - free))


def test_without_a_busy_horse_nothing_waits(stage: Stage) -> None:
    assert stage.executor.start(claimed(ahead=True), 10.0, behind=2) is None


def test_jobs_wait_where_the_fewest_do_and_run_in_their_order(stage: Stage) -> None:
    first, second = stage.start(), stage.start()
    waiting = [wait(stage) for _ in range(4)]
    assert stage.executor.queued == [waiting[0], waiting[2], waiting[1], waiting[3]]
    assert read(stage, first) == [name(first), name(waiting[0]), name(waiting[2])]
    stage.answer(first)
    assert set(stage.executor.running) == {second, waiting[0]}
    stage.answer(waiting[0])
    stage.answer(waiting[2])
    assert [run for run, _ in stage.listener.frames] == [first, waiting[0], waiting[2]]


def test_jobs_of_a_key_wait_in_one_process_in_their_order(stage: Stage) -> None:
    first, second = stage.start(), stage.start()
    ours = wait(stage, concurrency_key=b"k")
    others = [wait(stage), wait(stage)]
    rest = [wait(stage, concurrency_key=b"k"), wait(stage, concurrency_key=b"k")]
    assert read(stage, first) == [name(first), name(ours), name(others[1]), *map(name, rest)]
    assert read(stage, second) == [name(second), name(others[0])]


@pytest.mark.parametrize("priority", [0, 1, 2, 3])
def test_a_higher_class_goes_before_those_that_wait(stage: Stage, priority: int) -> None:
    first = stage.start(priority=1)
    assert stage.executor.start(claimed(ahead=True, priority=1), 10.0, behind=1)
    run = stage.executor.start(claimed(ahead=True, priority=priority), 10.0, behind=1)
    assert run is not None
    order = [queued.priority for queued in stage.executor.queued]
    assert order == sorted([1, priority], reverse=True)
    stage.executor.flush()
    assert read(stage, first)[0] == name(first) and stage.listener.back == []


def test_jobs_prefetched_behind_a_long_run_are_returned(stage: Stage) -> None:
    first = stage.start()
    waiting = [stage.executor.start(claimed(ahead=True), 10.0, behind=1) for _ in range(3)]
    assert read_one(stage, first) == name(first)
    stage.executor._current.runs[stage.serial(first)].began -= 2000  # type: ignore[union-attr, index]
    stage.executor._current._runs_at = -float("inf")  # type: ignore[union-attr]
    stage.tick(stage.executor._current.runs[stage.serial(first)].began + 1500)  # type: ignore[union-attr, index]
    assert [run for run, _ in stage.listener.back] == waiting
    assert {why for _, why in stage.listener.back} == {"the job before it takes long"}
    assert list(stage.executor.running) == [first] and stage.executor.prefetch_room(1, 0) == 0


def read_one(stage: Stage, run: Run) -> bytes:
    """The horse of a run reads its first job and nothing behind it."""
    from fusion.execution.frames import unpack

    stage.server.read()
    return unpack(stage.server.ends[stage.serial(run)].recv(65536)[4:])[b"execution_id"]


@pytest.mark.parametrize("why", ["quiet", "suspended"])
@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("sent", [0, 1, 2])
def test_a_recall_leaves_each_horse_its_first_job(stage: Stage, begun: bool, why: str, sent: int) -> None:
    first = stage.start()
    waiting = [wait(stage) for _ in range(sent)]
    waiting += [run for _ in range(2 - sent) if (run := stage.executor.start(claimed(ahead=True), 10.0, behind=2))]
    if begun:
        read_one(stage, first)
    stage.executor.recall(why)
    assert stage.listener.back == [(run, why) for run in waiting]
    assert stage.executor.queued == [] and list(stage.executor.running) == [first]
    stage.executor.flush()
    assert read(stage, first) == [name(first)] * (not begun), "it is given again; what came back is not"


@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize("cause", [KillCause.LOST, KillCause.COLD, KillCause.COMMAND])
def test_a_kill_spares_the_jobs_around(stage: Stage, cause: KillCause, position: int) -> None:
    runs = [stage.start()] + [stage.executor.start(claimed(ahead=True), 10.0, behind=1) for _ in range(2)]
    first, killed = runs[0], runs[position]
    assert first is not None and killed is not None
    read_one(stage, first)
    stage.executor.kill(killed, cause)
    settle(stage.loop)
    back = [run for run, _ in stage.listener.back]
    if position == 0:
        stage.server.exit(stage.serial(first), 9, "killed")
        settle(stage.loop)
        assert stage.listener.ends == [(first, Death(9, 1024, killed=True))] and back == runs[1:]
    elif cause is KillCause.COMMAND:
        assert stage.listener.ends == [] and back == runs[1:], "it had not begun: nothing is to be killed"
    else:
        assert stage.listener.ends == [(killed, Death())] and back == [run for run in runs[1:] if run is not killed]


def test_a_death_returns_what_was_not_read_and_ends_what_was(stage: Stage) -> None:
    first = stage.start()
    waiting = [wait(stage, lanes=1) for _ in range(3)]
    read_one(stage, first)
    read_one(stage, first)
    stage.server.exit(stage.serial(first), 9)
    settle(stage.loop)
    assert stage.listener.ends == [(first, Death(9, 1024)), (waiting[0], Death())]
    assert [run for run, _ in stage.listener.back] == waiting[1:]


@pytest.mark.parametrize("left", ["jobs", "threads"])
def test_a_horse_that_is_replaced_returns_what_waits(stage: Stage, left: str) -> None:
    first = stage.start()
    waiting = stage.executor.start(claimed(ahead=True), 10.0, behind=1)
    read_one(stage, first)
    stage.answer(first, recycle=left.encode())
    assert stage.listener.back == [(waiting, "the process it waited for is replaced")] and not stage.executor.busy


def test_an_answer_for_another_job_is_stolen(stage: Stage) -> None:
    first = stage.start()
    read_one(stage, first)
    stage.answer(first)
    second = stage.start()
    assert stage.serial(second) == stage.serial(first), "the horse that ran last comes first"
    stage.server.answer(stage.serial(second), {b"kind": b"finished", b"execution_id": name(first)})
    settle(stage.loop)
    assert second.killed is KillCause.STOLEN and f"KILL {stage.serial(second)} 9" in stage.server.read()


def test_only_a_job_behind_another_can_be_skipped_by_its_process(stage: Stage) -> None:
    first, job = stage.start(concurrency_key=b"k"), claimed(ahead=True, concurrency_key=b"k")
    job.fields[b"follows"] = f"{job.execution_id} {first.claimed.execution_id}".encode()
    behind = stage.executor.start(job, 10.0, behind=1)
    assert behind is not None
    stage.executor.flush()
    assert read(stage, first) == [name(first), name(behind)]
    stage.answer(first, b"skipped")
    assert (stage.listener.frames, stage.listener.back) == ([(first, b"skipped")], []), "an outcome that is none: the job failed"
    stage.answer(behind, b"skipped")
    assert (len(stage.listener.frames), stage.listener.back) == (1, [(behind, "the job before it did not finish")])


def test_an_isolated_job_neither_waits_nor_lets_others_wait(stage: Stage) -> None:
    run = stage.start(isolate=b"1")
    assert stage.executor.prefetch_room(1, 0) == 0
    assert stage.executor.start(claimed(ahead=True), 10.0, behind=1) is None
    stage.answer(run, recycle=b"isolated")
    stage.start()
    assert stage.executor.start(claimed(ahead=True, isolate=b"1"), 10.0, behind=1) is None


def test_a_job_too_large_for_the_socket_has_its_horse_to_itself(stage: Stage) -> None:
    stage.start()
    assert stage.executor.start(claimed(ahead=True, data=b"x" * 100_000), 10.0, behind=1) is None
    assert stage.executor.prefetch_room(1, 0) == 0, "the next ones may well be as large"


def test_a_drain_returns_what_waits(stage: Stage) -> None:
    first = stage.start()
    waiting = wait(stage)
    read_one(stage, first)
    stage.executor.drain()
    assert stage.listener.back == [(waiting, "its worker takes no more jobs")] and list(stage.executor.running) == [first]


@pytest.mark.parametrize("size", [10, 30_000])
def test_a_full_socket_returns_what_it_has_no_room_for(stage: Stage, size: int) -> None:
    """Each job is in one place: with the horse, or back."""
    first = stage.start()
    waiting = []
    while len(waiting) < MOST and (run := stage.executor.start(claimed(ahead=True, data=b"x" * size), 10.0, behind=1)):
        waiting.append(run)
    assert len(waiting) == MOST
    stage.executor.flush()
    back = [run for run, _ in stage.listener.back]
    assert bool(back) == (size > 10)
    kept = waiting[: MOST - len(back)]
    assert stage.executor.queued == kept
    assert back == waiting[len(kept) :]
    assert read(stage, first) == [name(first), *map(name, kept)]
    assert stage.executor.prefetch_room(1, 0) == 0, "it is full, or the next ones are as large"
    for run in (first, *kept):
        stage.answer(run)
    assert not stage.executor.busy


def test_nothing_is_sent_ahead_twice(stage: Stage) -> None:
    first, run = stage.start(), wait(stage)
    stage.executor.flush()
    stage.executor.flush()
    assert read(stage, first) == [name(first), name(run)]
