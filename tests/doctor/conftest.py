"""A look at the test's Redis as `doctor` and the verdict have it, and the commands that they name, as a person would type them."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import redis

from fusion.dashboard.app import DashboardApp
from fusion.doctor.finding import Finding
from fusion.doctor.look import Look
from fusion.doctor.verdict import Verdict, examine, verdict
from fusion.settings import get_settings
from fusion.web.auth import ANONYMOUS
from tests.dashboard.browser import Browser, Shown
from tests.kit.process import ROOT
from tests.kit.waiting import eventually


@dataclass
class Doctor:
    """`conn`: whose Redis is looked at."""

    conn: redis.Redis
    url: str

    def verdict(self) -> Verdict:
        return verdict(Look(self.conn, get_settings()))

    def all(self) -> list[Finding]:
        return examine(Look(self.conn, get_settings()))

    def of(self, check: str) -> list[Finding]:
        return [one for one in self.all() if one.check == check]

    def finds(self, check: str, *said: str, level: str = "fail", timeout: float = 15.0) -> Finding:
        """Wait until the check finds something of which it says all that. The verdict names it, as does the command, which ends with 3."""

        def fitting(found: Any) -> list[Finding]:
            return [one for one in found if one.check == check and one.level == level and all(text in one.what for text in said)]

        eventually(
            lambda: fitting(self.verdict().causes),
            timeout,
            why=f"the verdict names {check}: {said}; now {self.verdict().findings}",
        )
        (found,) = fitting(self.verdict().causes)
        ended = self.run("run_worker.py doctor --json --strict")
        assert ended.returncode == 3, ended.stdout + ended.stderr
        document = json.loads(ended.stdout)
        assert [check, level] in [[one["check"], one["level"]] for one in document["causes"]]
        assert document["verdict"] == ("unhealthy" if any(one["level"] == "fail" for one in document["causes"]) else "strained")
        self.shown(said)
        return found

    def shown(self, said: tuple[str, ...]) -> None:
        """Wait until the dashboard's Overview says so, too."""
        pages = [Shown(200, {}, b"")]

        def told() -> bool:
            pages[0] = Browser(DashboardApp(self.conn, lambda request: ANONYMOUS)).get("/")
            return all(text in pages[0].text for text in said)

        eventually(told, why=f"the Overview names {said}: {pages[0].text}")

    def press(self, found: Finding) -> str:
        """Press the button that stands beside it on the Overview; what the next page says."""
        browser = Browser(DashboardApp(self.conn, lambda request: ANONYMOUS))
        forms = [fields for action, fields, _ in browser.get("/").forms() if action == "/mend"]
        (fields,) = [one for one in forms if (one["check"], one["about"]) == (found.check, found.about)]
        assert browser.send("/mend", None, **fields).status == 303
        return browser.get("/").text

    def well(self, *checks: str, timeout: float = 15.0) -> None:
        """Wait until these checks find nothing that needs a person."""

        def sick() -> list[Finding]:
            return [one for one in self.verdict().causes if one.check in checks]

        eventually(lambda: not sick(), timeout, why=f"nothing is wrong with {checks} any more")

    def run(self, line: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command of ours as a person would."""
        words = shlex.split(line)
        assert words[0] == "run_worker.py", line
        environment = {**os.environ, "FUSION_REDIS_URL": self.url, **env}
        return subprocess.run(
            [sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=40, check=False
        )

    def mend(self, line: str, **env: str) -> str:
        """Run one that a finding names; what it says."""
        ended = self.run(line, **env)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout


@pytest.fixture
def doctor(conn: redis.Redis, redis_url: str) -> Doctor:
    return Doctor(conn, redis_url)


@pytest.fixture(params=["command", "button"])
def mends(request: pytest.FixtureRequest, doctor: Doctor) -> Callable[[Finding, str], str]:
    """`mends(found, "cron run")` types that command of its fix, or presses the button of the Overview; what is said then."""

    def mend(found: Finding, name: str) -> str:
        return doctor.mend(command_in(found.fix, name)) if request.param == "command" else doctor.press(found)

    return mend


def command_in(fix: str, name: str) -> str:
    """The command of this name that a fix tells, without the words before it."""
    line = next(line for line in fix.split("\n") if f"run_worker.py {name}" in line)
    return line[line.index("run_worker.py") :].partition(",")[0]


def flags_of(line: str) -> list[str]:
    """What follows the command's name."""
    return shlex.split(line)[2:]
