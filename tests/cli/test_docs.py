"""README.md does what it says, and every command line in the docs is one that the program understands."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from fusion.cli.main import cli
from tests.kit.installed import install
from tools.readme import blocks, extra_of_first_job, first_job

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/how-to").glob("*.md"))]


def commands() -> list[str]:
    """The command lines in all blocks, without prompts, variables in front and comments, each behind its page's name."""
    found = set()
    for page in PAGES:
        for line in "".join(blocks(page.read_text(), "", "sh", "console")).splitlines():
            parts = re.split(r"; (?=fusion|run_worker)", line.split(" #")[0])
            typed = (re.match(r"(?:\s*\$ |\s+)?(?:[A-Z_]+=\S+ )*((?:fusion|run_worker\.py) [a-z].*)", part) for part in parts)
            found |= {f"{page.name}: {one[1].removesuffix('&').strip()}" for one in typed if one}
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
