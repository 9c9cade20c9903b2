"""`python -m benchmarks ab` itself: one short run, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.ab import page
from benchmarks.ab.cases import CASES, Slice
from benchmarks.ab.checkouts import checkout
from benchmarks.ab.comparison import Comparison, Measured
from benchmarks.ab.side import Reading
from tests.kit.length import SOAK_ONLY

ROOT = Path(__file__).resolve().parents[2]


def _measured(rates: list[float], cpu: float = 0.1) -> Measured:
    measured = Measured(starts=[[]])
    for rate in rates:
        measured.take(
            Slice(rate, Reading(jobs=100, cpu={"worker": cpu}, requests=100, scripts=100, script_us=20_000, calls=2400))
        )
    return measured


def _compared(old: list[float], new: list[float], cpu: float = 0.1) -> dict[str, Comparison]:
    return {"fork": Comparison(CASES["fork"], _measured(old), _measured(new, cpu))}


def test_a_slower_version_is_named() -> None:
    found = _compared([800.0] * 30, [760.0] * 30)
    assert page.worse(found, 3) == ["fork, jobs/s: 5.0 % worse"]
    assert page.worse(found, 6) == []
    assert page.worse(found, None) == []


def test_so_is_one_that_spends_more() -> None:
    assert page.worse(_compared([800.0] * 30, [900.0] * 30, cpu=0.11), 3) == ["fork, CPU ms a job: 10.0 % worse"]


def test_the_table_and_the_figures_tell_the_same() -> None:
    found = _compared([800.0] * 30, [760.0] * 30)
    figures = page.figures(found, {"OLD": "here"}, 3)
    case = figures["cases"]["fork"]
    assert case["ratios"]["jobs/s"] == pytest.approx({"median": 0.95, "low": 0.95, "high": 0.95, "percent_worse": 5.0})
    assert case["old"]["cpu"] == {"worker": pytest.approx(1.0)}
    assert (case["old"]["requests"], case["old"]["calls"], case["old"]["script_us"]) == (1.0, 24.0, 200.0)
    rate = next(line for line in page.table(found, {"OLD": "here"}, 3).splitlines() if "jobs/s" in line)
    assert rate.split() == ["jobs/s", "800", "760", "0.950", "0.950", "to", "0.950", "worse"]


def test_a_checkout_is_a_directory_or_a_revision(tmp_path: Path) -> None:
    assert checkout(str(ROOT), tmp_path / "a") == ROOT
    with pytest.raises(ValueError, match="no directory and no revision"):
        checkout("no-such-branch", tmp_path / "b")
    with pytest.raises(ValueError, match="no checkout of Fusion"):
        checkout(str(tmp_path), tmp_path / "c")


@pytest.mark.long
@pytest.mark.timeout(180)
def test_a_checkout_beside_itself() -> None:
    command = [sys.executable, "-m", "benchmarks", "ab", str(ROOT), str(ROOT), "--json"]
    short = ["--only", "fork,enqueue", "--pairs", "2", "--starts", "1", "--seconds", "0.1"]
    done = subprocess.run([*command, *short], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for case in json.loads(done.stdout)["cases"].values():
        for side in (case["old"], case["new"]):
            assert side["jobs"] > 0
            assert side["scripts"] == pytest.approx(1.0, abs=0.5)
            assert side["cpu"]["redis-server"] > 0
            assert side["slowest"][0]["calls"] == pytest.approx(1.0, abs=0.5)


@SOAK_ONLY
@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_version_has_as_many_instructions_as_itself() -> None:
    command = [sys.executable, "-m", "benchmarks", "ab", str(ROOT), str(ROOT), "--count", "--only", "many", "--limit", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    old, new, ratio = map(float, done.stdout.splitlines()[-1].replace(",", "").split()[-3:])
    assert 100 < old < 10_000
    assert ratio == pytest.approx(new / old, abs=0.001)
