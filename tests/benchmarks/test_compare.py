"""`python -m benchmarks compare`: what is counted, and the service itself, on Fusion. No test here compares libraries."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from benchmarks.compare.command import PAGE, REQUIREMENTS, save, table
from benchmarks.compare.contenders import NAMES
from benchmarks.compare.running import Running, Runs
from benchmarks.compare.scenarios import SCENARIOS, fill, lost, of, seconds, twice, waits


def test_what_is_counted() -> None:
    done = Runs("mail", 10.0, None, [10.5], [11.0])
    again = Runs("mail", 10.0, None, [12.0, 40.0], [13.0, 41.0])
    cut = Runs("mail", 10.0, None, [11.0], [])
    refused = Runs("mail", 10.0, "ConnectionError: gone")
    jobs = [done, again, cut, refused]
    assert lost(jobs) == "1 of 3", "a call that raised promised nothing"
    assert twice(jobs) == "1"
    assert waits(jobs) == "1.0 s, 2.0 s"
    assert waits([refused]) == "none began"
    assert [seconds(value) for value in (0.004, 0.5, 1.5, 61.2)] == ["4 ms", "500 ms", "1.5 s", "61 s"]


def test_the_table_has_a_column_for_each_contender() -> None:
    made = table([("a 1", {"lost": "0 of 1"}), ("b 2", {"failed": "x | y"})])
    assert made.splitlines() == ["|  | a 1 | b 2 |", "| --- | --- | --- |", "| lost | 0 of 1 |  |", "| failed |  | x / y |"]


def test_a_scenario_is_written_into_its_place_alone(tmp_path: Path) -> None:
    page = tmp_path / "compare.md"
    page.write_text("a\n<!-- kill: made by `python -m benchmarks compare kill --save` -->\nold\n<!-- end of kill -->\nb\n")
    save("kill", "new", page)
    assert (
        page.read_text() == "a\n<!-- kill: made by `python -m benchmarks compare kill --save` -->\nnew\n<!-- end of kill -->\nb\n"
    )
    with pytest.raises(ValueError, match="no place for poison"):
        save("poison", "new", page)


def test_the_page_has_each_scenario_and_the_versions_of_each_contender() -> None:
    text = PAGE.read_text()
    pinned = dict(re.findall(r"^([a-z-]+)==(\S+)$", REQUIREMENTS.read_text(), re.MULTILINE))
    for scenario in SCENARIOS:
        made = text.partition(f"compare {scenario} --save` -->")[2].partition(f"<!-- end of {scenario} -->")[0]
        head = next((line for line in made.splitlines() if line.startswith("|")), "")
        told = dict(cell.split() for cell in head.strip("| ").split(" | "))
        assert set(told) == set(NAMES), scenario
        assert {name: told[name] for name in NAMES if name in pinned} == {name: pinned[name] for name in NAMES if name in pinned}


@pytest.mark.long
@pytest.mark.timeout(240)
def test_the_service_on_fusion_survives_a_kill_and_a_stop() -> None:
    with Running("fusion", Path(sys.executable)) as running:
        fill(running, 6, 0.5)
        assert running.until(lambda: any(runs.starts for runs in of(running, "mail")), 30)
        running.kill()
        assert running.until(lambda: all(runs.ends for runs in of(running, "mail")), 120)
        assert running.restarts == 1
        running.enqueue("told", "told", 0.1)
        assert running.until(lambda: running.shop.told.get("told"), 60)
        assert running.deploy() < 10
        running.enqueue("otp", "after")
        assert running.until(lambda: bool(running.jobs()["after"].ends), 60)
