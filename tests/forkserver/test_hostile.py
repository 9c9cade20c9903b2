"""Whatever a task does to its process: one outcome or one decoded death, nothing left behind, and the next job is clean."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.forkserver.driver import Driver, is_gone, job_fields, pids_in, wait_gone


@pytest.fixture(autouse=True)
def next_job_is_fine(driver: Driver) -> object:
    """The same fork server takes all of this file; after each test it must still do its work."""
    yield
    assert driver.run("add", 1, kwargs={"b": 1}).result == 2


@pytest.mark.parametrize(
    ("func", "death"),
    [
        ("exit_zero", "exited with code 0 without a result"),
        ("exit_seven", "exited with code 7 without a result"),
        ("segfault", "killed by SIGSEGV"),
        ("abort", "killed by SIGABRT"),
        ("kill_self", "killed by SIGKILL"),
        ("close_all", "exited with code 70 without a result"),
        ("replace_channel", "exited with code 70 without a result"),
    ],
)
def test_death_without_an_outcome(driver: Driver, func: str, death: str) -> None:
    ran = driver.hostile(func)
    assert ran.frames == []
    assert ran.death == death
    assert ran.exited.why == "-"


@pytest.mark.parametrize(
    ("func", "line"),
    [
        ("system_exit", "SystemExit: bye"),
        ("keyboard_interrupt", "KeyboardInterrupt"),
        ("generator_exit", "GeneratorExit"),
        ("base_exception", "tests.jobs.hostile.Custom: not an Exception"),
        ("eat_memory", "MemoryError"),
        ("recurse", "RecursionError: maximum recursion depth exceeded"),
    ],
)
def test_exceptions_that_are_no_exceptions(driver: Driver, func: str, line: str) -> None:
    ran = driver.hostile(func)
    assert ran.kind == "failed"
    assert ran.line.startswith(line)
    assert ran.exited.status == 0


@pytest.mark.parametrize("func", ["spin"])
def test_soft_timeout(func: str) -> None:
    with Driver(grace=5.0) as driver:  # on a busy machine the task may not be on when its alarm is
        ran = driver.hostile(func, timeout="0.3")
    assert ran.kind == "failed"
    assert ran.line == "fusion.exceptions.JobTimeoutException: Task exceeded maximum timeout value (0.3 seconds) [FUS-157]"
    assert ran.outcome[b"exc_classes"].startswith(b"fusion.exceptions.JobTimeoutException\n")
    assert ran.seconds < 5


@pytest.mark.parametrize(
    "func", ["c_loop", "bare_except", "ignore_alarm", "alarm_off", "block_signals", "own_handlers", "stop_self", "other_group"]
)
def test_hard_timeout(driver: Driver, func: str) -> None:
    ran = driver.hostile(func, timeout="0.2")
    assert ran.death == "killed by SIGKILL"
    assert ran.exited.why == "timeout"
    assert ran.seconds < 3


def test_the_soft_timeout_strikes_inside_the_task_or_not_at_all(driver: Driver) -> None:
    """Tasks that end at the very moment of the alarm: an outcome of some kind each time."""
    kinds = [driver.hostile("late_alarm", 0.05, timeout="0.05").kind for _ in range(20)]
    assert set(kinds) <= {"finished", "failed"}


@pytest.mark.parametrize("func", ["close_many", "close_std"])
def test_closed_descriptors(driver: Driver, func: str) -> None:
    assert driver.hostile(func).result == "done"


def test_garbage_on_the_socket(driver: Driver) -> None:
    horse = driver.hand_out(job_fields("tests.jobs.hostile.write_garbage"))
    ran = driver.finish(horse)
    assert horse.broken is not None
    assert ran.frames == []
    assert (ran.exited.status, ran.exited.why) == (signal.SIGKILL, "killed")


@pytest.mark.parametrize("session", [False, True])
def test_grandchildren_are_gone_when_the_job_is(driver: Driver, tmp_path: Path, session: bool) -> None:
    path = tmp_path / "pids"
    ran = driver.hostile("start_sleeper", str(path), session)
    assert ran.kind == "finished"
    (pid,) = pids_in(path)
    assert is_gone(pid), "EXIT says that nothing is left"


def test_grandchildren_that_keep_every_descriptor(driver: Driver, tmp_path: Path) -> None:
    path = tmp_path / "pids"
    ran = driver.hostile("start_sleeper_with_all_fds", str(path))
    assert ran.kind == "finished"
    assert ran.seconds < 3
    assert all(map(is_gone, pids_in(path)))


def test_a_daemon(driver: Driver, tmp_path: Path) -> None:
    path = tmp_path / "pids"
    assert driver.hostile("double_fork", str(path)).kind == "finished"
    driver.wait_until(lambda: pids_in(path) or driver.exits, "the daemon")
    wait_gone(pids_in(path))


def test_daemons_below_daemons(driver: Driver, tmp_path: Path) -> None:
    path = tmp_path / "pids"
    ran = driver.hostile("session_chain", str(path))
    assert ran.death == "exited with code 3 without a result"
    assert len(pids_in(path)) == 3
    assert all(map(is_gone, pids_in(path)))


def test_orphans_of_one_horse_leave_the_others_alone(driver: Driver, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    bystander = driver.hand_out(job_fields("tests.jobs.hostile.start_sleeper_and_end_with_it", str(mine), str(tmp_path / "go")))
    driver.wait_until(lambda: len(pids_in(mine)) == 2, "the bystander's child")
    path = tmp_path / "pids"
    assert driver.hostile("many_children", str(path), 20).kind == "finished"
    assert len(pids_in(path)) == 20
    assert all(map(is_gone, pids_in(path)))
    assert not any(map(is_gone, pids_in(mine)))
    (tmp_path / "go").touch()
    assert driver.finish(bystander).result == "its child lived"


def test_grandchildren_of_a_killed_horse(driver: Driver, tmp_path: Path) -> None:
    path = tmp_path / "pids"
    horse = driver.hand_out(job_fields("tests.jobs.hostile.start_sleeper_and_wait", str(path), timeout="0.3"))
    ran = driver.finish(horse)
    assert ran.kind == "failed", "sleep is interrupted by the soft timeout"
    assert len(pids_in(path)) == 2
    assert all(map(is_gone, pids_in(path)))


def test_only_the_horse_answers(driver: Driver) -> None:
    ran = driver.hostile("fork_and_return")
    assert ran.result == "parent"


def test_leaked_state_does_not_reach_the_next_job(driver: Driver) -> None:
    before = driver.hostile("probe_state").result
    assert driver.hostile("leak_state").kind == "finished"
    assert driver.hostile("probe_state").result == before
    assert before == {**before, "environ": False, "path": False, "term": False, "global": False}


@pytest.mark.parametrize(("func", "size"), [("big_bytes", 200 * 1024 * 1024), ("big_list", 1_000_000)])
def test_a_huge_result_is_dropped(driver: Driver, func: str, size: int) -> None:
    ran = driver.hostile(func, size)
    assert ran.kind == "finished"
    assert b"result" not in ran.outcome
    assert b"max_result" in ran.outcome[b"result_error"]
    assert len(ran.outcome[b"result_error"]) < 1025


@pytest.mark.parametrize(
    ("func", "reason"),
    [
        ("returns_lambda", b"fusion.exceptions.SerializationError: a function is not JSON"),
        ("returns_file", b"fusion.exceptions.SerializationError: a _io.TextIOWrapper is not JSON"),
        ("returns_loop", b"fusion.exceptions.PayloadTooLarge: nested too deeply"),
        ("returns_hostile", b"SystemExit"),
    ],
)
def test_an_unserializable_result_is_dropped(driver: Driver, func: str, reason: bytes) -> None:
    ran = driver.hostile(func)
    assert ran.kind == "finished"
    assert b"result" not in ran.outcome
    assert ran.outcome[b"result_error"].startswith(reason)


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("str raises", "tests.jobs.hostile.StrRaises: <its __str__ raised RuntimeError>"),
        ("str exits", "tests.jobs.hostile.StrExits: <its __str__ raised SystemExit>"),
        ("lying class", ""),
        ("cause raises", "tests.jobs.hostile.CauseRaises: look into my cause"),
        ("surrogates", r"ValueError: lone \udcff\ud800 and \x1b[31mred\x1b[0m and \u202eevil"),
        ("big", "ValueError: head xxx"),
        ("loop", "ValueError: one"),
        ("notes", "ValueError: with notes"),
    ],
)
def test_hostile_exceptions(driver: Driver, kind: str, line: str) -> None:
    ran = driver.hostile("hostile_exception", kind)
    assert ran.kind == "failed"
    assert ran.line.startswith(line)
    info = ran.outcome[b"exc_info"]
    assert len(info) <= 64 * 1024
    assert info.decode().replace("\n", "").replace("\t", "").isprintable()
    assert b"hostile_exception" in info
    assert len(ran.outcome[b"exc_line"]) <= 1024


def test_stray_thread(driver: Driver) -> None:
    ran = driver.hostile("stray_thread")
    assert ran.result == "done"
    assert ran.seconds < 1.5


@pytest.mark.parametrize("func", ["atexit_hang", "atexit_blocked"])
def test_hanging_atexit_handlers_are_cut_off(driver: Driver, func: str) -> None:
    ran = driver.hostile(func)
    assert ran.result == "done", "the outcome was sent before"
    assert ran.exited.status == signal.SIGALRM
    assert ran.seconds < 4


def test_atexit_handlers_run(driver: Driver, tmp_path: Path) -> None:
    assert driver.hostile("atexit_writes", str(tmp_path / "noted")).kind == "finished"
    assert (tmp_path / "noted").read_text() == "1\n"


def test_output_flood(driver: Driver, capfd: pytest.CaptureFixture[str]) -> None:
    assert driver.hostile("flood", 20).result == "done"


def test_programs_of_a_task_have_default_signals(driver: Driver) -> None:
    assert driver.hostile("terminated_child").result == -signal.SIGTERM
