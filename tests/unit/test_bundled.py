"""Two modules called `tasks` in sys.path: a user's, and the package of a checkout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.process import ROOT

_LOOK = """
import sys
from fusion.kernel import bundled
sys.path += sys.argv[1:]
print(bundled.settle() is not None)
import tasks
print(tasks.__file__ or list(tasks.__path__)[0])
for name in "tasks.payload", "tasks.own", "tasks.nowhere", "tasks.needy":
    try:
        print(bundled.load(name).__name__)
    except ImportError as error:
        print(error)
"""
BUNDLED = str(ROOT / "tasks" / "__init__.py")
NEITHER = ["No module named 'tasks.own'", "No module named 'tasks.nowhere'", "No module named 'tasks.needy'"]


def look(*paths: Path) -> list[str]:
    command = [sys.executable, "-c", _LOOK, *map(str, paths)]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()


def write(directory: Path, *names: str) -> Path:
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text("import nothing_of_that_name\n" if name.endswith("needy.py") else "")
    return directory


def checkout(directory: Path) -> Path:
    return write(directory, "run_worker.py", "fusion/__init__.py", "tasks/__init__.py")


def test_alone_the_bundled_package_is_as_ever(tmp_path: Path) -> None:
    assert look(tmp_path) == ["False", BUNDLED, "tasks.payload", *NEITHER]


@pytest.mark.parametrize("file", ["tasks.py", "tasks/__init__.py"])
def test_a_users_module_at_the_end_of_the_path_wins(tmp_path: Path, file: str) -> None:
    user = write(tmp_path, file)
    # What it has not is the bundled package's, if that has it; the message names what was asked for.
    expected = [error if file != "tasks.py" else f"{error}; 'tasks' is not a package" for error in NEITHER]
    assert look(user) == ["True", str(user / file), "fusion_bundled_tasks.payload", *expected]


def test_its_own_submodules_win_too_and_their_errors_are_told(tmp_path: Path) -> None:
    user = write(tmp_path, "tasks/payload.py", "tasks/own.py", "tasks/needy.py")
    found = look(user)
    assert found[:4] == ["True", str(user / "tasks"), "tasks.payload", "tasks.own"]
    assert found[5] == "No module named 'nothing_of_that_name'"


def test_a_file_beside_the_package_wins(tmp_path: Path) -> None:
    user = write(checkout(tmp_path), "tasks.py")
    assert look(user)[:3] == ["True", str(user / "tasks.py"), "fusion_bundled_tasks.payload"]


def test_a_second_checkout_is_no_users_module(tmp_path: Path) -> None:
    assert look(checkout(tmp_path))[:2] == ["False", BUNDLED]
