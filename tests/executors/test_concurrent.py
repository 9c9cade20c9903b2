"""Processes that run many jobs at once, played by the test: which one gets a job, what runs alone, and who ends with whom."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from fusion.executors.base import Death, KillCause, Run
from fusion.executors.concurrent import FEW, MOST, SIGN
from fusion.worker.admission import Admission, Slots
from fusion.worker.recycling import Recycling
from tests.executors.rig import LOG, Rig, claimed
from tests.executors.stage import Stage

GRACE, NEIGHBOURS = 1.0, 30.0


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    made = Stage(
        monkeypatch, executor="thread", horses=2, threads=3, timeout_grace=GRACE, neighbour_grace=NEIGHBOURS, max_jobs_per_horse=0
    )
    made.ready()
    yield made
    made.executor.close()


def serials(stage: Stage, runs: list[Run]) -> list[int]:
    return [stage.serial(run) for run in runs]


def said(stage: Stage, run: Run) -> list[bytes]:
    """What its horse was told besides jobs."""
    stage.executor.flush()
    return [frame[b"kind"] for frame in stage.server.jobs(stage.serial(run)) if b"kind" in frame]


def killed(stage: Stage) -> list[str]:
    stage.server.read()
    return [command.split()[1] for command in stage.server.commands if command.startswith("KILL")]


def _inside(stage: Stage) -> Any:
    return stage.executor._current


def overrun(stage: Stage, run: Any) -> None:
    """Its time is up."""
    run.due = time.monotonic()
    _inside(stage)._due_at = 0.0
    stage.tick(time.monotonic())


def at(stage: Stage, seconds: float) -> None:
    """So much later, by the clock of its condemned horses."""
    for horse in _inside(stage).horses.values():
        horse.kill_by, horse.answer_by = horse.kill_by - seconds, horse.answer_by - seconds
    _inside(stage)._due_at = 0.0
    stage.tick(time.monotonic())


def test_the_one_that_runs_fewest_gets_the_job_and_no_more_than_it_has_places(stage: Stage) -> None:
    runs = [stage.start() for _ in range(5)]
    assert sorted(serials(stage, runs)) in ([1, 1, 1, 2, 2], [1, 1, 2, 2, 2])
    assert stage.executor.room().free == 1
    stage.executor.flush()
    assert sum(len(stage.server.jobs(serial)) for serial in (1, 2)) == 5
    stage.start()
    assert stage.executor.room().free == 0
    stage.answer(runs[0])
    assert (stage.executor.room().free, len(stage.executor.running)) == (1, 5)


def _slots(stage: Stage, reserve: int = 0) -> Slots:
    settings = stage.executor._settings
    admission = Admission(settings.slots, reserve, None, LOG)
    return Slots(settings, stage.executor, admission, Recycling(settings, stage.executor))


def test_runs_in_an_evicted_process_do_not_occupy_slots(stage: Stage) -> None:
    """Nor those that run alone; what is reserved for HIGH is two slots all the while."""
    slots, reserved = _slots(stage), _slots(stage, reserve=2)
    assert (slots.floors(), reserved.floors()) == ([0] * 6, [0, 0, 0, 0, 2, 2])
    late, *_ = [stage.start() for _ in range(6)]
    assert slots.floors() == []
    overrun(stage, late)
    assert (slots.floors(), reserved.floors()) == ([0] * 3, [0, 2, 2])
    alone = [stage.start(isolate=b"1") for _ in range(3)]
    assert (slots.floors(), reserved.floors()) == ([0] * 3, [0, 2, 2])
    assert sum(run in stage.executor.running for run in alone) == 2


def test_low_jobs_that_are_to_run_alone_do_not_keep_high_ones_from_coming(stage: Stage) -> None:
    slots = _slots(stage)
    for _ in range(2 + 6):
        stage.start(isolate=b"1", priority=0)
    assert slots.floors() == [0] * 6
    stage.start(isolate=b"1", priority=0)
    assert slots.floors() == [2] * 6, "more of them wait than there are slots"
    for _ in range(7):
        stage.start(isolate=b"1", priority=2)
    assert slots.floors() == [], "so do those"


@pytest.mark.parametrize(("reserve", "begun"), [(0, 0), (1, 1), (6, 2)])
def test_a_reserve_has_processes_for_high_jobs_that_are_to_run_alone(
    monkeypatch: pytest.MonkeyPatch, reserve: int, begun: int
) -> None:
    stage = Stage(monkeypatch, executor="thread", horses=2, threads=3, reserve_high=reserve)
    stage.ready()
    low = [stage.start(isolate=b"1", priority=0) for _ in range(4)]
    high = [stage.start(isolate=b"1", priority=2) for _ in range(4)]
    running = stage.executor.running
    assert (sum(run in running for run in low), sum(run in running for run in high)) == (2, begun)
    assert list(stage.executor.queued) == [*high[begun:], *low[2:]]
    stage.executor.close()


def test_the_fork_server_gets_a_later_deadline_only_when_needed(stage: Stage) -> None:
    runs = [stage.start() for _ in range(6)]
    stage.server.read()
    deadlines = [command.split() for command in stage.server.commands if command.startswith("RUN")]
    assert len(deadlines) == 2
    assert all(float(deadline) > max(run.began + run.limit for run in runs) for _, _, deadline in deadlines)


def test_an_overdue_run_is_killed_once_its_neighbours_have_ended(stage: Stage) -> None:
    late, *others = [stage.start() for _ in range(6)]
    beside = [run for run in others if stage.serial(run) == stage.serial(late)]
    overrun(stage, late)
    assert said(stage, late) == [b"ping"]
    stage.answer(late, b"pong")
    assert killed(stage) == []
    assert stage.executor.room().free == 3, "another process has its place, and theirs"
    for run in beside:
        stage.answer(run)
    assert killed(stage) == [str(stage.serial(late))]
    assert stage.listener.ends == [], "not before it is gone"
    stage.server.exit(stage.serial(late), 9, "killed")
    stage.tick()
    ((ended, death),) = stage.listener.ends
    assert (ended, death.timed_out, ended.killed) == (late, True, None)


def test_when_the_grace_is_over_the_others_are_displaced(stage: Stage) -> None:
    late, *others = [stage.start() for _ in range(6)]
    beside = [run for run in others if stage.serial(run) == stage.serial(late)]
    overrun(stage, late)
    stage.answer(late, b"pong")
    at(stage, NEIGHBOURS - 1)
    assert killed(stage) == []
    at(stage, 1)
    assert killed(stage) == [str(stage.serial(late))]
    stage.server.exit(stage.serial(late), 9, "killed")
    stage.tick()
    assert {run: run.killed for run, _ in stage.listener.ends} == {late: None, **dict.fromkeys(beside, KillCause.DISPLACED)}


def test_an_overdue_run_without_a_sign_of_life_is_killed_sooner(stage: Stage) -> None:
    late, *_ = [stage.start() for _ in range(6)]
    overrun(stage, late)
    at(stage, SIGN - 0.5)
    assert killed(stage) == []
    at(stage, 0.5)
    assert killed(stage) == [str(stage.serial(late))]


def test_an_overdue_run_that_ends_spares_its_process(stage: Stage) -> None:
    late, *others = [stage.start() for _ in range(6)]
    overrun(stage, late)
    stage.answer(late)
    at(stage, 2 * NEIGHBOURS)
    assert killed(stage) == []
    assert len(stage.executor.running) == 5
    for run in others:
        stage.answer(run)
    assert stage.executor.room().free == 6


def test_a_tainted_one_gets_no_more_jobs_and_goes_when_it_is_empty(stage: Stage) -> None:
    runs = [stage.start() for _ in range(6)]
    first = stage.serial(runs[0])
    stage.answer(runs[0], b"tainted", why=b"struck")
    for run in runs:
        stage.answer(run)
    assert killed(stage) == []
    assert stage.executor.room().free == 6
    assert first not in serials(stage, [stage.start() for _ in range(6)])


def test_all_runs_of_a_process_that_dies_are_suspects(stage: Stage) -> None:
    runs = [stage.start() for _ in range(6)]
    doomed = [run for run in runs if stage.serial(run) == 1]
    stage.server.exit(1, 11)
    stage.tick()
    assert stage.listener.ends == [(run, Death(11, 1024, suspect=True, crowd=3)) for run in doomed]
    stage.answer(next(run for run in runs if run not in doomed))


def test_one_whose_own_limit_was_raised_in_its_thread_is_charged_and_no_neighbour(stage: Stage) -> None:
    """Its process is tainted by that, and killed before the run's own time, which may be far away."""
    struck, *others = [stage.start() for _ in range(6)]
    beside = [run for run in others if stage.serial(run) == stage.serial(struck)]
    stage.answer(struck, b"tainted", why=b"Task exceeded")
    stage.answer(struck, b"pong")
    at(stage, NEIGHBOURS)
    assert killed(stage) == [str(stage.serial(struck))]
    stage.server.exit(stage.serial(struck), 9, "killed")
    stage.tick()
    told = {run: (run.killed, death.timed_out) for run, death in stage.listener.ends}
    assert told == {struck: (None, True)} | dict.fromkeys(beside, (KillCause.DISPLACED, False))


