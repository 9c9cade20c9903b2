"""One fork server after another, without one: the test plays them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from math import inf
from signal import SIGKILL
from typing import Any

import pytest

from fusion.executors.base import Death, KillCause
from tests.executors.rig import claimed
from tests.executors.stage import Stage
from tests.kit.fake_fork_server import settle


@pytest.fixture(params=["fork", "warm"])
def stage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    made = Stage(monkeypatch, request.param == "warm")
    yield made
    made.executor.close()


def test_horses_are_forked_ahead_once_the_modules_are_loaded(stage: Stage) -> None:
    stage.tick(0.0)
    assert stage.executor.room().free == 0 and stage.executor.server.pid is None
    stage.server.say("READY")
    stage.tick(0.0)
    assert [line.split()[0] for line in stage.server.read()].count("FORK") == 3, "a spare more than there are slots"
    assert stage.executor.room().free == 2 and stage.listener.rooms == 1


def test_at_rest_there_is_no_timer(stage: Stage) -> None:
    stage.ready()
    assert stage.executor.next_at == inf
    run = stage.start()
    assert stage.executor.next_at < inf
    stage.answer(run)
    stage.server.exit(stage.serial(run))
    stage.tick(0.0)
    assert stage.executor.next_at == inf or stage.warm


def test_a_job_reaches_its_horse_after_its_deadline_reached_the_fork_server(stage: Stage) -> None:
    stage.ready()
    stage.server.read()
    run = stage.start()
    assert [line.split()[0] for line in stage.server.read()] == ["RUN"]
    (job,) = stage.server.jobs(stage.serial(run))
    assert job[b"execution_id"] == run.claimed.execution_id.encode()


@pytest.mark.parametrize("jobs", [1, 2])
def test_outcomes_end_runs(stage: Stage, jobs: int) -> None:
    stage.ready()
    runs = [stage.start() for _ in range(jobs)]
    assert stage.executor.room().free == 2 - jobs and list(stage.executor.running) == runs
    for run in runs:
        stage.answer(run)
    assert stage.listener.frames == [(run, b"finished") for run in runs] and not stage.executor.busy


def test_nothing_counts_after_an_outcome(stage: Stage) -> None:
    stage.ready()
    run = stage.start()
    stage.answer(run)
    stage.answer(run)
    assert stage.listener.frames == [(run, b"finished")] and stage.listener.ends == []


@pytest.mark.parametrize(
    ("status", "why", "death"),
    [
        (SIGKILL, "-", Death(SIGKILL, 1024)),
        (SIGKILL, "killed", Death(SIGKILL, 1024, killed=True)),
        (SIGKILL, "timeout", Death(SIGKILL, 1024, timed_out=True)),
        (0, "-", Death(0, 1024)),
    ],
)
def test_a_death_is_reported_with_what_the_fork_server_saw(stage: Stage, status: int, why: str, death: Death) -> None:
    stage.ready()
    run = stage.start()
    stage.server.jobs(stage.serial(run))
    stage.server.exit(stage.serial(run), status, why)
    settle(stage.loop)
    assert stage.listener.ends == [(run, death)] and not stage.executor.busy


def test_last_words_count_before_the_death(stage: Stage) -> None:
    stage.ready()
    run = stage.start()
    serial = stage.serial(run)
    stage.server.jobs(serial)
    stage.server.answer(serial, {b"kind": b"finished", b"execution_id": run.claimed.execution_id.encode()})
    stage.server.exit(serial)
    settle(stage.loop)
    assert stage.listener.frames == [(run, b"finished")] and stage.listener.ends == []


@pytest.mark.parametrize("cause", list(KillCause))
def test_a_kill_goes_to_the_process_group_and_its_cause_stays_with_the_run(stage: Stage, cause: KillCause) -> None:
    stage.ready()
    run = stage.start()
    serial = stage.serial(run)
    stage.server.jobs(serial)
    stage.executor.kill(run, cause)
    assert f"KILL {serial} 9" in stage.server.read() and stage.listener.ends == []
    stage.server.exit(serial, SIGKILL, "killed")
    settle(stage.loop)
    assert stage.listener.ends == [(run, Death(SIGKILL, 1024, killed=True))] and run.killed is cause


def test_a_killed_horse_whose_death_is_not_reported_takes_its_fork_server_along(stage: Stage) -> None:
    stage.ready()
    first, second = stage.start(), stage.start()
    for run in (first, second):
        stage.server.jobs(stage.serial(run))
    stage.executor.kill(first, KillCause.COMMAND)
    stage.executor.tick(1e9)  # late, as after a pause: it reads what came before it insists
    stage.executor.tick(1e9 + 0.5)
    assert stage.servers[0].destroyed and [run for run, _ in stage.listener.ends] == [first, second]


def test_an_import_that_does_not_end_is_cut_off(stage: Stage) -> None:
    stage.tick(0.0)
    stage.executor.tick(1e9)
    stage.executor.tick(1e9 + 0.5)
    assert stage.servers[0].destroyed and stage.executor.room().free == 0


@pytest.mark.parametrize("times", [1, 2, 3, 4])
def test_fork_servers_that_never_get_ready_are_hopeless_after_three(stage: Stage, times: int) -> None:
    for number in range(times):
        stage.tick(1e9 + number)
        stage.server.hang_up()
        stage.tick(0.0)
    assert len(stage.servers) == times and bool(stage.executor.server.hopeless) is (times >= 3)
    stage.tick(2e9)
    stage.server.say("READY")
    stage.tick(0.0)
    assert not stage.executor.server.hopeless and stage.executor.room().free == 2


def test_a_module_that_can_not_be_imported_is_hopeless_until_it_can(stage: Stage) -> None:
    stage.tick(0.0)
    stage.server.say("IMPORT_FAILED " + json.dumps({"module": "tasks", "error": "E", "traceback": "T"}))
    stage.server.hang_up()
    stage.tick(0.0)
    assert "task module tasks can't be imported" in stage.executor.server.hopeless
    assert 0 < stage.executor.next_at < inf, "it is tried again"


def test_a_module_that_can_not_be_forked_is_left_to_the_horses_at_once(stage: Stage) -> None:
    stage.tick(0.0)
    stage.server.say("TAINTED " + json.dumps({"module": "tasks", "reason": "starts 1 thread(s)"}))
    stage.server.hang_up()
    stage.tick(0.0)
    assert len(stage.servers) == 2 and stage.server.config.late == ("tasks",)


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """One process per job, of which each imports `tasks` by itself; the fork server is ready."""
    made = Stage(monkeypatch)
    made.tick(0.0)
    made.server.say("TAINTED " + json.dumps({"module": "tasks", "reason": "starts 1 thread(s)"}))
    made.server.hang_up()
    made.ready()
    yield made
    made.executor.close()


def test_a_process_that_imports_by_itself_gets_a_job_once_it_has(late: Stage) -> None:
    assert [line.split()[0] for line in late.server.read()].count("FORK") == 3
    assert "RUN 2 60.0" in late.server.commands
    assert late.executor.room().free == 0 and late.listener.rooms == 0
    late.server.answer(2, {b"kind": b"ready"})
    late.tick(0.0)
    assert late.executor.room().free == 1 and late.listener.rooms == 1, "the worker learns that there is room"
    assert [line for line in late.server.read() if line.startswith("RUN 2")] == ["RUN 2 inf"], "its limit was that of the import"
    assert late.serial(late.start()) == 2


def test_a_process_that_dies_of_what_it_imports_by_itself_costs_no_job(late: Stage) -> None:
    late.server.answer(1, {b"kind": b"ready"})
    late.tick(0.0)
    run = late.start()
    late.server.exit(2, SIGKILL)
    late.tick(0.0)
    assert late.executor.running == [run] and late.listener.ends == [] and not late.executor.server.hopeless


@pytest.mark.parametrize(("why", "told"), [("-", "takes the process down"), ("timeout", "does not end within 60 s")])
def test_where_no_process_can_import_it_no_job_is_claimed(
    late: Stage, caplog: pytest.LogCaptureFixture, why: str, told: str
) -> None:
    late.server.exit(2, SIGKILL, why)
    late.tick(0.0)
    assert late.servers[1].destroyed and "task module tasks can't be imported" in late.executor.server.hopeless
    assert told in caplog.text
    late.tick()
    assert len(late.servers) == 3, "it is tried again"


def test_a_fork_server_that_dies_ends_its_runs_and_is_replaced(stage: Stage) -> None:
    stage.ready()
    run = stage.start()
    stage.server.jobs(stage.serial(run))
    stage.server.hang_up()
    stage.tick(0.0)
    assert [(ended, death.status) for ended, death in stage.listener.ends] == [(run, None)]
    assert stage.executor.room().free == 0 and not stage.executor.busy
    stage.tick()
    stage.server.say("READY")
    stage.tick(0.0)
    assert stage.executor.room().free == 2 and stage.executor.server.generation == 2 and stage.listener.rooms == 2


def test_after_a_reload_the_old_one_finishes_and_the_new_one_takes_the_next_jobs(stage: Stage) -> None:
    stage.ready()
    old, run = stage.server, stage.start()
    old.jobs(stage.serial(run))
    stage.executor.reload()
    stage.tick(0.0)
    assert len(stage.servers) == 2 and stage.executor.server.draining and stage.executor.room().free == 0 and not old.destroyed
    stage.server.say("READY")
    stage.tick(0.0)
    assert stage.executor.room().free == 1, "the old one's job has a slot"
    assert stage.executor.prefetch_room(2, 1) == 0
    old.answer(stage.serial(run), {b"kind": b"finished", b"execution_id": run.claimed.execution_id.encode()})
    settle(stage.loop)
    old.exit(stage.serial(run))
    stage.tick(0.0)
    while not old.destroyed and old.ends:  # idle warm horses go, too
        old.exit(next(iter(old.ends)))
        stage.tick(0.0)
    assert old.destroyed and not stage.executor.server.draining and stage.executor.room().free == 2


def test_a_drained_executor_takes_nothing_and_starts_no_other(stage: Stage) -> None:
    stage.ready()
    run = stage.start()
    stage.server.jobs(stage.serial(run))
    stage.executor.drain()
    assert stage.executor.room().free == 0 and stage.executor.start(claimed(ahead=True), 1.0, behind=2) is None
    stage.answer(run)
    stage.server.hang_up()
    stage.tick()
    assert stage.listener.frames == [(run, b"finished")] and len(stage.servers) == 1 and stage.executor.next_at == inf


def test_a_close_ends_each_run(stage: Stage) -> None:
    stage.ready()
    runs = [stage.start() for _ in range(2)]
    for run in runs:
        stage.server.jobs(stage.serial(run))
    stage.executor.close()
    assert [run for run, _ in stage.listener.ends] == runs and stage.server.destroyed


def test_a_fork_that_fails_pauses_the_next_and_loses_no_job(stage: Stage) -> None:
    stage.ready()
    run = stage.start()
    serial = stage.serial(run)
    stage.server.read()
    stage.server.say(f"FORK_FAILED {serial} 11")
    settle(stage.loop)
    if stage.warm:
        assert stage.listener.back == [(run, "no process could be forked")]
    else:
        assert run.killed is KillCause.NO_PROCESS and [ended for ended, _ in stage.listener.ends] == [run]
    assert not stage.executor.busy and 0 < stage.executor.next_at < inf


def test_the_process_of_a_run_is_asked_for_once_it_is_wanted(stage: Stage) -> None:
    stage.ready()
    run = stage.start()
    assert stage.executor.pid(run) is None
    assert f"WHO {stage.serial(run)}" in stage.server.read()
    stage.server.say(f"PID {stage.serial(run)} {os.getpid()}")
    settle(stage.loop)
    assert stage.executor.pid(run) == os.getpid()


@pytest.mark.parametrize("end", ["error", "death", "hang"])
def test_a_default_module_that_can_not_be_imported_is_left_out_at_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    stage = Stage(monkeypatch, tasks=("tasks", "json"), origins={"tasks": "flag --tasks, beside the default"})
    stage.tick(0.0)
    stage.server.say("IMPORTING tasks")
    if end == "error":
        stage.server.say("IMPORT_FAILED " + json.dumps({"module": "tasks", "error": "E: broken", "traceback": "T"}))
    if end == "hang":
        stage.tick(0.0)
        stage.executor.tick(1e9)
        stage.executor.tick(1e9 + 0.5)
    else:
        stage.server.hang_up()
    stage.tick(0.0)
    stage.tick(0.0)
    assert len(stage.servers) == 2 and not stage.executor.server.hopeless
    assert stage.server.config.modules == ("json",) and list(stage.server.config.without) == ["tasks"]
    (warning,) = [record for record in caplog.records if record.levelname == "WARNING" and "default" in record.message]
    assert "the worker goes on without it" in warning.message
    stage.executor.reload()
    stage.tick(0.0)
    assert stage.server.config.modules == ("tasks", "json"), "it may be mended"
    stage.executor.close()


@pytest.mark.parametrize(
    "settings",
    [{"tasks": ("tasks", "json"), "origins": {"tasks": "environment FUSION_TASKS"}}, {"tasks": ("tasks",), "origins": {}}],
    ids=["named", "alone"],
)
def test_a_broken_module_that_was_named_is_not_left_out(monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]) -> None:
    stage = Stage(monkeypatch, **settings)
    stage.tick(0.0)
    stage.server.say("IMPORT_FAILED " + json.dumps({"module": "tasks", "error": "E", "traceback": "T"}))
    stage.server.hang_up()
    stage.tick(0.0)
    assert len(stage.servers) == 1 and "task module tasks can't be imported" in stage.executor.server.hopeless
    stage.executor.close()
