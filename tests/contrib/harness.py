"""`manage.py` of the shop as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import ClassVar

from tests.kit.process import ROOT, Group, ProcessUnderTest
from tests.kit.servers import free_port
from tests.kit.waiting import unhurried

MANAGE = ("-m", "tests.contrib.shop.manage")


def manage(*words: str, program: tuple[str, ...] = MANAGE, cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess[str]:
    """One run of a command; ends within a minute."""
    return subprocess.run(
        [sys.executable, *program, *words],
        cwd=cwd,
        env=os.environ | env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=unhurried(60),
        check=False,
    )


class Managed(ProcessUnderTest):
    """`manage.py COMMAND` with a log."""

    SETTINGS: ClassVar[dict[str, str]] = {"FUSION_TIMEOUT_GRACE": "0.5"}

    def ready(self) -> Managed:
        """A worker of it waits for jobs."""
        self.says("ready for jobs", timeout=unhurried(30))
        return self


class Site(Managed):
    """`manage.py runserver`, whose reloader is a process above it."""

    address = ""

    def ask(self, path: str, data: bytes | None = None) -> tuple[int, str]:
        """Status and text of an answer; OSError without one."""
        try:
            with urllib.request.urlopen(f"http://{self.address}{path}", data, timeout=90) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def post(self, path: str) -> int:
        return self.ask(path, b"")[0]

    def answers(self) -> bool:
        try:
            return self.ask("/admin/login/")[0] == 200
        except OSError:
            return False

    def dismiss(self) -> None:
        if self.process.poll() is None and not self._dismissed:
            self._dismissed = True
            os.killpg(self.pid, signal.SIGINT)


class Manages(Group):
    """Runs of manage.py that end with the test."""

    word = "manage"

    def start(self, *words: str, program: tuple[str, ...] = MANAGE, **env: str) -> Managed:
        one = Managed(self.redis_url, self.next_log(), *program, *words, env=env)
        self._started.append(one)
        return one

    def serve(self, *, reload: bool = False, **env: str) -> Site:
        """The shop's pages by Django's own server, once it answers."""
        address = f"127.0.0.1:{free_port()}"
        words = ("runserver", address, *(() if reload else ("--noreload",)))
        site = Site(self.redis_url, self.next_log(), *MANAGE, *words, env=env)
        site.address = address
        self._started.append(site)
        site.until(site.answers, unhurried(30), "it answers")
        return site
