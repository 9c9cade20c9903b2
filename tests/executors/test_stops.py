"""Runs that are to stop: which process is signaled, and that no other job feels it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from fusion.executors.base import Death, KillCause, Run
from fusion.runtime.commands import Command
from tests.executors.rig import Rig, claimed
from tests.executors.stage import Stage
from tests.executors.test_prefetch import name, read, wait
from tests.executors.test_prefetch import stage as stage
from tests.kit.fake_executor import FakeExecutor

ON_LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs a socket that keeps boundaries")


@pytest.fixture
def fork(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    made = Stage(monkeypatch, False)
    made.ready()
    yield made
    made.executor.close()


def stops(stage: Stage) -> list[str]:
    """The horses that were asked to stop."""
    stage.server.read()
    return [command.split()[1] for command in stage.server.commands if command.startswith("STOP")]


def test_a_process_of_one_job_is_asked_once(fork: Stage) -> None:
    run, other = fork.start(), fork.start()
    fork.executor.stop(run)
    fork.executor.stop(run)
    assert stops(fork) == [str(fork.serial(run))]
    assert (run.stopping, run.killed, other.stopping) == (True, None, False)
    assert run in fork.executor.running, "until its process says, or is gone"


def test_a_run_that_was_killed_is_not_asked(fork: Stage) -> None:
    run = fork.start()
    fork.executor.kill(run, KillCause.MEMORY)
    fork.executor.stop(run)
    assert (stops(fork), run.stopping) == ([], False)


@pytest.mark.parametrize("warm", [False, True])
def test_a_task_that_is_over_is_not_asked(monkeypatch: pytest.MonkeyPatch, warm: bool) -> None:
    stage = Stage(monkeypatch, warm)
    stage.ready()
    run = stage.start(on_success=b'{"func": "f", "timeout": 5}')
    assert len(stage.server.jobs(stage.serial(run))) == 1, "it has read its job"
    stage.answer(run, b"callback")
    stage.executor.stop(run)
    assert (stops(stage), run.stopping) == ([], False)
    stage.answer(run)
    assert [kind for _, kind in stage.listener.frames] == [b"finished"]
    stage.executor.close()


@ON_LINUX
def test_prefetched_jobs_are_recalled_before_the_process_is_told_to_stop(stage: Stage) -> None:
    first = stage.start()
    assert read(stage, first) == [name(first)]
    waiting = [wait(stage, 1) for _ in range(3)]
    stage.executor.stop(first)
    assert stops(stage) == [str(stage.serial(first))]
    assert [run for run, _ in stage.listener.back] == waiting
    assert read(stage, first) == [], "there is nothing that the signal could meet"
    stage.answer(first, b"stopped")
    assert stage.listener.frames == [(first, b"stopped")]
    assert stage.start().horse.serial != stage.serial(first), "it gets no more jobs"  # type: ignore[attr-defined]


@ON_LINUX
@pytest.mark.parametrize("which", [0, 1, 2])
def test_stopping_a_prefetched_job_spares_its_neighbours(stage: Stage, which: int) -> None:
    first = stage.start()
    assert read(stage, first) == [name(first)]
    waiting = [wait(stage, 1) for _ in range(3)]
    stage.executor.stop(waiting[which])
    stage.executor.flush()
    assert stage.listener.ends == [(waiting[which], Death())]
    assert waiting[which].killed is KillCause.STOPPED
    left = [run for run in waiting if run is not waiting[which]]
    assert read(stage, first) == [name(run) for run in left]
    assert (stage.executor.queued, stage.listener.back, stops(stage)) == (left, [], [])
    stage.answer(first)
    for run in left:
        stage.answer(run)
    assert [run for run, _ in stage.listener.frames] == [first, *left]


@ON_LINUX
def test_the_first_one_that_its_process_has_not_read_ends_and_the_next_begins(stage: Stage) -> None:
    first = stage.start()
    waiting = [wait(stage, 1) for _ in range(2)]
    stage.executor.stop(first)
    stage.executor.flush()
    assert stage.listener.ends == [(first, Death())]
    assert stage.executor.running == [waiting[0]]
    assert read(stage, waiting[0]) == [name(run) for run in waiting]
    assert (stage.listener.back, stops(stage)) == ([], [])


@ON_LINUX
def test_one_whose_outcome_is_on_its_way_has_ended(stage: Stage) -> None:
    first = stage.start()
    behind = wait(stage, 1)
    assert read(stage, first) == [name(first), name(behind)]
    stage.server.answer(stage.serial(first), {b"kind": b"finished", b"execution_id": name(first)})
    stage.executor.stop(first)
    assert (stops(stage), first.stopping) == ([], False)
    assert stage.listener.frames == [(first, b"finished")]
    assert stage.executor.running == [behind]


# -- the worker's side


@pytest.fixture
def rig() -> Rig:
    return Rig(FakeExecutor(2, depth=4))


def command(run: Run) -> Command:
    return Command("stop-job", run.claimed.id, run.claimed.execution_id)


def test_an_outcome_stopped_counts_only_of_one_that_was_asked(rig: Rig) -> None:
    asked, other = rig.run_of(rig.start()), rig.run_of(rig.start())
    rig.stops.obey(command(asked))
    for run in (asked, other):
        rig.executor.finish(run, b"stopped", exc_line=b"JobStopped", exc_classes=b"fusion.exceptions.JobStopped")
    assert rig.kinds() == ["stopped", "failed"]


@pytest.mark.parametrize("outcome", ["finished", "failed"])
def test_an_outcome_of_its_own_stands(rig: Rig, outcome: str) -> None:
    run = rig.run_of(rig.start())
    rig.stops.obey(command(run))
    rig.executor.finish(run, outcome.encode(), exc_classes=b"x.Y")
    assert rig.kinds() == [outcome]


@pytest.mark.parametrize("how", [{"killed": True}, {"timed_out": True}, {}])
@pytest.mark.parametrize("status", [9, 11, 256])
def test_however_its_process_dies_it_was_stopped(rig: Rig, status: int, how: dict[str, Any]) -> None:
    run = rig.run_of(rig.start())
    rig.stops.obey(command(run))
    rig.executor.die(run, status, **how)
    assert rig.kinds() == ["stopped"]


def test_a_prefetched_one_ends_stopped(rig: Rig) -> None:
    for _ in range(2):
        rig.start()
    run = rig.run_of(rig.start(ahead=True))
    rig.stops.obey(command(run))
    (commit,) = rig.told()
    assert (commit.kind, commit.reason) == ("stopped", "it had not begun")


def test_a_job_stopped_before_it_arrived_does_not_begin(rig: Rig) -> None:
    early = claimed()
    rig.stops.obey(Command("stop-job", early.id, early.execution_id))
    rig.dispatcher.start(early)
    assert (rig.kinds(), rig.executor.running) == (["stopped"], [])


def test_another_execution_of_the_same_job_is_not_meant(rig: Rig) -> None:
    run = rig.run_of(rig.start())
    rig.stops.obey(Command("stop-job", run.claimed.id, "another"))
    assert not run.stopping


def test_the_renewal_of_leases_returns_jobs_to_stop(rig: Rig) -> None:
    run = rig.run_of(rig.start())
    rig.membership.to_stop.add(run.claimed.execution_id)
    rig.dispatcher.renew_leases(rig.membership, 0.0)
    assert run.stopping
    rig.dispatcher.renew_leases(rig.membership, 0.0)
    assert rig.membership.held == [(run.claimed.id, run.claimed.execution_id)], "and keeps its lease while it ends"
