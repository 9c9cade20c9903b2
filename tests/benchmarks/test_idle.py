"""`python -m benchmarks idle` runs, and its figures are those of the fleet that it started. No test here checks speed."""

from __future__ import annotations

import json

import pytest

from benchmarks.idle import Lateness, main


@pytest.mark.long
@pytest.mark.timeout(240)
def test_an_idle_fleet_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--workers", "2", "--seconds", "4", "--jobs", "5", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    idle, due, ticks = document["found"]
    assert idle["workers"] == 2
    assert 0.2 < idle["scripts"] < 20, "each worker takes turns, and one of them checks each second what is due"
    assert idle["scripts"] < idle["requests"] < 40
    assert idle["worker"] > 0
    assert (due["jobs"], ticks["jobs"]) == (5, 4)
    assert 0 < due["p50"] <= due["p99"] <= due["most"]
    assert 0 < ticks["p50"] <= ticks["most"]


def test_lateness_is_summed_up() -> None:
    found = Lateness.of("cron", [float(n) for n in range(100)])
    assert (found.jobs, found.most) == (100, 99.0)
    assert str(found).startswith("cron: 100 jobs start late by 50")
