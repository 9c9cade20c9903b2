"""The fork server and its horses, driven as a worker drives them."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from fusion.forkserver.messages import ForkFailed, HorseExited, ImportFailed, Ready, ServerClosed, Tainted, describe_death
from fusion.kernel.linux import signal_name
from tests.forkserver.driver import ROOT, Driver, job_fields, wait_gone
from tests.kit.waiting import eventually

PLAIN = "tests.jobs.plain."


def test_a_spare_that_gets_no_job_goes_quietly(driver: Driver) -> None:
    horse = driver.server.fork()
    horse.close()
    exited = driver.wait_until(lambda: driver.exits.get(horse.serial), "EXIT")
    assert (exited.status, exited.why) == (0, "-")


def test_spares_wait_and_jobs_run_side_by_side(driver: Driver) -> None:
    horses = [driver.server.fork() for _ in range(4)]
    for number, horse in enumerate(horses):
        driver.hand_out(job_fields(PLAIN + "add", number), horse)
    assert [driver.finish(horse).result for horse in horses] == [0, 1, 2, 3]


def test_a_job_frame_larger_than_the_socket_takes(driver: Driver) -> None:
    horse = driver.hand_out(job_fields(PLAIN + "echo", "x" * 3_000_00))
    ran = driver.finish(horse)
    assert b"result_error" in ran.outcome, "echo of 300 kB is over this server's max_result"


def test_the_deadline_is_the_servers_even_if_the_worker_sleeps(driver: Driver) -> None:
    horse = driver.server.fork()
    driver.server.run(horse, time.monotonic() + 0.2, job_fields("tests.jobs.hostile.bare_except", timeout="-1"))
    exited = driver.wait_until(lambda: driver.exits.get(horse.serial), "EXIT")
    assert (exited.status, exited.why) == (signal.SIGKILL, "timeout")
    horse.close()


def test_the_deadline_can_be_moved(driver: Driver) -> None:
    horse = driver.server.fork()
    driver.server.run(horse, time.monotonic() + 0.1, job_fields(PLAIN + "sleep", 0.5))
    driver.server.set_deadline(horse, time.monotonic() + 10)
    assert driver.finish(horse).result == "slept"


def test_kill(driver: Driver, tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    horse = driver.hand_out(job_fields(PLAIN + "touch", str(witness), 60))
    eventually(witness.exists)
    driver.server.kill(horse, signal.SIGKILL)
    ran = driver.finish(horse)
    assert ran.exited.why == "killed"
    assert ran.death == "killed by SIGKILL"


def test_term_to_the_whole_tree_does_not_stop_a_job(driver: Driver, tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    horse = driver.hand_out(job_fields(PLAIN + "touch", str(witness), 0.4))
    eventually(lambda: witness.exists() and witness.read_text())
    pid = int(witness.read_text())
    assert driver.server.pid is not None
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        os.kill(driver.server.pid, signum)
        os.kill(pid, signum)
    assert driver.finish(horse).result == "touched"
    assert driver.server.poll() is None


def test_nothing_leaks_in_the_server(driver: Driver) -> None:
    assert driver.server.pid is not None
    process = psutil.Process(driver.server.pid)
    driver.run("nothing")
    before = process.num_fds()
    for _ in range(30):
        driver.run("nothing")
    assert process.num_fds() == before
    assert process.num_threads() == 1
    assert eventually(lambda: not process.children())


def test_exits_wait_for_a_worker_that_does_not_read() -> None:
    with Driver() as driver:
        horses = [driver.server.fork() for _ in range(60)]
        assert driver.server.pid is not None
        process = psutil.Process(driver.server.pid)
        for horse in horses:
            horse.close()
        eventually(lambda: not process.children())
        driver.wait_until(lambda: len(driver.exits) == 60, "60 EXITs")
        assert {exited.status for exited in driver.exits.values()} == {0}


def test_late_modules_are_imported_before_the_job_arrives(tmp_path: Path) -> None:
    (tmp_path / "latecomer.py").write_text(
        "import pathlib\nimport threading, time\n"
        "threading.Thread(target=time.sleep, args=(0.01,), daemon=True).start()\n"
        f"pathlib.Path({str(tmp_path)!r}, 'imported').touch()\n"
        "def work():\n    return 'late'\n"
    )
    with Driver(tasks=("latecomer",), modules=("latecomer",), late=("latecomer",), path=tmp_path) as driver:
        assert not (tmp_path / "imported").exists()
        horse = driver.server.fork()
        eventually((tmp_path / "imported").exists)
        assert driver.finish(driver.hand_out(job_fields("latecomer.work"), horse)).result == "late"


def test_preload_off_imports_in_the_horse(tmp_path: Path) -> None:
    (tmp_path / "offmod.py").write_text("import os\nHOME = os.getpid()\ndef work():\n    return HOME == os.getpid()\n")
    with Driver(tasks=("offmod",), modules=("offmod",), preload="off", path=tmp_path) as driver:
        assert driver.run("offmod.work").result is True
    with Driver(tasks=("offmod",), modules=("offmod",), path=tmp_path) as driver:
        assert driver.run("offmod.work").result is False


def test_late_module_that_does_not_import_fails_only_its_jobs(tmp_path: Path) -> None:
    (tmp_path / "brokenlate.py").write_text("1 / 0\n")
    with Driver(tasks=("brokenlate", "tests.jobs"), late=("brokenlate",), path=tmp_path) as driver:
        ran = driver.run("brokenlate.work")
        assert ran.kind == "failed"
        assert ran.line == "ZeroDivisionError: division by zero"
        assert driver.run("add", 1).result == 1


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("def broken(:\n", "SyntaxError"),
        ("import nothing_of_that_name\n", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
    ],
)
def test_import_failure_names_the_module(tmp_path: Path, source: str, error: str) -> None:
    (tmp_path / "badmod.py").write_text(source)
    with Driver(modules=("tests.jobs.plain", "badmod"), path=tmp_path, wait=False) as driver:
        failed = driver.wait_for(ImportFailed)
        assert failed.module == "badmod"
        assert error in failed.error
        assert "badmod.py" in failed.traceback
        driver.wait_for(ServerClosed)
        assert not any(isinstance(message, Ready) for message in driver.messages)


def test_a_segfault_while_importing_names_the_module(tmp_path: Path) -> None:
    (tmp_path / "segmod.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    with Driver(modules=("tests.jobs.plain", "segmod"), path=tmp_path, wait=False) as driver:
        assert driver.wait_for(ServerClosed).importing == "segmod"


THREAD = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
CONNECTION = (
    "import socket\nserver = socket.create_server(('127.0.0.1', 0))\nclient = socket.create_connection(server.getsockname())\n"
)


@pytest.mark.parametrize(("source", "reason"), [(THREAD, "starts 1 thread(s)"), (CONNECTION, "opens 1 connection(s)")])
def test_taint(tmp_path: Path, source: str, reason: str) -> None:
    (tmp_path / "taintmod.py").write_text(source)
    with Driver(modules=("tests.jobs.plain", "taintmod"), path=tmp_path, wait=False) as driver:
        tainted = driver.wait_for(Tainted)
        assert tainted.module == "taintmod"
        assert reason in tainted.reason
        driver.wait_for(ServerClosed)
    with Driver(modules=("tests.jobs.plain", "taintmod"), late=("taintmod",), path=tmp_path) as driver:
        assert driver.run("add", 1).result == 1


def test_strict_preload_makes_taint_an_error(tmp_path: Path) -> None:
    (tmp_path / "strictmod.py").write_text(THREAD)
    with Driver(modules=("strictmod",), preload="strict", path=tmp_path, wait=False) as driver:
        failed = driver.wait_for(ImportFailed)
        assert "starts 1 thread(s)" in failed.error
        assert "--preload auto" in failed.error


def test_hooks() -> None:
    with Driver(before_fork=PLAIN + "before_fork", after_fork=PLAIN + "after_fork") as driver:
        assert driver.run("where_am_i").result["order"] == ["before", "after"]
        assert driver.run("where_am_i").result["order"] == ["before", "before", "after"]


def test_a_hook_that_is_not_there_is_an_import_failure() -> None:
    with Driver(before_fork=PLAIN + "no_such_hook", wait=False) as driver:
        assert driver.wait_for(ImportFailed).module == PLAIN + "no_such_hook"


def test_a_hook_that_raises_is_a_failed_fork(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "hookmod.py").write_text("def before(): raise ValueError('no horses today')\n")
    with Driver(before_fork="hookmod.before", path=tmp_path) as driver:
        horse = driver.server.fork()
        assert driver.wait_for(ForkFailed) == ForkFailed(horse.serial, errno.ECANCELED)
        horse.close()
        assert driver.server.poll() is None
    assert "no horses today" in capfd.readouterr().err


def test_horses_may_be_asked_for_before_the_imports_are_done() -> None:
    with Driver(wait=False) as driver:
        horses = [driver.server.fork() for _ in range(3)]
        for number, horse in enumerate(horses):
            driver.hand_out(job_fields(PLAIN + "add", number), horse)
        assert [driver.finish(horse).result for horse in horses] == [0, 1, 2]


def test_fork_failure_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSION_FAILPOINTS", "fork.before=raise:BlockingIOError")
    with Driver() as driver:
        horse = driver.server.fork()
        assert driver.wait_for(ForkFailed).serial == horse.serial
        horse.close()
        assert driver.run("add", 1).result == 1


def test_a_lost_descriptor_is_a_failed_fork() -> None:
    with Driver() as driver:
        pid = driver.server.pid
        assert pid is not None
        limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        horse = driver.server.fork()
        failed = driver.wait_for(ForkFailed)
        assert failed.serial == horse.serial
        horse.close()
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        assert driver.run("add", 2).result == 2


def running(driver: Driver, tmp_path: Path, *, sessions: bool = False) -> list[int]:
    """A horse at work, optionally with daemons below it; their pids."""
    witness = tmp_path / "pids"
    driver.hand_out(job_fields(PLAIN + "touch", str(witness), 60))
    wanted = 1
    if sessions:
        driver.hand_out(job_fields("tests.jobs.hostile.start_sleeper_and_wait", str(witness)))
        wanted = 3
    return eventually(lambda: pids if len(pids := _pids(witness)) == wanted else [])


def _pids(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def test_closing_the_control_socket_ends_everything(tmp_path: Path) -> None:
    with Driver() as driver:
        spare = driver.server.fork()
        pids = running(driver, tmp_path, sessions=True)
        server = driver.server.pid
        assert server is not None
        started = time.monotonic()
        driver.server.destroy()
        assert time.monotonic() - started < 2
        wait_gone([*pids, server], timeout=0.5)
        spare.close()


def test_destroy_ends_a_server_that_does_not_react(tmp_path: Path) -> None:
    with Driver() as driver:
        pids = running(driver, tmp_path)
        server = driver.server.pid
        assert server is not None
        os.kill(server, signal.SIGSTOP)
        driver.server.destroy()
        wait_gone([*pids, server])


def test_horses_do_not_outlive_the_server(tmp_path: Path) -> None:
    with Driver() as driver:
        pids = running(driver, tmp_path)
        assert driver.server.pid is not None
        os.kill(driver.server.pid, signal.SIGKILL)
        wait_gone(pids)
        driver.wait_for(ServerClosed)
        assert eventually(lambda: driver.server.poll() == -signal.SIGKILL)


def test_the_death_of_the_worker_ends_everything(tmp_path: Path) -> None:
    witness = tmp_path / "pids"
    script = f"""