def test_an_isolated_run_is_never_displaced(stage: Stage) -> None:
    run = stage.start(isolate=b"1")
    stage.server.exit(stage.serial(run), 9, "killed")
    stage.tick()
    assert [(ended, ended.killed, death.killed) for ended, death in stage.listener.ends] == [(run, None, True)]


def test_a_run_that_dies_alone_is_charged(stage: Stage) -> None:
    run = stage.start()
    stage.server.exit(stage.serial(run), 11)
    stage.tick()
    assert stage.listener.ends == [(run, Death(11, 1024, crowd=1))]


def test_a_process_that_answers_for_others_is_killed_without_charge(stage: Stage) -> None:
    runs = [run for run in [stage.start() for _ in range(6)] if stage.serial(run) == 1]
    stage.server.answer(1, {b"kind": b"finished", b"execution_id": b"of-another"})
    stage.tick(time.monotonic())
    assert killed(stage) == ["1"]
    stage.server.exit(1, 9, "killed")
    stage.tick()
    assert [(run, death.suspect) for run, death in stage.listener.ends] == [(run, True) for run in runs]


def test_messages_of_a_run_after_its_end_are_ignored(stage: Stage) -> None:
    run = stage.start()
    stage.answer(run)
    for kind in (b"log", b"meta", b"callback", b"report"):
        stage.answer(run, kind)
    assert stage.listener.frames == [(run, b"finished")]
    assert killed(stage) == []


