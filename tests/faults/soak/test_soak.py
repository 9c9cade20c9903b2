"""The chaos soak as a test: short here, in full by `make soak`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.faults.soak.chaos import BROKEN
from tests.kit.process import ROOT
from tests.kit.promises import claim, promise

SOAK = bool(os.environ.get("FUSION_TEST_SOAK"))
SEEDS = os.environ.get("SEEDS", "1 2 3").split() if SOAK else ["4"]
#: Seconds until nobody waits any longer.
JOBS, LIMIT = (int(os.environ.get("SOAK_JOBS") or 10_000), 1800) if SOAK else (400, 400)
KILLS = max(14, 210 * JOBS // 10_000)
#: For every worker, like "--horses 2".
WORKER_ARGS = os.environ.get("SOAK_WORKER_ARGS", "")
FLAGS = {"process": "", "pool": "--horses 2", "thread": "--executor thread", "asyncio": "--executor asyncio"}
EXECUTORS = os.environ.get("FUSION_TEST_SOAK_EXECUTORS", "process" if SOAK else "process asyncio").split()
#: Short jobs besides, for pool mode to claim ahead.
RUSH = os.environ.get("SOAK_RUSH") or "0"


@claim("P1", "P4")
@pytest.mark.skipif(sys.platform != "linux", reason="orphans are only found on Linux")
@pytest.mark.timeout(LIMIT + 30)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("executor", EXECUTORS)
def test_whatever_is_killed_no_accepted_job_is_lost_stuck_or_ended_by_one_that_did_not_hold_it(seed: str, executor: str) -> None:
    command = [sys.executable, "-m", "tests.faults.soak", "--seed", seed, "--jobs", str(JOBS), "--kills", str(KILLS)]
    ran = subprocess.run(
        [*command, "--rush", RUSH, f"--worker-args={FLAGS[executor]} {WORKER_ARGS}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    print(ran.stdout)
    with promise("P1", "P4", "P5", "P6"):
        assert BROKEN not in ran.stdout, ran.stdout + ran.stderr
    assert ran.returncode == 0, ran.stdout + ran.stderr
    with promise("P1"):
        assert "lost: 0\n" in ran.stdout
