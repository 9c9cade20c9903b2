"""Hooks at fork and exit: a horse goes without some of the standard library's, what its task forks finds them all."""

from __future__ import annotations

import zipfile
from ast import literal_eval
from collections.abc import Iterator
from pathlib import Path

import certifi
import pytest

from tests.forkserver.driver import Driver

HOOKS = "tests.jobs.hooks."
PLAIN = "tests.jobs.hooks_plain."


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    with Driver(modules=("tests.jobs.hooks",)) as made:
        yield made


@pytest.fixture(scope="module")
def plain() -> Iterator[Driver]:
    with Driver(modules=("tests.jobs.hooks_plain",)) as made:
        yield made


def test_a_horse_starts_with_fresh_threads_and_ids(driver: Driver) -> None:
    first, second = driver.run(HOOKS + "born").result, driver.run(HOOKS + "born").result
    for born in (first, second):
        assert born["native_id"] and born["main"] and born["hook's thread"]
        assert born["threads"] == 2, "the main thread, and the one that the module's hook started"
        assert born["renewed"] == 0, "the hook of logging was left out"
        kinds = [line.split(" 0.")[0] for line in born["seen"]]
        assert kinds == ["before 2", "before 1", "child 1", "child 2"], "those of the module run, in their order"
    assert not set(first["numbers"]) & set(second["numbers"])
    drawn_in_hooks = [line for born in (first, second) for line in born["seen"] if line.startswith("child 1")]
    assert len(set(drawn_in_hooks)) == 2


def test_a_process_forked_by_a_task_runs_every_hook(driver: Driver) -> None:
    found = driver.run(HOOKS + "fork_amid_threads").result
    renewed, main, hooks_thread, others_thread, reseeded, seen = literal_eval(found["child"])
    assert renewed == 1 and main and reseeded
    assert hooks_thread and not others_thread, "a thread that a later hook starts counts, one of before the fork does not"
    assert seen == ["before 2", "before 1", "child 1", "child 2"]
    assert found["parent"] == ["before 2", "before 1", "parent 1"]


def test_the_hooks_run_if_the_fork_server_has_another_thread() -> None:
    wild = "tests.jobs.hooks_wild"
    with Driver(modules=("tests.jobs.hooks", wild), before_fork=f"{wild}.before_fork") as driver:
        mine, renewed, threads = driver.run(f"{wild}.is_mine").result
    assert mine, "what a module puts in place of os.register_at_fork stays there"
    assert renewed == 1
    assert threads == 2, "the main thread, and the one of a hook"


def test_handlers_at_exit_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_HOOKS_PATH", str(tmp_path / "said"))
    with Driver(modules=("tests.jobs.hooks",)) as driver:
        assert driver.run(HOOKS + "finalize").exited.status == 0
    assert (tmp_path / "said").read_text().split() == ["weakref", "atexit", "multiprocessing"]


@pytest.mark.parametrize("how", ["swap", "replace_stream", "replace_flush", "log_to_memory"])
def test_handlers_of_logs_are_closed_if_they_may_hold_something(plain: Driver, tmp_path: Path, how: str) -> None:
    assert plain.run(PLAIN + how, str(tmp_path / "file")).exited.status == 0
    assert (tmp_path / "file").read_text().strip() == "closed"


def test_plain_handlers_are_not_closed(plain: Driver) -> None:
    assert plain.run(PLAIN + "hold_a_lock").exited.status == 0


def test_closing_handlers_can_be_unregistered(plain: Driver, tmp_path: Path) -> None:
    assert plain.run(PLAIN + "unregister", str(tmp_path / "file")).exited.status == 0
    assert not (tmp_path / "file").exists()


def test_a_bundle_from_an_archive_stays_until_the_fork_server_ends(tmp_path: Path) -> None:
    package = Path(certifi.__file__).parent
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        for name in ("__init__.py", "core.py", "cacert.pem"):
            archive.write(package / name, f"certifi/{name}")
    (tmp_path / "bundled.py").write_text(
        f"import os, sys\nsys.path.insert(0, {str(tmp_path / 'archive.zip')!r})\nimport certifi\nWHERE = certifi.where()\n"
        "def look():\n    return [WHERE, os.path.getsize(WHERE), 'archive' in certifi.__file__]\n"
    )
    with Driver(tasks=("bundled",), modules=("bundled",), path=str(tmp_path)) as driver:
        seen = [driver.run("bundled.look").result for _ in range(3)]
        assert seen[0] == seen[1] == seen[2]
        path, size, archived = seen[0]
        assert archived and size > 1000
        assert Path(path).exists()
    assert not Path(path).exists()
