"""What the page and the example show is so."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.architecture.source import ROOT
from tests.kit.waiting import eventually


def test_the_example_measures_one_model_whatever_the_number_of_workers() -> None:
    command = [sys.executable, "-m", "fusion.inprocess", "--workers", "8", "--jobs", "40", "--model-mb", "32"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stderr) == (0, "")
    loaded = re.search(r"loaded +([\d.]+) MB", found.stdout)
    start = re.search(r"start +([\d.]+) MB", found.stdout)
    took = re.search(r"8 workers took ([\d.]+) MB besides the model: [\d.]+ MB each", found.stdout)
    assert loaded and start and took, found.stdout
    assert 31 < float(loaded[1]) - float(start[1]) < 34
    assert float(took[1]) < 16  # eight copies would be 256
    assert re.search(r"40 jobs in [\d.]+ s by 8 workers; the model was loaded 1 time\.", found.stdout)
    assert max(map(len, found.stdout.splitlines())) <= 100


@pytest.mark.parametrize("flags", [["--workers", "0"], ["--jobs", "x"], ["--model-mb", "-1"]])
def test_wrong_arguments_of_the_example_are_refused(flags: list[str]) -> None:
    found = subprocess.run([sys.executable, "-m", "fusion.inprocess", *flags], capture_output=True, text=True, timeout=60)
    assert found.returncode == 2
    assert f"argument {flags[0]}: {flags[1]!r} must be a whole number from 1 to 100000" in found.stderr


def test_the_first_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "inprocess.md").read_text()
    code = page.split("## Ten minutes")[1].split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MASTER_GRACE_PERIOD_SECONDS", "0")

    class Model:
        def score(self, text: str) -> int:
            return len(text)

    def serve() -> None:
        with closing(sqlite3.connect("jobs.db")) as connection:
            eventually(lambda: connection.execute("SELECT result FROM execution_plan").fetchall() == [("8",)])

    exec(code, {"load_model": Model, "serve": serve})


def test_the_page_has_each_step_and_each_symptom() -> None:
    page = (ROOT / "docs" / "inprocess.md").read_text()
    steps = page.split("## Steps")[1].split("## Troubleshooting")[0]
    listed = {kind for row in re.findall(r"^\| (`.*?) \|", steps, re.MULTILINE) for kind in re.findall(r"`(\w+)`", row)}
    told = set[str]()
    for path in (ROOT / "fusion" / "inprocess").glob("*.py"):
        told |= set(re.findall(r"tell\(\s*\"(\w+)\"", path.read_text()))
    assert listed == told
    for symptom in ("Jobs are not picked up", "A job runs twice", "Workers die", "Memory is high"):
        assert f"**{symptom}.**" in page.split("## Troubleshooting")[1]
