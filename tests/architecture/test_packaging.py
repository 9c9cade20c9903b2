"""What is shipped, and that the lists that describe the project agree with it."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from email.parser import BytesParser
from pathlib import Path

import pytest

import fusion
from tests.architecture.source import ROOT, pyproject


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    target = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(target)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (path,) = target.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert tops == {"fusion", f"fusion_queue-{fusion.__version__}.dist-info"}


def test_the_wheel_holds_every_module_script_and_the_type_marker(wheel: zipfile.ZipFile) -> None:
    source = {str(path.relative_to(ROOT)) for path in (ROOT / "fusion").rglob("*") if path.suffix in {".py", ".lua", ".typed"}}
    assert "fusion/py.typed" in source
    assert any(name.startswith("fusion/store/lua/") for name in source)
    assert source - set(wheel.namelist()) == set()


def test_the_metadata_of_the_wheel(wheel: zipfile.ZipFile) -> None:
    (name,) = [name for name in wheel.namelist() if name.endswith("/METADATA")]
    metadata = BytesParser().parsebytes(wheel.read(name))
    assert (metadata["Name"], metadata["Version"]) == ("fusion-queue", fusion.__version__)
    core = {re.split(r"[^a-z]", line)[0] for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line}
    assert core == {"redis", "click", "croniter"}


def test_the_extra_all_names_every_extra_of_users() -> None:
    extras = pyproject()["project"]["optional-dependencies"]
    (everything,) = extras["all"]
    # Titles take the place of command lines, which scripts look for: a user turns them on.
    assert set(re.findall(r"\w+", everything.split("[")[1])) == set(extras) - {
        "all",
        "dev",
        "browser",
        "bench",
        "docs",
        "release",
        "titles",
    }


def test_every_module_of_the_lowest_layer_is_held_lean() -> None:
    contracts = {contract["id"]: contract for contract in pyproject()["tool"]["importlinter"]["contracts"]}
    lowest = {f"fusion.{name}" for name in re.findall(r"\w+", contracts["layers"]["layers"][-1])}
    there = {name for name in lowest if (ROOT / f"{name.replace('.', '/')}.py").exists()}
    assert there
    assert there - set(contracts["lean-horse"]["source_modules"]) == set()


def test_make_help_explains_every_target() -> None:
    text = (ROOT / "Makefile").read_text()
    match = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    assert match
    targets = {target for target in match[1].split() if not target.startswith("venv-")}
    shown = subprocess.run(["make", "-s", "help"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert set(re.findall(r"make ([\w-]+)", shown)) == targets


@pytest.mark.parametrize(("lines", "verdict"), [(600, 0), (601, 1)])
def test_a_file_that_is_too_long_is_noticed(tmp_path: Path, lines: int, verdict: int) -> None:
    check = tmp_path / "tools" / "check_sizes.py"
    check.parent.mkdir()
    check.write_text((ROOT / "tools" / "check_sizes.py").read_text())
    (tmp_path / "fusion").mkdir()
    (tmp_path / "fusion" / "long.lua").write_text("--\n" * lines)
    found = subprocess.run([sys.executable, check], check=False, capture_output=True, text=True)
    assert found.returncode == verdict
    assert ("fusion/long.lua: 601 lines" in found.stdout) == bool(verdict)
