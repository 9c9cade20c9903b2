"""A project whose files are called as modules of the standard library: Python's own modules import the latter, and its other files are there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from fusion import Queue
from fusion.kernel.standard import command, standard_first
from tests.kit.length import long_case
from tests.kit.process import ROOT
from tests.kit.waiting import eventually, unhurried
from tests.kit.witnesses import field, status_of

NAMES = ("resource", "types", "select", "signal", "json", "queue", "token", "selectors", "calendar")
SHOP = """
import helper
from fusion import recurring

@recurring("30 2 * * *")
def found():
    import calendar, json, queue, resource, select, selectors, signal, token, types
    import helper
    modules = (calendar, json, queue, resource, select, selectors, signal, token, types, helper)
    return [getattr(module, "OURS", "theirs") for module in modules]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text("OURS = 'ours'\n")
    (folder / "helper.py").write_text("OURS = 'ours'\n")
    (folder / "shop.py").write_text(SHOP)
    shutil.copy(ROOT / "run_worker.py", folder / "copied.py")
    return folder


@pytest.mark.parametrize(
    ("program", "executor", "without"),
    [
        pytest.param((str(ROOT / "run_worker.py"),), "process", (), id="elsewhere"),
        long_case((str(ROOT / "run_worker.py"),), "asyncio", (), id="elsewhere asyncio"),
        long_case(("copied.py",), "process", (), id="beside"),
        # Python itself needs some of them before it comes to the package.
        long_case(("-m", "fusion"), "process", ("types",), id="package"),
    ],
)
def test_a_worker_starts_and_its_jobs_find_both(
    program: tuple[str, ...], executor: str, without: tuple[str, ...], project: Path, redis_url: str, conn: redis.Redis
) -> None:
    for name in without:
        (project / f"{name}.py").unlink()
    job = Queue("s", conn).enqueue("shop.found")
    done = subprocess.run(
        [sys.executable, *program, "worker", "s", "--burst", "--tasks", "shop", "--executor", executor],
        cwd=project,
        env={**os.environ, "FUSION_REDIS_URL": redis_url, "PYTHONPATH": "" if program[0].startswith("/") else str(ROOT)},
        capture_output=True,
        text=True,
        timeout=unhurried(40),
    )
    assert done.returncode == 0, done.stderr
    eventually(lambda: status_of(conn, job.id) == "finished", why=done.stderr)
    assert json.loads(field(conn, job.id, "result")) == ["theirs"] * 9 + ["ours"]


def test_what_modules_declare_is_collected_there(project: Path) -> None:
    out, theirs = os.pipe()
    wanted = {
        "parent": os.getpid(),
        "answer_to": theirs,
        "path": [str(project), *sys.path],
        "modules": [],
        "tasks": ["shop"],
        "setup": [],
    }
    done = subprocess.run(
        command("fusion.scheduler.collector"),
        cwd=project,
        input=json.dumps({**wanted, "settings": {"secret_keys": None}}),
        pass_fds=(theirs,),
        capture_output=True,
        text=True,
        timeout=unhurried(30),
    )
    os.close(theirs)
    with os.fdopen(out) as answer:
        found = json.loads(answer.readline() or "{}")
    assert done.returncode == 0, done.stderr
    assert len(found["entries"]) == 1 and "shop.found" in found["entries"][0]["spec"], found


def test_the_order_of_the_others_stays() -> None:
    home = os.path.dirname(os.__file__)
    given = ["", "/a", home, "/b", os.path.join(home, "lib-dynload"), os.path.join(home, "site-packages"), "/c"]
    assert standard_first(given) == [
        home,
        os.path.join(home, "lib-dynload"),
        "",
        "/a",
        "/b",
        os.path.join(home, "site-packages"),
        "/c",
    ]
