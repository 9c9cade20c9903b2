"""Stock RQ beside a fleet that is killed, as a test: short here, in full by `make soak-rq`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.kit.length import SOAK_ONLY, soaked
from tests.kit.process import ROOT
from tests.kit.promises import promise
from tests.rq_suite.__main__ import SECOND, TARGET, sources

VERSIONS = soaked(f"{TARGET} {SECOND}", os.environ.get("VERSION") or f"{TARGET} {SECOND}").split()
SECONDS = soaked("30", os.environ.get("SECONDS") or "600")
#: Seconds until nobody waits any longer.
LIMIT = float(SECONDS) + 900


@pytest.mark.skipif(sys.platform != "linux", reason="orphans are only found on Linux")
@pytest.mark.timeout(LIMIT + 30)
@pytest.mark.parametrize("stock", ["end", pytest.param("kill", marks=SOAK_ONLY)])
@pytest.mark.parametrize("version", VERSIONS)
def test_no_job_is_lost_to_a_neighbour_on_the_same_prefix(version: str, stock: str) -> None:
    try:
        sources(version)
    except (subprocess.CalledProcessError, OSError) as error:
        pytest.skip(f"the package index gives no source distribution of RQ {version}: {error}")
    command = [sys.executable, "-m", "tests.faults.beside", "--version", version, "--seconds", SECONDS, "--stock", stock]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False)
    print(ran.stdout)
    with promise("P1", "P4", "P5", "P13"):
        assert "\nWRONG:" not in ran.stdout, ran.stdout + ran.stderr
    assert ran.returncode == 0, ran.stdout + ran.stderr
