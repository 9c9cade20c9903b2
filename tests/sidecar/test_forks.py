"""What is made for a worker is no forked process's, whenever that is forked."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.process import ROOT


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at /proc")
def test_forks_at_any_moment_inherit_nothing(redis_url: str) -> None:
    command = [sys.executable, "-m", "tests.sidecar.forking", "5"]
    said = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, timeout=50)
    found = re.match(r"(\d+) forks, (\d+) workers, left: \[\], at last: \[\]$", said.stdout.strip())
    assert found, said.stdout + said.stderr
    assert min(map(int, found.groups())) > 20
