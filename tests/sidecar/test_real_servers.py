"""An EmbeddedWorker under servers as people run them: one worker at any time, whatever they fork, reload and end. Skipped without them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
import redis

from fusion import Queue
from tests.kit.servers import free_port
from tests.kit.witnesses import status_of
from tests.sidecar.harness import Site, Sites
from tests.sidecar.test_server import check_end

pytestmark = pytest.mark.long


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """The part of the site that changes."""
    path = tmp_path / "code_of_the_site.py"
    path.write_text("VERSION = b'1'\n")
    return path


def one_worker(site: Site, conn: redis.Redis, starts: int) -> tuple[int, int]:
    """Wait until there have been this many workers and one is left. Returns who keeps it, and that worker; it runs jobs."""
    site.until(lambda: len(site.started()) >= starts and len(site.workers()) == 1, 40, f"one worker after {starts} starts")
    job = Queue("s", conn).enqueue("tests.jobs.basic.noop")
    site.until(lambda: status_of(conn, job.id) == "finished", 40, "a job has run")
    site.note()
    (worker,) = site.workers()
    return {worker: web for web, worker in site.started()}[worker], worker


def change(code: Path) -> None:
    """Save another version, by a time that differs however coarse the clock of the file system is."""
    code.write_text("VERSION = b'2'\n")
    os.utime(code, (code.stat().st_atime, code.stat().st_mtime + 5))


def saved_until(site: Site, code: Path, serves: Callable[[], object]) -> None:
    """Save another version, and again after some seconds: Django's reloader misses what is saved between the import of a module and its next look."""
    for left in reversed(range(4)):
        change(code)
        try:
            # In between the process that waits for changes may have the worker, till the new one asks.
            site.until(serves, 10, "the new process keeps a worker")
            return
        except AssertionError:
            if not left:
                raise


@pytest.fixture
def gunicorn(sites: Sites, code: Path) -> Callable[..., Site]:
    if find_spec("gunicorn") is None:
        pytest.skip("no gunicorn: pip install gunicorn")

    def start(*options: str) -> Site:
        address = f"127.0.0.1:{free_port()}"
        command = (
            "-m",
            "gunicorn",
            "-w",
            "4",
            "-b",
            address,
            "--log-level",
            "warning",
            *options,
            "tests.sidecar.wsgi:application",
        )
        return sites.run(*command, env={"PYTHONPATH": f".{os.pathsep}{code.parent}"})

    return start


@pytest.mark.parametrize("options", [(), ("--preload",)], ids=["each", "preload"])
def test_gunicorn_with_four_processes(gunicorn: Callable[..., Site], conn: redis.Redis, options: tuple[str, ...]) -> None:
    site = gunicorn(*options)
    web, _ = one_worker(site, conn, 1)
    assert (web == site.pid) is bool(options)
    site.signal(signal.SIGHUP)  # all web processes anew; with --preload the master, and with it the worker, stays
    one_worker(site, conn, 1 if options else 2)
    os.kill(one_worker(site, conn, 1)[1], signal.SIGKILL)
    one_worker(site, conn, 2 if options else 3)
    check_end(site)


def test_gunicorn_that_reloads(gunicorn: Callable[..., Site], conn: redis.Redis, code: Path) -> None:
    site = gunicorn("--reload")
    _, before = one_worker(site, conn, 1)
    change(code)
    _, after = one_worker(site, conn, 2)
    assert before != after, "its code is the new one, too"
    check_end(site)


@pytest.mark.parametrize("started_in", ["ready", "wsgi"])
def test_django_runserver_with_its_two_processes(sites: Sites, conn: redis.Redis, code: Path, started_in: str) -> None:
    if find_spec("django") is None:
        pytest.skip("no Django: pip install django")
    env = {"PYTHONPATH": f".{os.pathsep}{code.parent}", "STARTED_IN": started_in}
    site = sites.run("tests/sidecar/django_site.py", "runserver", f"127.0.0.1:{free_port()}", env=env)
    site.says("serves", 2 if started_in == "ready" else 1, timeout=40)
    site.until(lambda: site.workers() and site.started()[-1][0] != site.pid, 40, "the process that serves keeps the worker")
    starts = len(site.started())
    _, before = one_worker(site, conn, starts)
    saved_until(site, code, lambda: len(site.started()) > starts and site.started()[-1][0] != site.pid)
    _, after = one_worker(site, conn, starts + 1)
    assert before != after
    site.note()
    os.killpg(site.pid, signal.SIGINT)
    site.wait()
    site.nothing_left()


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_hups_in_quick_succession_leave_two_workers_at_most_and_one_soon(
    gunicorn: Callable[..., Site], conn: redis.Redis, busy: bool
) -> None:
    """One that ends and one that takes jobs: however many HUPs there were, the others are not started."""
    site = gunicorn("--graceful-timeout", "1")
    one_worker(site, conn, 1)
    most, queue = 0, Queue("s", conn)
    for _ in range(5):
        if busy:
            queue.enqueue("tests.jobs.basic.sleep", 8)
        until = time.monotonic() + 0.2
        site.signal(signal.SIGHUP)
        while time.monotonic() < until:
            most = max(most, len(site.workers()))
    job, began = queue.enqueue("tests.jobs.basic.noop", at_front=True), time.monotonic()
    while status_of(conn, job.id) != "finished":
        most = max(most, len(site.workers()))
        assert time.monotonic() < began + 40, site.output
    took = time.monotonic() - began
    print(f"{most} at once, a job after {took:.1f} s")
    assert most <= 2, site.output
    assert took < 20, site.output
    one_worker(site, conn, 2)
