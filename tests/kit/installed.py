"""An environment that has the wheel and what it needs, made without the network."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def needed(name: str, *extras: str) -> set[str]:
    """The distributions that pip installs with it."""
    found = set()
    for line in distribution(name).requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            found |= {str(canonicalize_name(requirement.name))} | needed(requirement.name, *requirement.extras)
    return found - {"fusion-queue"}


def install(clone: Path, home: Path, *extras: str, also: tuple[str, ...] = ()) -> Path:
    """Do what `pip install '.[extra]' also` does, from what is installed here and without the network. The directory of the programs."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    (packages,) = home.glob("lib/python*/site-packages")
    for name in needed("fusion-queue", *extras).union(also, *map(needed, also)):
        for top in {file.parts[0] for file in distribution(name).files or ()} - {"..", "__pycache__"}:
            (packages / top).symlink_to(str(distribution(name).locate_file(top)))
        _write_programs(home, name)
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(home)]
    subprocess.run(build, cwd=clone, check=True, capture_output=True)
    (wheel,) = home.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(packages)
    _write_programs(home, "fusion-queue")
    return home / "bin"


def _write_programs(home: Path, name: str) -> None:
    """Write the commands of a distribution, for this environment's Python."""
    for entry in distribution(name).entry_points.select(group="console_scripts"):
        program = home / "bin" / entry.name
        first = entry.attr.partition(".")[0]
        program.write_text(f"#!{home}/bin/python\nfrom {entry.module} import {first}\n{entry.attr}()\n")
        program.chmod(0o755)
