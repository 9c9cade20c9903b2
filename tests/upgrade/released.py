"""The last release, as its wheel, in a directory of its own. What is built is in the history of this checkout."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.upgrade.newer import ROOT, Version

#: Stands for 0.1.0, which has no tag: the last commit before the work on 0.2.0. A tag takes its place with each release.
LAST = "f324f584"
_RUN = "from fusion.cli.main import main\n\nmain()\n"


def released(home: Path) -> Version:
    """Build the wheel of the last release and unpack it there. Skips where the checkout has no history."""
    archive = subprocess.run(
        ["git", "archive", LAST, "fusion", "pyproject.toml", "LICENSE"], cwd=ROOT, capture_output=True, check=False
    )
    if archive.returncode:
        pytest.skip(f"this checkout has no commit {LAST}: the history is needed")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as sources:
        sources.extractall(home / "sources", filter="data")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(home)]
    subprocess.run(build, cwd=home / "sources", check=True, capture_output=True, env={**os.environ, "PYTHONPATH": ""})
    (wheel,) = home.glob("*.whl")
    installed = home / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    (installed / "run_worker.py").write_text(_RUN)
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(installed)], check=True)
    return Version(installed)
