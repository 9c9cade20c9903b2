"""A program with rq-scheduler: jobs at a time, at intervals and by a cron expression."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from tests.kit.waiting import eventually, unhurried
from tests.rq_apps.harness import App, app
from tests.rq_suite.__main__ import TARGET, sources

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def _day(found: App) -> dict[str, Any]:
    """What it shows, at each stage of a day."""
    seen, show = dict[str, Any](), found.console("ask.py")

    def noted(**counts: int) -> Any:
        latest: Any = {}

        def so() -> bool:
            latest.update(show())
            came = all(latest["notes"].get(name) == count for name, count in counts.items())
            return came and not any(latest["in"][name] for name in counts)

        eventually(so, unhurried(90.0), 0.2, why=f"{counts} are noted, and come no more\n{found.log}")
        return latest

    seen["asked"] = show("at", "party", "in", "never", "cancel", "never")
    clock = found.start("clock.py")
    eventually(lambda: show()["in"]["yearly"], unhurried(60.0), 0.2, why=f"all is registered\n{found.log}")
    found.start("worker.py")
    seen["thrice"] = noted(thrice=3)
    found.end(clock)
    found.start("clock.py")  # registers all of it anew
    noted(thrice=6)
    show("in", "soon")
    seen["soon"] = noted(soon=1)
    time.sleep(3)  # in which what is over must not come again
    seen["later"] = show()
    seen["canceled"] = show("cancel", "party", "cancel", "hourly", "cancel", "yearly")
    return seen


def test_the_same_comes_with_rq_scheduler_and_with_fusion(redis_url: str, tmp_path: Path) -> None:
    try:
        sources(TARGET)
    except (subprocess.CalledProcessError, OSError) as error:
        pytest.skip(f"the package index gives no source distribution of RQ: {error}")
    seen = []
    for fusion in (False, True):
        with app("clock", fusion, tmp_path / f"app{int(fusion)}", redis_url) as found:
            seen.append(_day(found))
        with Redis.from_url(redis_url) as client:
            client.delete("app:notes")
    stock, ours = seen
    # docs/from-rq.md has this one
    assert (stock["canceled"].pop("status"), ours["canceled"].pop("status")) == ("scheduled", "canceled")
    for stage, before in stock.items():
        for what in before:
            assert ours[stage][what] == before[what], f"{stage}: {what}"
    assert stock["later"]["notes"] == {"thrice": 6, "soon": 1}
    assert stock["later"]["in"] == {"thrice": False, "hourly": True, "yearly": True, "soon": False, "party": True, "never": False}