def test_a_bounded_number_of_isolated_runs_run_beside_the_slots(stage: Stage) -> None:
    runs = [stage.start(isolate=b"1", priority=priority) for priority in (1, 1, 1, 2)]
    assert [run in stage.executor.running for run in runs] == [True, True, False, False]
    assert stage.executor.queued == [runs[3], runs[2]], "the best first"
    assert stage.executor.room().free == 6
    stage.answer(runs[0])
    stage.tick(time.monotonic())
    assert runs[3] in stage.executor.running
    stage.executor.stop(runs[2])
    assert stage.listener.ends == [(runs[2], Death())]
    assert runs[2].killed is KillCause.STOPPED
    assert len(set(serials(stage, [runs[0], runs[1], runs[3]]))) == 3


def test_isolated_runs_go_back_when_no_job_may_begin(stage: Stage) -> None:
    runs = [stage.start(isolate=b"1") for _ in range(4)]
    stage.executor.recall("quiet")
    assert stage.listener.back == [(run, "quiet") for run in runs[2:]]
    assert stage.executor.queued == []


def test_a_run_that_lost_its_lease_is_stopped_softly_beside_others(stage: Stage) -> None:
    lost, *_ = [stage.start() for _ in range(6)]
    stage.executor.kill(lost, KillCause.LOST)
    assert said(stage, lost) == [b"stop"]
    assert (killed(stage), lost.stopping) == ([], False)


def test_a_run_that_lost_its_lease_is_killed_if_it_is_alone(stage: Stage) -> None:
    lost = stage.start()
    stage.executor.kill(lost, KillCause.LOST)
    assert killed(stage) == [str(stage.serial(lost))]


def test_a_drain_notifies_running_jobs_which_can_still_be_stopped(stage: Stage) -> None:
    run = stage.start()
    stage.executor.drain()
    stage.executor.stop(run)
    assert said(stage, run) == [b"drain", b"stop"]
    assert stage.executor.room().free == 0
    stage.answer(run)
    assert not stage.executor.busy


def test_a_process_is_replaced_before_the_next_job_when_it_has_had_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, executor="thread", threads=2, max_jobs_per_horse=2)
    stage.ready()
    runs = []
    for _ in range(5):
        assert stage.executor.room().free
        runs.append(stage.start())
        stage.answer(runs[-1])
    assert serials(stage, runs) == [1, 1, 1, 1, 2]
    stage.executor.close()


def test_a_turn_takes_a_limited_number_of_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, executor="asyncio")
    stage.ready()
    assert stage.executor.room().free == MOST == 50
    for _ in range(160):
        assert stage.executor.start(claimed(), 10.0)
    assert stage.executor.room().free == 40
    stage.executor.close()


def test_threads_take_few_jobs_a_turn_unless_turns_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, executor="thread", horses=2, threads=50)
    stage.ready()
    assert stage.executor.room().free == 2 * FEW
    for _ in range(30):
        stage.executor.exchanged(0.05, 10)
    assert stage.executor.room().free == MOST, "a Redis that is far away"
    for _ in range(60):
        stage.executor.exchanged(0.002, 10)
    assert stage.executor.room().free == 2 * FEW
    stage.executor.close()


def test_suspects_share_a_process_with_no_others_and_no_more_than_the_least_of_them_allows(stage: Stage) -> None:
    plain = stage.start()
    two = [stage.start(suspect=b"3") for _ in range(2)]
    third = stage.start(suspect=b"2")
    alone = stage.start(suspect=b"1", isolate=b"1")
    assert len(set(serials(stage, two))) == 1
    assert stage.serial(plain) != stage.serial(two[0])
    assert stage.serial(third) not in serials(stage, [plain, *two]), "one may have but one other beside it"
    assert list(stage.executor.queued) == [alone], "as many such processes as there are others"
    stage.server.exit(stage.serial(two[0]), 11)
    stage.tick()
    assert stage.listener.ends == [(run, Death(11, 1024, suspect=True, crowd=2)) for run in two]


def test_a_suspect_runs_alone() -> None:
    job = Rig().start(suspect=b"1")
    assert job.fields[b"isolate"] == b"1"


def test_a_horse_whose_jobs_are_all_lost_is_killed(stage: Stage) -> None:
    runs = [stage.start() for _ in range(6)]
    for run in runs:
        stage.executor.kill(run, KillCause.LOST)
    assert sorted(killed(stage)) == ["1", "2"]
