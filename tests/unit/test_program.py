"""The name of the command line in texts for people."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fusion.kernel import program
from tests.kit.process import ROOT


@pytest.mark.parametrize(
    ("started", "name"),
    [
        ("/usr/bin/fusion", "fusion"),
        ("run_worker.py", "run_worker.py"),
        ("/usr/bin/gunicorn", "run_worker.py"),
        ("", "run_worker.py"),
    ],
)
def test_it_is_the_name_by_which_the_process_was_started(monkeypatch: pytest.MonkeyPatch, started: str, name: str) -> None:
    monkeypatch.setattr(sys, "argv", [started])
    assert program.name() == name


def test_where_there_is_no_checkout_it_is_fusion(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/gunicorn"])
    monkeypatch.setattr(program, "_ROOT", str(tmp_path))
    assert program.name() == "fusion"


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("worker", "--help"),
        ("limit", "set", "--help"),
        ("redis", "start", "--help"),
        ("server", "token", "--help"),
    ],
)
def test_help_has_that_name(words: tuple[str, ...], tmp_path: Path) -> None:
    started = tmp_path / "fusion"
    started.write_text("from fusion.cli.main import main\nmain()\n")
    ended = subprocess.run(
        [sys.executable, started, *words], cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert ended.returncode == 0 and "run_worker.py" not in ended.stdout and "Usage: fusion" in ended.stdout, ended


def test_errors_have_that_name(tmp_path: Path) -> None:
    started = tmp_path / "fusion"
    started.write_text("from fusion.cli.main import main\nmain()\n")
    env = {"PYTHONPATH": str(ROOT), "FUSION_HOME": str(tmp_path)}
    ended = subprocess.run([sys.executable, started, "redis", "status"], cwd=ROOT, env=env, capture_output=True, text=True)
    assert "Redis does not run; start it with: fusion redis start" in ended.stdout + ended.stderr
