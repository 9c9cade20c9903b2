"""docs/testing.md does what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.installed import install
from tests.kit.process import ROOT
from tools.readme import blocks

PAGE = (ROOT / "docs" / "testing.md").read_text()
FILES = {code.partition("\n")[0].removeprefix("# "): code for code in blocks(PAGE, "python")}


def run_pytest(python: Path | str, where: Path, *words: str, plugins: tuple[str, ...] = ()) -> str:
    """A run of its own over these files; what it printed. AssertionError if it failed."""
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:valkey", *plugins, *words]
    ran = subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def write(where: Path) -> None:
    for name, code in FILES.items():
        (where / name).write_text(code)


def test_every_block_is_a_file_with_tests() -> None:
    assert len(FILES) >= 5
    assert all(re.fullmatch(r"test_\w+\.py", name) for name in FILES)


@pytest.mark.timeout(300)
def test_every_test_of_the_page_passes(tmp_path: Path) -> None:
    write(tmp_path)
    assert "5 passed" in run_pytest(sys.executable, tmp_path)


def test_the_test_of_an_otp_has_twenty_lines_of_code() -> None:
    body = FILES["test_otp.py"].partition("def test_an_otp")[2]
    assert len([line for line in body.splitlines() if line.strip()]) <= 20


@pytest.mark.timeout(300)
def test_a_failed_assert_lists_what_was_enqueued(tmp_path: Path) -> None:
    (text,) = [block for block in blocks(PAGE, "text") if "AssertionError" in block]
    code = FILES["test_first.py"].replace("args=[7]", "args=[8]").replace(', kwargs={"lang": "de"}, queue="mail"', "")
    (tmp_path / "test_first.py").write_text(code)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:valkey", str(tmp_path)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    for line in text.splitlines():
        assert line.strip() in ran.stdout


@pytest.mark.long
@pytest.mark.gate
@pytest.mark.timeout(300)
def test_the_page_with_the_wheel_and_pytest_alone(clone: Path, tmp_path: Path) -> None:
    """An environment that has the wheel, its extra `embedded` and pytest."""
    python = install(clone, tmp_path / "installed", "embedded", also=("pytest",)) / "python"
    write(tmp_path)
    assert "5 passed" in run_pytest(python, tmp_path, "--rootdir", str(tmp_path), *sorted(FILES))
