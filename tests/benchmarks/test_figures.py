"""Every section of the table, and every contender that is installed, really runs: a handful of jobs each. They say nothing about speed."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from benchmarks import matrix
from benchmarks.contestant import Contestant
from benchmarks.figures.figure import SMOKE
from benchmarks.figures.table import CROWD_ROWS, CROWDS, ROWS, SECTIONS
from benchmarks.peers.base import Conditions
from benchmarks.peers.registry import NAMES
from benchmarks.race import race
from tests.kit.length import soak_case

#: What each section is to find without any peer but RQ; of those with Huey and Celery besides.
FIGURES = {
    "fork": 8,
    "site": 8,
    "big": 4,
    "high": 10,
    "pool": 2,
    "enqueue": 2,
    "start": 8,
    "backlog": 4,
    "limits": 7,
    "bytes": 12,
    "scheduler": 4,
    "rest": 5,
    "waits": 0,
    "threads": 0,
    "crowd": 8,
    "executors": 0,
    "bundled": 11,
}

#: `make bench-smoke` runs all of them.
QUICK = {"fork", "bytes", "scheduler", "waits", "crowd"}


@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", [name if name in QUICK else soak_case(name) for name in (*SECTIONS, *CROWDS)])
def test_a_section_runs(name: str) -> None:
    found = (SECTIONS | CROWDS)[name](SMOKE)
    shown = [figure for figure in found.figures if figure.row != "rates"]
    assert len(shown) >= FIGURES[name]
    assert {figure.row for figure in shown} <= {*ROWS, *CROWD_ROWS}
    assert len({(figure.row, figure.what) for figure in found.figures}) == len(found.figures), "the name of each is its own"
    for laps in found.races.values():
        assert all(lap.rate > 0 and lap.spent > 0 for lap in laps.values())


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.parametrize("key", NAMES)
def test_a_contender_runs(key: str) -> None:
    if find_spec(key.partition("-")[0].replace("bare", "fusion")) is None:
        pytest.skip("not installed: make venv-bench")
    assert matrix.smoke([key]) == 0


@pytest.mark.timeout(60)
def test_contenders_work_in_turns() -> None:
    laps = race({"ours": ("fusion", Conditions()), "loop": ("bare", Conditions())}, 2, 0.1)
    ours, loop = laps["ours"], laps["loop"]
    assert ours.rate > 0 and loop.rate > 0
    assert set(ours.cpu) == {"worker", "fork server", "horses", "Redis"}
    assert set(loop.cpu) == {"who forks", "horses"}
    assert ours.cpu["horses"] > 0 and loop.cpu["horses"] > 0
    assert 0.5 < ours.requests < 5.0
    assert loop.requests == 0


@pytest.mark.timeout(60)
@pytest.mark.parametrize("key", ["fusion", "fusion-pool"])
def test_a_held_contestant_does_no_work(key: str) -> None:
    with Contestant(key, Conditions()) as one:
        one.hold()
        one.fill_up(500)
        first = one.slice(0.1)
        held = [one.read() for _ in range(100)]
        second = one.slice(0.1)
    assert 0 < first.jobs <= first.after.jobs - first.before.jobs
    assert held[-1].jobs - held[0].jobs <= 1, "but for what a loaded machine is late with"
    # a loaded machine sets the clock of a process right some time after that has stopped
    assert held[-1].cpu["worker"] == pytest.approx(held[0].cpu["worker"], abs=0.05) == second.before.cpu["worker"]
    assert second.after.cpu["worker"] > second.before.cpu["worker"]


@pytest.mark.timeout(60)
def test_a_contender_whose_workers_end_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="its workers ended with"), Contestant("fusion", Conditions(flags=("--no-such-flag",))):
        pass