import os, signal, sys, time
sys.path.insert(0, {ROOT!r})
from tests.forkserver.driver import Driver, job_fields
driver = Driver()
driver.hand_out(job_fields("tests.jobs.hostile.start_sleeper_and_wait", {str(witness)!r}))
while not (os.path.exists({str(witness)!r}) and open({str(witness)!r}).read().count("\\n") == 2):
    time.sleep(0.01)
print(driver.server.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, timeout=30, check=False)
    assert done.returncode == -signal.SIGKILL
    wait_gone([*_pids(witness), int(done.stdout)])


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (signal.SIGSEGV, "killed by SIGSEGV"),
        (signal.SIGKILL | 0x80, "killed by SIGKILL"),
        (0, "exited with code 0 without a result"),
        (7 << 8, "exited with code 7 without a result"),
    ],
)
def test_describe_death(status: int, text: str) -> None:
    assert describe_death(status) == text


def test_signal_name() -> None:
    assert signal_name(11) == "SIGSEGV"
    assert signal_name(42) == "signal 42"


def test_messages_compare(driver: Driver) -> None:
    exited: Any = driver.run("nothing").exited
    assert exited == HorseExited(exited.serial, 0, exited.maxrss, "-")


@pytest.mark.parametrize(("killed", "looked"), [(False, 0), (True, 1)])
def test_orphans_are_looked_for_where_the_server_could_not_end_them(
    killed: bool, looked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is the first process of a container is handed others' orphans too: a reload is no reason to end those."""
    calls: list[object] = []
    monkeypatch.setattr("fusion.forkserver.client.end_orphans", calls.append)
    with Driver() as driver:
        assert driver.run("add", 1).result == 1
        if killed:
            assert driver.server.pid is not None
            os.kill(driver.server.pid, signal.SIGKILL)
    assert len(calls) == looked
