"""Runs an application of this folder, as it is or with its import lines changed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kit.process import ROOT
from tests.kit.waiting import unhurried
from tests.rq_suite.__main__ import _KEPT, TARGET, sources

APPS = Path(__file__).parent
#: The two environment variables.
CHANGED = {"FUSION_TASKS": "tasks", "FUSION_PREFIX": "fusion:"}
_IMPORTS = (
    (re.compile(r"^(\s*)from rq(_scheduler)?(?=[.\s])", re.MULTILINE), r"\1from fusion.rq\2"),
    (re.compile(r"^(\s*)import rq$", re.MULTILINE), r"\1import fusion.rq as rq"),
)


def with_fusion(code: str) -> str:
    """Return a program with its import lines changed."""
    for pattern, line in _IMPORTS:
        code = pattern.sub(line, code)
    return code


def flask() -> Path:
    """Return a folder with Flask, from the package index at the first call."""
    folder = _KEPT / "flask"
    if not folder.exists():
        with tempfile.TemporaryDirectory(dir=_made(_KEPT)) as scratch:
            pip = [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--disable-pip-version-check",
                "--quiet",
                "--target",
                f"{scratch}/flask",
            ]
            subprocess.run([*pip, "flask>=3,<4"], check=True)
            Path(scratch, "flask").rename(folder)
    return folder


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class App:
    """An application in a folder of its own, with stock RQ or with `fusion.rq`, on an empty Redis."""

    def __init__(self, name: str, fusion: bool, home: Path, redis_url: str, path: tuple[Path, ...] = ()) -> None:
        self.name, self.home, self._running = name, home, list[subprocess.Popen[bytes]]()
        for file in (APPS / name).glob("*.py"):
            code = file.read_text()
            (home / file.name).write_text(with_fusion(code) if fusion else code)
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("FUSION_", "RQ_", "REDIS", "PYTEST"))}
        folders = path if fusion else (sources(TARGET), *path)
        self._env: Mapping[str, str] = {
            **ours,
            "REDIS_URL": redis_url,
            "PYTHONPATH": os.pathsep.join(map(str, folders)),
            "PYTHONUNBUFFERED": "1",
            **(CHANGED if fusion else {}),
        }

    def start(self, *program: str) -> subprocess.Popen[bytes]:
        """Start a program of it, which ends with the test."""
        with (self.home / "log").open("ab") as log:
            started = subprocess.Popen([sys.executable, *program], cwd=self.home, env=self._env, stdout=log, stderr=log)
        self._running.append(started)
        return started

    def end(self, started: subprocess.Popen[bytes]) -> None:
        """End a program of it, as a platform does: by TERM."""
        started.terminate()
        try:
            started.wait(unhurried(30.0))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end within {unhurried(30.0)} s of TERM:\n{self.log}") from None

    def run(self, *program: str) -> str:
        """Run a program of it to its end; return what it printed."""
        done = subprocess.run(
            [sys.executable, *program], cwd=self.home, env=self._env, capture_output=True, text=True, timeout=150, check=False
        )
        assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{self.log}"
        return done.stdout

    def console(self, program: str) -> Callable[..., Any]:
        """Start a program that answers each line with one of JSON; return how to ask it."""
        with (self.home / "log").open("ab") as log:
            pipe = subprocess.PIPE
            started = subprocess.Popen(
                [sys.executable, program], cwd=self.home, env=self._env, stdin=pipe, stdout=pipe, stderr=log
            )
        self._running.append(started)

        def ask(*words: str) -> Any:
            assert started.stdin and started.stdout
            started.stdin.write(f"{' '.join(words)}\n".encode())
            started.stdin.flush()
            answer = started.stdout.readline()
            assert answer, f"{program} ended over {words}\n{self.log}"
            return json.loads(answer)

        return ask

    @property
    def log(self) -> str:
        path = self.home / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def close(self) -> None:
        for one in self._running:
            one.terminate()
        for one in self._running:
            try:
                one.wait(30)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()


@contextmanager
def app(name: str, fusion: bool, home: Path, redis_url: str, *path: Path) -> Iterator[App]:
    """An application; what it has started ends with the block."""
    home.mkdir()
    found = App(name, fusion, home, redis_url, (*path, ROOT) if fusion else path)
    try:
        yield found
    finally:
        found.close()
