"""Rolling deploys: two versions of an app overlap, in either order of events. The highest that lives says what is declared."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import redis

from fusion.cron.scheduler import Scheduler
from tests.kit.schedulers import SchedulerProcess, Schedulers
from tests.kit.waiting import eventually
from tests.scheduler.harness import NOOP, arrivals, entry_of, job_of, ticks_of, without_gap
from tests.scheduler.test_declaring import Module


class App:
    """Version 1 declares `both` and `old`, version 2 `both` and `fresh`. An entry made at run time stands beside."""

    def __init__(self, schedulers: Schedulers, conn: redis.Redis, directory: Path) -> None:
        self._schedulers, self.conn, self._directory = schedulers, conn, directory
        self.cron = Scheduler(conn)
        self.cron.every(1, NOOP, id="at-run-time", queue="q", misfire="all")

    def start(self, version: int, *args: str, says: str = "cron entries declared") -> SchedulerProcess:
        module = Module(self._directory / f"v{version}", "app")
        entries = ("both", "old" if version == 1 else "fresh")
        lines = [f"    scheduler.every(1, '{NOOP}', id='{entry}', queue='q', misfire='all')\n" for entry in entries]
        module.write("def register(scheduler):\n" + "".join(lines))
        scheduler = self._schedulers.start(*module.flags, "--app-version", f"{version}.0", *args)
        scheduler.says(says)
        return scheduler

    @property
    def ids(self) -> list[str]:
        return self.cron.ids()

    def ticks_on(self, more: int = 1) -> None:
        ran = len(ticks_of(self.conn, "both"))
        eventually(lambda: len(ticks_of(self.conn, "both")) >= ran + more)

    def lost_and_doubled_nothing(self) -> None:
        for entry in ("both", "at-run-time"):
            ticks = ticks_of(self.conn, entry)
            came = arrivals(self.conn)
            assert without_gap(ticks), entry
            assert {came[job_of(entry, tick)] for tick in ticks} == {1}


@pytest.fixture
def app(schedulers: Schedulers, conn: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> App:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return App(schedulers, conn, tmp_path)


V1, V2 = ["at-run-time", "both", "old"], ["at-run-time", "both", "fresh"]
IGNORED = "a scheduler with a higher version of shop than 1.0 is alive: what this one declares is ignored"


@pytest.mark.long
def test_a_new_version_takes_over_while_the_old_one_is_still_there_and_restarted(app: App) -> None:
    first = app.start(1)
    assert app.ids == V1
    app.ticks_on()
    second = app.start(2)
    second.says("cron entry old: removed, version 2.0 of shop no longer declares it")
    assert app.ids == V2
    first.kill()  # its supervisor starts it again
    first = app.start(1, says=IGNORED)
    assert app.ids == V2
    app.ticks_on()
    first.signal(signal.SIGHUP)
    first.says(IGNORED, times=2)
    first.signal(signal.SIGTERM)
    assert first.wait() == 0
    app.ticks_on()
    assert app.ids == V2
    assert entry_of(app.conn, "both").version == "2.0"
    app.lost_and_doubled_nothing()


@pytest.mark.long
def test_a_rollback_brings_the_old_entries_back_and_the_next_deploy_removes_them_again(app: App) -> None:
    second = app.start(2)
    app.ticks_on()
    second.signal(signal.SIGTERM)
    assert second.wait() == 0
    first = app.start(1)
    first.says("cron entry old: new")
    first.says("cron entry fresh is stored and not in the code")
    assert app.ids == sorted({*V1, *V2}), "an older version removes nothing"
    app.ticks_on()
    app.start(2)
    eventually(lambda: app.ids == V2)
    app.ticks_on()
    app.lost_and_doubled_nothing()


@pytest.mark.long
def test_an_old_version_that_was_ignored_speaks_once_the_new_one_has_died(app: App) -> None:
    second = app.start(2, "--lease", "1.5")
    first = app.start(1, "--lease", "1.5", says=IGNORED)
    assert app.ids == V2
    second.kill()
    first.says("cron entry old: new")
    first.says("app shop version 1.0: 2 cron entries declared")
    assert first.output.count(IGNORED) == 1
    app.ticks_on()
    app.start(2, "--lease", "1.5")
    eventually(lambda: app.ids == V2)
    app.lost_and_doubled_nothing()


@pytest.mark.long
def test_two_of_one_version_declare_the_same(app: App) -> None:
    app.start(2)
    twin = app.start(2)
    assert app.ids == V2
    assert "new" not in twin.output
    assert "changed" not in twin.output
    app.ticks_on()
    app.lost_and_doubled_nothing()
