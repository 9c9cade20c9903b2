"""A gate's run forgives a flaky test, names it, and forgives nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from tests.kit.flaky import Entry, entries, overdue, toml_entry
from tests.kit.length import long_case
from tests.kit.process import ROOT

#: A test with one failure in its first runs, a defect, and a broken promise: one a file.
RACE = """
from pathlib import Path
def test_race():
    runs = Path(__file__).with_suffix(".runs")
    before = runs.read_text() if runs.exists() else ""
    runs.write_text(before + "x")
    assert before, "lost the race"
"""
DEFECT = "def test_defect(): assert 1 == 2"
BROKEN = """
from pathlib import Path
from tests.kit.promises import promise
def test_promise():
    runs = Path(__file__).with_suffix(".runs")
    runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
    with promise("P5"):
        assert len(runs.read_text()) > 1, "it ran twice"
"""
DEADLY = """
import os, signal
from pathlib import Path
def test_deadly():
    met = Path(__file__).with_suffix(".runs")
    if not met.exists():
        met.touch()
        os.kill(os.getpid(), signal.SIGTERM)
"""


class Gate:
    """A project with tests of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        (home / "tests").mkdir()
        (home / "pytest.ini").write_text("[pytest]\n")

    @property
    def log(self) -> list[str]:
        path = self.home / "state" / "fusion-ci" / "flaky.log"
        return [json.loads(line)["name"] for line in path.read_text().splitlines()] if path.exists() else []

    def runs(self, name: str) -> int:
        return len((self.home / "tests" / f"test_{name}.runs").read_text())

    def run(self, *flags: str, **files: str) -> subprocess.CompletedProcess[str]:
        for name, text in files.items():
            (self.home / "tests" / f"test_{name}.py").write_text(text)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
        environment |= {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(self.home / "state")}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.kit.flaky", "-p", "no:valkey"]
        named = [f"tests/test_{name}.py" for name in files]
        return subprocess.run(
            [*command, f"--flaky={self.home / 'counted'}", *flags, *named],
            cwd=self.home,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


@pytest.mark.long
@pytest.mark.gate
def test_a_race_passes_is_named_and_logged(gate: Gate) -> None:
    ran = gate.run(race=RACE)
    assert ran.returncode == 0, ran.stdout
    assert "FLAKY tests/test_race.py::test_race" in ran.stdout
    assert 'text = "AssertionError: lost the race"' in ran.stdout
    assert gate.runs("race") == 6
    assert gate.log == ["tests/test_race.py::test_race"]


def test_a_defect_is_refused(gate: Gate) -> None:
    ran = gate.run(defect=DEFECT)
    assert ran.returncode == 1
    assert "failed again alone (run 1 of 5)" in ran.stdout
    assert gate.log == []


@pytest.mark.long
def test_of_a_process_that_died_the_signal_is_shown(gate: Gate) -> None:
    ran = gate.run("-n", "1", deadly=DEADLY)
    assert ran.returncode == 0, ran.stdout
    assert "crashed while running 'tests/test_deadly.py::test_deadly'\nits process ended with exit code -15" in ran.stdout


def test_a_broken_promise_is_never_run_again(gate: Gate) -> None:
    ran = gate.run("-n", "1", broken=BROKEN)  # in another process than the one that reports
    assert ran.returncode == 1
    assert "a promise is broken in tests/test_broken.py::test_promise" in ran.stdout
    assert "P5: it ran twice" in ran.stdout
    assert gate.runs("broken") == 1


def test_six_failures_are_refused_over_all_steps_of_a_gate(gate: Gate) -> None:
    (gate.home / "counted").write_text("one\ntwo\nthree\nfour\nfive\n")
    ran = gate.run(race=RACE)
    assert ran.returncode == 1
    assert "6 tests failed, 5 at most are run again" in ran.stdout
    assert gate.runs("race") == 1


@pytest.mark.parametrize("cause", ["", long_case("a port is taken")])
def test_a_listed_test_needs_a_cause_to_flake_again(gate: Gate, cause: str) -> None:
    entry = toml_entry("tests/test_race.py::test_race", "E  boom", date(2026, 1, 1))
    (gate.home / "tests" / "flaky.toml").write_text(entry.replace('cause = ""', f'cause = "{cause}"'))
    ran = gate.run(race=RACE)
    assert ran.returncode == (0 if cause else 1), ran.stdout
    assert ("without a cause" in ran.stdout) != bool(cause)


def test_a_file_that_cannot_be_imported_is_refused(gate: Gate) -> None:
    assert gate.run(broken="import nothing_of_that_name", race=RACE).returncode == 2


def test_the_list_is_short_and_young(tmp_path: Path) -> None:
    def entry(day: int) -> Entry:
        return Entry(f"t{day}", date(2026, 1, day), "text")

    today = date(2026, 1, 16)
    assert overdue([entry(2), entry(3)], today) == []
    assert len(overdue([entry(1)], today)) == 1
    assert len(overdue([entry(3), entry(4), entry(5)], today)) == 1
    listed = tmp_path / "flaky.toml"
    listed.write_text('[[flaky]]\nname = "t"\ntext = "x"\n')
    with pytest.raises(ValueError, match="an entry has name, date, text and cause"):
        entries(listed)
