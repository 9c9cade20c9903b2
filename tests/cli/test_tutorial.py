"""docs/tutorial.md: each block does and prints what the page shows, in an environment with the packages that it installs and no other."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.source import ROOT
from tests.kit.installed import install
from tests.kit.reader import Reader, chosen

PAGE = (ROOT / "docs" / "tutorial.md").read_text()
TABS = ["Plain Python", "Flask", "FastAPI", "Django"]


@pytest.fixture
def home() -> Iterator[str]:
    """A short name: it holds a socket."""
    with tempfile.TemporaryDirectory(prefix="fus", dir="/tmp") as found:
        yield found


@pytest.mark.long
@pytest.mark.gate
@pytest.mark.timeout(240)
def test_the_first_three_steps(clone: Path, tmp_path: Path, home: str) -> None:
    text = chosen(PAGE, "Plain Python").split("\n## 4.")[0]
    (extras,) = re.findall(r"^pip install '\.\[([\w,]+)\]'$", text, re.MULTILINE)
    programs = install(clone, tmp_path / "installed", *extras.split(","))
    with Reader(tmp_path, programs, {"FUSION_HOME": home}, skipped=("pip install '.",)) as reader:
        assert reader.follow(text) > 7


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("tab", TABS)
def test_every_step(tab: str, clone: Path, tmp_path: Path, home: str) -> None:
    """With real installs, as the page has them."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "installed"], check=True)
    programs = tmp_path / "installed" / "bin"
    text = chosen(PAGE, tab)
    (line,) = re.findall(r"^pip install ('\.\[.+)$", text, re.MULTILINE)
    done = subprocess.run(
        [programs / "python", "-m", "pip", "install", "-q", *line.replace("'", "").split()],
        cwd=clone,
        capture_output=True,
        text=True,
    )
    if "No matching distribution" in done.stderr:
        pytest.skip("the package index can't be reached")
    assert done.returncode == 0, done.stderr
    with Reader(tmp_path, programs, {"FUSION_HOME": home}, skipped=("pip install '.",)) as reader:
        assert reader.follow(text) > 20


@pytest.mark.parametrize(
    ("block", "shown", "same"),
    [
        ("echo one 17", "one 29", True),
        ("echo 2 passed in 47.56s", "2 passed in 3.11s", True),
        ("echo 12:00:01 pid 4711, Redis 7.0.15", "pid 12, Redis 8.1.0", True),
        ("echo retry in 1 s", "retry in 2 s", False),
        ("echo one; echo two", "one", False),
    ],
)
def test_an_output_that_differs_is_noticed(block: str, shown: str, same: bool, tmp_path: Path) -> None:
    page = f"```sh\n{block}\n```\n\n```text\n{shown}\n```\n"
    with Reader(tmp_path, tmp_path, {}, patience=0) as reader:
        if same:
            assert reader.follow(page) == 2
        else:
            with pytest.raises(AssertionError, match="the page shows"):
                reader.follow(page)


def test_a_command_that_fails_is_noticed(tmp_path: Path) -> None:
    with Reader(tmp_path, tmp_path, {}) as reader, pytest.raises(AssertionError, match="false: 1"):
        reader.follow("```sh\nfalse\n```\n")
