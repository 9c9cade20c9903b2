"""README.md does what it says, and every command line in the docs is one that the program understands."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from click.testing import CliRunner
from packaging.requirements import Requirement

from fusion.cli.main import cli
from tools.readme import blocks, extra_of_first_job, first_job

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/how-to").glob("*.md"))]


def commands() -> list[str]:
    """The command lines in all blocks, without their comments, each behind its page's name."""
    found = set()
    for page in PAGES:
        for line in "".join(blocks(page.read_text(), "", "sh")).splitlines():
            parts = re.split(r"; (?=fusion|run_worker)", line.split(" #")[0])
            found |= {
                f"{page.name}: {part.removesuffix('&').strip()}"
                for part in parts
                if re.match(r"(fusion|run_worker\.py) [a-z]", part)
            }
    return sorted(found)


@pytest.mark.parametrize("line", commands())
def test_the_program_knows_the_command_and_its_flags(line: str) -> None:
    _, *words = shlex.split(line.partition(": ")[2])
    result = CliRunner().invoke(cli, [*words, "--help"])
    assert result.exit_code == 0, result.output


def test_the_readme_names_what_needs_python_and_make_alone() -> None:
    (block,) = [block for block in blocks(README, "sh") if "make demo" in block]
    assert [line.split(" #")[0].strip() for line in block.splitlines()] == ["make demo", "make test"]
    shown = subprocess.run(["make", "-s", "help"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert re.search(r"make demo +\w", shown) and re.search(r"make test +\w", shown)


def test_the_readme_shows_the_first_job_on_its_first_screen() -> None:
    first = README.split("\n## ")[1]
    assert first.startswith("First job")
    assert README.index("python web.py") < 1500 and len(README[: README.index("python web.py")].splitlines()) < 45


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a clone of this checkout has, changes that are not committed included."""
    listed = subprocess.run(["git", "ls-files", "-z", "-c", "-o", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("no git, or no clone of it")
    target = tmp_path_factory.mktemp("clone")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


def needed(name: str, *extras: str) -> set[str]:
    """The distributions that pip installs with it."""
    found = set()
    for line in distribution(name).requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            found |= {requirement.name.lower()} | needed(requirement.name, *requirement.extras)
    return found - {"fusion-queue"}


def install(clone: Path, home: Path, *extras: str) -> Path:
    """Do what `pip install '.[extra]'` does, from what is installed here and without the network. The directory of the programs."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    (packages,) = home.glob("lib/python*/site-packages")
    for name in needed("fusion-queue", *extras):
        for top in {file.parts[0] for file in distribution(name).files or ()} - {"..", "__pycache__"}:
            (packages / top).symlink_to(str(distribution(name).locate_file(top)))
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(home)]
    subprocess.run(build, cwd=clone, check=True, capture_output=True)
    (wheel,) = home.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(packages)
    program = home / "bin" / "fusion"
    program.write_text(f"#!{home}/bin/python\nfrom fusion.cli.main import main\nmain()\n")
    program.chmod(0o755)
    return program.parent


@pytest.mark.long
@pytest.mark.gate
@pytest.mark.parametrize("where", ["the clone", "elsewhere"])
def test_the_first_job_runs_as_the_readme_has_it(where: str, clone: Path, tmp_path: Path) -> None:
    """With the extra that it names and no other; in the clone, where the bundled tasks are, and where there is the wheel alone."""
    programs = install(clone, tmp_path / "installed", extra_of_first_job(README))
    here = clone if where == "the clone" else tmp_path
    script = first_job(README, here)
    with tempfile.TemporaryDirectory(prefix="fus", dir="/tmp") as home:  # a short name: it holds a socket
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("FUSION_", "PYTHON", "REDIS_", "RQ_"))},
            "PATH": f"{programs}:{os.environ['PATH']}",
            "FUSION_HOME": home,
        }
        ran = subprocess.run(["sh", "-c", script], cwd=here, env=environment, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert "finished" in ran.stdout.splitlines(), ran.stderr
    assert "to +4915112345678: 123456" in ran.stdout.splitlines()
    wants = [line for line in ran.stderr.splitlines() if "the default task module tasks can't be imported" in line]
    assert len(wants) == (where == "the clone"), ran.stderr
