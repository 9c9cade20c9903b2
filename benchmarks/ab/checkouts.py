"""The two versions, each as a directory."""

from __future__ import annotations

import subprocess
from pathlib import Path

from benchmarks.contestant import ROOT


def checkout(name: str, home: Path) -> Path:
    """The directory of this name, or else a copy of this git revision below `home`. Raises ValueError if it is neither, or holds no Fusion."""
    path = Path(name).resolve()
    if not path.is_dir():
        path = home
        path.mkdir(parents=True)
        packed = subprocess.run(["git", "archive", name], cwd=ROOT, capture_output=True)
        if packed.returncode:
            raise ValueError(f"{name} is no directory and no revision of {ROOT}: {packed.stderr.decode().strip()}")
        subprocess.run(["tar", "-x"], cwd=path, input=packed.stdout, check=True)
    if not (path / "fusion" / "__main__.py").exists():
        raise ValueError(f"{name}: no checkout of Fusion, it has no fusion/__main__.py")
    return path


def revision(path: Path) -> str:
    """The commit of a checkout, with a plus if it was changed since; empty if git does not know it."""
    said = subprocess.run(["git", "describe", "--always", "--dirty=+", "--exclude=*"], cwd=path, capture_output=True, text=True)
    return said.stdout.strip()
