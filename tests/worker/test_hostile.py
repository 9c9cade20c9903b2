"""Hostile tasks through the whole stack, with a process for each job and with warm ones: each ends in the state it should, with a reason a
person can read; the worker lives, and the job that comes next finds no trace of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis

from fusion import Queue
from fusion.job import Job
from fusion.kernel.defaults import MAX_EXC_INFO
from tests.faults.rig.conservation import check_conservation
from tests.kit.length import long_case
from tests.kit.waiting import eventually
from tests.kit.witnesses import alive, field, lines, status_of
from tests.kit.workers import WorkerProcess, Workers, process_per_job

ENV = {"FUSION_TASKS": "tests.jobs.hostile,tests.jobs.stubborn", "FUSION_TIMEOUT_GRACE": "0.3", "FUSION_MAX_LOST": "2"}
LIMIT = 0.3
#: Seconds after which nothing of an ended job may be left: 2 for atexit handlers, the rest for a busy machine.
FAREWELL = 5.0


@dataclass
class Case:
    """A call, how it must end, what its record must say, and how long it may run."""

    task: str
    args: tuple[Any, ...] = ()
    status: str = "failed"
    told: str = ""
    timeout: float = 20.0
    job: Job | None = None

    @property
    def name(self) -> str:
        return f"{self.task}{self.args}"


def dies(task: str, told: str, *args: Any) -> Case:
    return Case(task, args, "failed", told)


def hangs(task: str, told: str = "grace and was killed") -> Case:
    return Case(task, (), "failed", told, LIMIT)


def ends(task: str, told: str = "", *args: Any) -> Case:
    return Case(task, args, "finished", told)


class Stage:
    """One worker with one slot, and a probe after each hostile job."""

    def __init__(self, workers: Workers, conn: redis.Redis, *flags: str) -> None:
        self.conn, self.queue, self.warm = conn, Queue("h", conn), bool(flags)
        self.worker: WorkerProcess = workers.start("h", *flags, env=ENV)
        self.server = self.worker.fork_server().pid

    def play(self, *cases: Case) -> None:
        clean = self._probe()
        probes = []
        for case in cases:
            case.job = self.queue.enqueue_call(f"tests.jobs.hostile.{case.task}", case.args, timeout=case.timeout)
            probes.append(self._probe())
        eventually(lambda: status_of(self.conn, probes[-1].id) in ("finished", "failed"), 40, why="the last probe has run")
        jobs = [clean, *probes, *(case.job for case in cases if case.job)]
        states = check_conservation(self.conn, [job.id for job in jobs])
        wrong = [found for case in cases for found in self._complaints(case, states)]
        expected = json.loads(field(self.conn, clean.id, "result"))
        for case, probe in zip(cases, probes, strict=True):
            found = json.loads(field(self.conn, probe.id, "result"))
            wrong += [f"{case.name} left {n}: {found[n]}, not {expected[n]}" for n in expected if found[n] != expected[n]]
        assert not wrong, "\n" + "\n".join(wrong)
        assert self.worker.process.poll() is None
        assert self.worker.fork_server().pid == self.server, "the fork server did not survive"
        eventually(lambda: len(self.worker.tree()) == 3, FAREWELL, why="the fork server and two spares are left")

    def _probe(self) -> Job:
        return self.queue.enqueue("tests.jobs.stubborn.probe")

    def _complaints(self, case: Case, states: dict[str, str]) -> Iterator[str]:
        assert case.job is not None
        said = [field(self.conn, case.job.id, name) for name in ("exc_info", "result_error", "result")]
        if states[case.job.id] != case.status:
            yield f"{case.name} ended {states[case.job.id]}, not {case.status}: {said}"
        elif case.told not in "\n".join(said):
            yield f"{case.name}: {case.told!r} is not in {said}"
        if case.status == "failed" and not said[0]:
            yield f"{case.name} failed without a reason"
        if len(said[0].encode()) > MAX_EXC_INFO + 200:
            yield f"{case.name}: {len(said[0])} characters of exc_info"
        if any(not (c.isprintable() or c in "\n\t") for c in said[0]):
            yield f"{case.name}: control characters in {said[0]!r}"
        # What waits in a warm process may go back and come again.
        if not self.warm and case.told != "poison pill" and field(self.conn, case.job.id, "deliveries") != "1":
            yield f"{case.name} was delivered {field(self.conn, case.job.id, 'deliveries')} times"


_EACH = pytest.param("", marks=process_per_job("the test is there a second time, as `warm`"), id="a process each")


@pytest.fixture(params=[_EACH, long_case("--horses=1", id="warm")])
def stage(request: pytest.FixtureRequest, workers: Workers, conn: redis.Redis) -> Stage:
    return Stage(workers, conn, *filter(None, [request.param]))


def test_tasks_that_end_their_process(stage: Stage) -> None:
    stage.play(
        dies("exit_zero", "exited with code 0 without a result"),
        dies("exit_seven", "exited with code 7 without a result"),
        dies("segfault", "killed by SIGSEGV"),
        dies("abort", "killed by SIGABRT"),
        dies("kill_self", "poison pill"),
        dies("close_all", "exited with code 70 without a result"),
        dies("replace_channel", "exited with code 70 without a result"),
        dies("write_garbage", "broke off its answer"),
    )


def test_exceptions_of_every_kind(stage: Stage) -> None:
    stage.play(
        dies("system_exit", "SystemExit: bye"),
        dies("keyboard_interrupt", "KeyboardInterrupt"),
        dies("generator_exit", "GeneratorExit"),
        dies("base_exception", "Custom: not an Exception"),
        dies("eat_memory", "MemoryError"),
        dies("recurse", "RecursionError"),
        *(dies("hostile_exception", told, kind) for kind, told in [
            ("str raises", "StrRaises"), ("str exits", "StrExits"), ("lying class", "who am I"), ("cause raises", "look into my cause"),
            ("surrogates", "\\x1b[31mred"), ("big", "bytes cut"), ("loop", "ValueError: one"), ("notes", "with notes"),
        ]),
    )  # fmt: skip


@pytest.mark.long
def test_tasks_that_hang(stage: Stage) -> None:
    stage.play(
        hangs("spin", "JobTimeoutException"),
        hangs("stop_self"),
        hangs("c_loop"),
        hangs("bare_except"),
        hangs("ignore_alarm"),
        hangs("alarm_off"),
        hangs("block_signals"),
        hangs("own_handlers"),
        hangs("other_group"),
    )


@pytest.mark.long
def test_tasks_that_spoil_their_process(stage: Stage) -> None:
    stage.play(
        ends("close_many", '"done"'),
        ends("close_std", '"done"'),
        ends("leak_state"),
        ends("fork_and_return", '"parent"'),
        ends("stray_thread", '"done"'),
        ends("atexit_hang", '"done"'),
        ends("atexit_blocked", '"done"'),
        ends("terminated_child", "-15"),
        ends("flood", '"done"', 2),
    )


@pytest.mark.long
def test_results_that_can_not_be_kept(stage: Stage) -> None:
    stage.play(
        ends("big_bytes", "was dropped; the limit is", 5_000_000),
        ends("big_list", "was dropped; the limit is", 5_000_000),
        ends("returns_lambda", "SerializationError"),
        ends("returns_file", "SerializationError"),
        ends("returns_loop", "PayloadTooLarge"),
        ends("returns_hostile"),
    )


@pytest.mark.long
def test_processes_that_tasks_leave_behind(stage: Stage, tmp_path: Path) -> None:
    files = [tmp_path / f"pids{n}" for n in range(6)]
    stage.play(
        ends("start_sleeper", "", str(files[0]), False),
        ends("start_sleeper", "", str(files[1]), True),
        ends("start_sleeper_with_all_fds", "", str(files[2])),
        ends("double_fork", "", str(files[3])),
        dies("session_chain", "exited with code 3", str(files[4])),
        ends("many_children", "", str(files[5]), 20),
    )
    left = [{int(line) for line in lines(file)} for file in files]
    # The daemon of double_fork may be dead before it has written down its pid.
    assert [len(pids) for pids in left[:3] + left[4:]] == [1, 1, 1, 3, 20]
    eventually(lambda: not any(alive(pid) for pid in set.union(*left)), FAREWELL, why="nothing of any job is left")
