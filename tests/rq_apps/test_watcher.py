"""A program that watches queues, registries, workers and jobs, and acts on them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.kit.waiting import eventually, unhurried
from tests.rq_apps.harness import App, app
from tests.rq_suite.__main__ import TARGET, sources

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def _watch(found: App) -> dict[str, Any]:
    """What it shows, at each stage of a day."""
    file, seen, show = str(found.home / "arrived"), dict[str, Any](), found.console("watch.py")

    def until(queue: str, runs: str = "", **counts: int) -> Any:
        latest: Any = {}

        def so() -> bool:
            latest.update(show())
            there = latest["queues"][queue]
            busy = [one["state"] for one in latest["workers"].values()].count("busy")
            # A registry has a job before the job itself says that it has started.
            if runs and latest["jobs"][runs]["status"] != "started":
                return False
            return all((busy if name == "busy" else there[name]) == count for name, count in counts.items())

        eventually(so, unhurried(90.0), 0.2, why=f"{queue} has {counts}\n{found.log}")
        return latest

    found.run("shop.py", file)
    seen["filled"] = show()
    found.start("worker.py", "fast", "high")
    seen["one worker"] = until("high", queued=0, started=0, finished=1, failed=1, busy=0)
    found.start("worker.py", "slow", "low", "high")
    seen["two workers"] = until("low", runs="waits", started=1, queued=5)
    seen["requeued"] = show("requeue", "refused") and until("high", queued=0, started=0, failed=1, busy=1)
    seen["removed"] = show("remove", "refused")
    seen["canceled"] = show("cancel", "low-4")
    seen["stopped"] = show("stop", "waits") and until("low", queued=0, started=0, busy=0)
    seen["suspended"] = show("suspend", "all")
    seen["resumed"] = show("resume", "all", "empty", "low")
    return seen


def test_the_same_is_shown_with_rq_and_with_fusion(redis_url: str, tmp_path: Path) -> None:
    try:
        sources(TARGET)
    except (subprocess.CalledProcessError, OSError) as error:
        pytest.skip(f"the package index gives no source distribution of RQ: {error}")
    seen = []
    for fusion in (False, True):
        with app("watcher", fusion, tmp_path / f"app{int(fusion)}", redis_url) as found:
            seen.append(json.loads(json.dumps(_watch(found)).replace(str(found.home), "HOME")))
    stock, ours = seen
    for stage in ("stopped", "suspended", "resumed"):  # docs/from-rq.md has these two
        for one in (stock, ours):
            assert one[stage]["workers"]["slow"].pop("failed") == (1 if one is stock else 0)
            assert one[stage]["jobs"]["waits"]["times"].pop() == (one is ours)
    for stage, before in stock.items():
        for what in before:
            assert ours[stage][what] == before[what], f"{stage}: {what}"
    low = stock["two workers"]["queues"]["low"]
    assert (low["queued"], low["started ids"], low["finished ids"], low["deferred"], low["scheduled"]) == (
        5,
        ["waits"],
        ["first"],
        1,
        1,
    )
