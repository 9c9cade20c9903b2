"""Titles of processes say what each does, where setproctitle is installed; without it nothing happens."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
import redis

from fusion import Queue
from fusion.kernel import titles
from tests.kit.length import long_case
from tests.kit.process import ProcessUnderTest

#: What stands for the package: it writes titles down.
STAND_IN = "import os\ndef setproctitle(text):\n    with open(os.environ['TITLES'], 'a') as file: file.write(text + '\\n')\n"


@pytest.mark.parametrize("flags", [(), long_case(("--horses", "1"))])
def test_workers_fork_servers_and_jobs_have_titles(
    conn: redis.Redis, redis_url: str, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    (tmp_path / "setproctitle.py").write_text(STAND_IN)
    seen = tmp_path / "titles"
    seen.touch()
    Queue("sms", conn).enqueue("tests.jobs.basic.noop", job_id="j1")
    program = ("run_worker.py", "worker", "sms", "email", "-n", "web1", "--burst", *flags)
    worker = ProcessUnderTest(redis_url, tmp_path / "log", *program, env={"PYTHONPATH": str(tmp_path), "TITLES": str(seen)})
    assert worker.process.wait(30) == 0, worker.output
    found = seen.read_text().splitlines()
    assert found[0] == "fusion: worker web1 of sms,email"
    assert f"fusion: forks processes for the worker {worker.pid}" in found
    assert "fusion: runs tests.jobs.basic.noop j1" in found
    assert ("fusion: waits for a job" in found) == bool(flags)


def test_what_a_stranger_wrote_is_bounded_and_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    package = ModuleType("setproctitle")
    package.setproctitle = seen.append  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "setproctitle", package)
    monkeypatch.setattr(titles, "_set", None)
    titles.show("runs", b"\x1b[2J\xff\xfe", "\u202e" + "x" * 1_000_000)
    assert seen[0].startswith("fusion: runs ?[2J?? ?xxx")
    assert len(seen[0]) < 250


def test_without_the_package_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "setproctitle", None)
    monkeypatch.setattr(titles, "_set", None)
    titles.show("worker")
    assert titles._set is None
