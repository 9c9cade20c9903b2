"""Entries that code declares: taken up at the start and at HUP, by a process of their own that may do what it likes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from fusion.cron.scheduler import Scheduler
from tests.kit.process import ROOT
from tests.kit.schedulers import Schedulers
from tests.kit.waiting import eventually
from tests.kit.witnesses import alive
from tests.scheduler.harness import NOOP, entry_of, ticks_of, without_gap

_ENTRY = f"""
def register(scheduler):
    scheduler.every(1, "{NOOP}", id="stays", queue="q", misfire="all")
"""


class Module:
    """A module of an app. Its bytecode is not kept: two versions of one second would look alike."""

    def __init__(self, directory: Path, name: str = "planned") -> None:
        self.directory, self.name = directory, name
        self.flags = ("-P", str(directory), "--schedule", name, "--app", "shop")

    def write(self, text: str) -> None:
        self.directory.mkdir(exist_ok=True)
        (self.directory / f"{self.name}.py").write_text(f"from fusion.kernel.recurrence import recurring\n{text}")


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Module:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return Module(tmp_path / "app")


@pytest.mark.long
def test_both_ways_of_declaring_are_taken_up_and_hup_reads_them_again(
    schedulers: Schedulers, module: Module, cron: Scheduler, conn: redis.Redis, tmp_path: Path
) -> None:
    tasks = Module(module.directory, "chores")
    tasks.write("@recurring('0 3 * * *', id='nightly', timezone='Europe/Berlin')\ndef clean(): ...\n")
    module.write("@recurring(every=60)\ndef count(): ...\n" + _ENTRY)
    scheduler = schedulers.start(*module.flags, "--app-version", "1.2", "--tasks", tasks.name)
    scheduler.says("app shop version 1.2: 3 cron entries declared")
    assert cron.ids() == ["nightly", "planned-count", "stays"]
    assert {(info.app, info.version) for info in cron.entries()} == {("shop", "1.2")}
    eventually(lambda: ticks_of(conn, "stays"))

    module.write(_ENTRY.replace("misfire", "log_tag='v2', misfire") + f"    scheduler.cron('@daily', '{NOOP}', id='more')\n")
    scheduler.signal(signal.SIGHUP)
    scheduler.says("cron entry more: new")
    scheduler.says("cron entry stays: changed")
    scheduler.says("cron entry planned-count is stored and not in the code")
    assert cron.ids() == ["more", "nightly", "planned-count", "stays"]
    eventually(lambda: len(ticks_of(conn, "stays")) >= 2)
    assert without_gap(ticks_of(conn, "stays")), "a changed entry loses no tick"


@pytest.mark.long
def test_a_mistake_in_one_entry_is_shown_there_and_the_former_one_goes_on(
    schedulers: Schedulers, module: Module, cron: Scheduler, conn: redis.Redis
) -> None:
    module.write(_ENTRY)
    scheduler = schedulers.start(*module.flags)
    scheduler.says("1 cron entries declared")
    module.write(_ENTRY.replace('"all"', '"some"') + f"    scheduler.cron('61 * * * *', '{NOOP}', id='never')\n")
    scheduler.signal(signal.SIGHUP)
    scheduler.says("cron entry stays is declared with a mistake: misfire='some'")
    scheduler.says("cron entry never is declared with a mistake")
    scheduler.says("0 cron entries declared, 2 with a mistake")
    assert "misfire='some'" in entry_of(conn, "stays").declared_error
    assert "61" in entry_of(conn, "never").declared_error
    ran = len(ticks_of(conn, "stays"))
    eventually(lambda: len(ticks_of(conn, "stays")) > ran)
    module.write(_ENTRY)
    scheduler.signal(signal.SIGHUP)
    eventually(lambda: not entry_of(conn, "stays").declared_error)


_MISCHIEF = {
    "raise ZeroDivisionError('oops')": "can't be loaded, what it declares is not known: ZeroDivisionError: oops",
    "import sys; sys.exit(3)": "can't be loaded, what it declares is not known: SystemExit: 3",
    "import os; os._exit(0)": "the process that did so died with status 0",
    "import os; os.kill(os.getpid(), 11)": "the process that did so died with status -11",
    "import sys; sys.stdin.read(); input()": "can't be loaded, what it declares is not known: EOFError",
}


@pytest.mark.long
def test_whatever_a_module_does_at_import_the_scheduler_ticks_on_and_nothing_is_removed(
    schedulers: Schedulers, module: Module, cron: Scheduler, conn: redis.Redis
) -> None:
    module.write(_ENTRY)
    scheduler = schedulers.start(*module.flags)
    scheduler.says("1 cron entries declared")
    for text, says in _MISCHIEF.items():
        module.write(text)
        scheduler.signal(signal.SIGHUP)
        scheduler.says(says)
    eventually(lambda: len(ticks_of(conn, "stays")) >= 2)
    assert without_gap(ticks_of(conn, "stays"))
    assert entry_of(conn, "stays").version == "0"
    assert not scheduler.children()


def test_a_module_that_hangs_is_given_up_and_nothing_is_removed(
    schedulers: Schedulers, module: Module, cron: Scheduler, conn: redis.Redis
) -> None:
    cron.every(1, NOOP, id="stays", queue="q", misfire="all")
    conn.hset("rq:cron:entry:stays", mapping={"app": "shop", "version": "0"})
    module.write("import threading; threading.Event().wait()")
    scheduler = schedulers.start(*module.flags, "--app-version", "1", env={"FUSION_IMPORT_TIMEOUT": "0.5"})
    scheduler.says("loading planned: it took longer than 0.5 s; the cron entries stay as they are")
    ran = len(ticks_of(conn, "stays"))
    eventually(lambda: len(ticks_of(conn, "stays")) > ran)
    assert cron.ids() == ["stays"]
    assert not scheduler.children()


_NUISANCE = """
import os, subprocess, sys, threading, time
print("said at import")
threading.Thread(target=time.sleep, args=(600,)).start()
if os.fork() == 0:
    time.sleep(600)
sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(f"started {sleeper.pid}.", flush=True)
"""


@pytest.mark.long
def test_a_module_that_prints_and_leaves_threads_and_processes_behind_is_taken_up_and_cleared_away(
    schedulers: Schedulers, module: Module, cron: Scheduler, conn: redis.Redis
) -> None:
    module.write(_NUISANCE + _ENTRY)
    scheduler = schedulers.start(*module.flags)
    scheduler.says("1 cron entries declared")
    assert "said at import" in scheduler.output
    pid = int(scheduler.output.split("started ")[1].split(".")[0])
    eventually(lambda: not alive(pid), why="what the module started is gone")
    eventually(lambda: ticks_of(conn, "stays"))


@pytest.mark.long
def test_a_module_that_hangs_does_not_outlive_its_scheduler(schedulers: Schedulers, module: Module, tmp_path: Path) -> None:
    gate = tmp_path / "loading"
    module.write(f"open({str(gate)!r}, 'w').close()\nimport time; time.sleep(600)\n")
    scheduler = schedulers.start(*module.flags)
    eventually(gate.exists)
    (loader,) = scheduler.children()
    scheduler.kill()
    eventually(lambda: not alive(loader.pid))


def test_a_missing_module_is_reported_and_the_scheduler_goes_on(
    schedulers: Schedulers, cron: Scheduler, conn: redis.Redis
) -> None:
    scheduler = schedulers.start("--schedule", "nosuch.module", "--log-json")
    scheduler.says("module nosuch.module can't be loaded, what it declares is not known: ModuleNotFoundError: No module named")
    cron.every(1, NOOP, id="e", queue="q")
    eventually(lambda: ticks_of(conn, "e"))
    assert all(line.startswith('{"time"') for line in scheduler.output.splitlines()), scheduler.output


@pytest.mark.long
def test_it_declares_from_any_directory(redis_url: str, module: Module, cron: Scheduler, tmp_path: Path) -> None:
    module.write(_ENTRY)
    program = [sys.executable, str(ROOT / "run_worker.py"), "scheduler", *module.flags]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(program, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        eventually(lambda: cron.ids() == ["stays"], 60, why=(tmp_path / "log").read_text())
    finally:
        process.terminate()
        assert process.wait(30) == 0


@pytest.mark.long
def test_entries_of_other_apps_are_not_taken_over(
    schedulers: Schedulers, module: Module, cron: Scheduler, conn: redis.Redis
) -> None:
    cron.cron("@daily", NOOP, id="stays")
    module.write(_ENTRY)
    scheduler = schedulers.start(*module.flags)
    scheduler.says(
        "cron entry stays was made at run time: choose another id, or remove it first (run_worker.py cron remove stays)"
    )
    assert entry_of(conn, "stays").app == ""
    other = schedulers.start(*module.flags[:-1], "market")
    other.says("app market version 0: 0 cron entries declared, 1 with a mistake")
    cron.remove("stays")
    scheduler.signal(signal.SIGHUP)
    scheduler.says("cron entry stays: new")
    other.signal(signal.SIGHUP)
    other.says("cron entry stays is declared by app shop")
    assert entry_of(conn, "stays").app == "shop"


@pytest.mark.long
def test_a_malformed_entry_is_reported_and_blocks_no_other(
    schedulers: Schedulers, module: Module, cron: Scheduler, conn: redis.Redis
) -> None:
    conn.set("rq:cron:entry:stays", "another program's")
    module.write(_ENTRY + f"    scheduler.every(1, '{NOOP}', id='fine', queue='q')\n")
    scheduler = schedulers.start(*module.flags)
    scheduler.says("cron entry stays can't be stored: WRONGTYPE")
    eventually(lambda: ticks_of(conn, "fine"))
    conn.delete("rq:cron:entry:stays")
    scheduler.signal(signal.SIGHUP)
    eventually(lambda: ticks_of(conn, "stays"))
    assert "Redis is away" not in scheduler.output
