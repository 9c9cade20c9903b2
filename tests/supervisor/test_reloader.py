"""`worker --reload`: edits are taken up when the running jobs are done, and no job is cut off."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import redis

from fusion import Job, Queue
from fusion.supervisor.sources import WatchedFiles
from tests.architecture.source import ROOT
from tests.kit.waiting import eventually
from tests.kit.witnesses import arguments_of

TASK = """
import pathlib, time
from shoptasks.helper import SAYS
def say(): return SAYS
def wait(folder):
    pathlib.Path(folder, "runs").touch()
    while not pathlib.Path(folder, "go").exists(): time.sleep(0.01)
    return SAYS
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    package = tmp_path / "shoptasks"
    package.mkdir()
    (package / "__init__.py").write_text(TASK)
    (package / "helper.py").write_text("SAYS = 'old'\n")
    return tmp_path


@pytest.fixture
def worker(shop: Path, redis_url: str, conn: redis.Redis) -> Iterator[subprocess.Popen[str]]:
    command = [
        sys.executable,
        str(ROOT / "run_worker.py"),
        "worker",
        "--reload",
        "--tasks",
        "shoptasks",
        "-P",
        str(shop),
    ]
    environment = {**os.environ, "FUSION_REDIS_URL": redis_url, "PYTHONDONTWRITEBYTECODE": "1"}
    with open(shop / "log", "w") as log:
        process = subprocess.Popen(
            command, env=environment, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, text=True
        )
    try:
        eventually(lambda: conn.smembers("rq:workers"), timeout=40)
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGQUIT)
            process.wait(40)


def said(job: Job) -> object:
    eventually(lambda: job.get_status() in ("finished", "failed"), timeout=40)
    return job.return_value()


def edit(shop: Path, text: str) -> None:
    """As an editor does it: the new file takes the old one's place."""
    (shop / "new").write_text(text)
    (shop / "new").replace(shop / "shoptasks" / "helper.py")


@pytest.mark.long
def test_an_edit_is_taken_up_when_the_running_job_is_done(shop: Path, worker: subprocess.Popen[str], conn: redis.Redis) -> None:
    queue = Queue("default", conn)
    running = queue.enqueue("shoptasks.wait", str(shop))
    eventually((shop / "runs").exists, timeout=40)
    edit(shop, "SAYS = 'newer'\n")
    eventually(lambda: "helper.py changed" in (shop / "log").read_text(), timeout=40)
    waiting = queue.enqueue("shoptasks.say")
    (old,) = [one for one in psutil.Process(worker.pid).children() if "worker" in arguments_of(one)]
    with pytest.raises(psutil.TimeoutExpired):
        old.wait(1)
    (shop / "go").touch()
    assert said(running) == "old", "it was not cut off"
    assert said(waiting) == "newer", "the old worker took no more"
    edit(shop, "SAYS = 'newest'\n")
    eventually(lambda: said(queue.enqueue("shoptasks.say")) == "newest", timeout=40)
    worker.terminate()
    assert worker.wait(40) == 0
    assert not conn.smembers("rq:workers")


@pytest.mark.long
def test_after_a_worker_that_failed_the_next_edit_starts_another(
    shop: Path, worker: subprocess.Popen[str], conn: redis.Redis
) -> None:
    (child,) = [one for one in psutil.Process(worker.pid).children() if "worker" in arguments_of(one)]
    child.kill()
    eventually(lambda: "the next change starts another" in (shop / "log").read_text(), timeout=40)
    edit(shop, "SAYS = 'mended'\n")
    assert said(Queue("default", conn).enqueue("shoptasks.say")) == "mended"


@pytest.mark.long
def test_its_worker_ends_when_it_dies(worker: subprocess.Popen[str], conn: redis.Redis) -> None:
    worker.kill()
    worker.wait()
    eventually(lambda: not conn.smembers("rq:workers"), timeout=40)


def test_files_are_those_of_the_tasks_packages(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(shop)
    (shop / "single.py").write_text("")
    for folder in (".hidden", "venv"):
        (shop / "shoptasks" / folder).mkdir()
        (shop / "shoptasks" / folder / "x.py").write_text("")
    sources = WatchedFiles(["shoptasks.jobs", "single", "none_such"], files=[str(shop / "log.py")])
    before = sources.look()
    names = {os.path.relpath(path, shop) for path in before}
    assert names == {"shoptasks/__init__.py", "shoptasks/helper.py", "single.py"}
    assert "shoptasks" not in sys.modules, "looking for files imports none of them"
    (shop / "log.py").write_text("new")
    os.utime(shop / "single.py", ns=(1, 1))
    (shop / "shoptasks" / "helper.py").unlink()
    changed = WatchedFiles.differences(before, sources.look())
    assert sorted(map(os.path.basename, changed)) == ["helper.py", "log.py", "single.py"]
    assert len(WatchedFiles(["*"], [str(shop)]).look()) == 3
