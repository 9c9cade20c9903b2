"""What a task finds of Fusion's secrets, and who can look into the processes that have them."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from fusion import Queue
from tests.kit import guarded
from tests.kit.length import long_case
from tests.kit.process import ROOT
from tests.kit.waiting import eventually
from tests.kit.witnesses import field, status_of
from tests.kit.workers import Workers

MODES = pytest.mark.parametrize(
    "mode", [pytest.param(("--slots", "1"), id="process per job"), long_case(("--horses", "1"), id="warm")]
)
SECRETS = {
    "FUSION_CALLBACK_SECRETS": "whsec_" + "A" * 44,
    "FUSION_ELASTICSEARCH_PASSWORD": "hunter2",
}
ENV = {**SECRETS, "FUSION_TASKS": "tests.jobs.environment,tests.jobs.basic"}
NOBODY = 65534


def asked(conn: redis.Redis, task: str) -> Any:
    job = Queue("e", conn).enqueue(f"tests.jobs.environment.{task}")
    eventually(lambda: status_of(conn, job.id) in ("finished", "failed"))
    assert status_of(conn, job.id) == "finished", field(conn, job.id, "exc_info")
    return json.loads(field(conn, job.id, "result"))


@MODES
def test_a_task_finds_what_it_takes_to_enqueue(mode: tuple[str, ...], workers: Workers, conn: redis.Redis) -> None:
    worker = workers.start("e", *mode, env=ENV)
    assert asked(conn, "secrets") == {"FUSION_REDIS_URL": workers.redis_url}
    assert asked(conn, "enqueues") == "inner"
    eventually(lambda: status_of(conn, "inner") == "finished")
    assert worker.process.poll() is None


@pytest.mark.long
@MODES
def test_or_all_of_it_where_that_is_asked_for(mode: tuple[str, ...], workers: Workers, conn: redis.Redis) -> None:
    workers.start("e", *mode, env={**ENV, "FUSION_TASK_SECRETS": "all"})
    assert asked(conn, "secrets") == {**SECRETS, "FUSION_REDIS_URL": workers.redis_url}


@MODES
def test_or_none(mode: tuple[str, ...], workers: Workers, conn: redis.Redis) -> None:
    url = f"{workers.redis_url}{'&' if '?' in workers.redis_url else '?'}password="
    workers.start("e", *mode, env={**ENV, "FUSION_TASK_SECRETS": "none"}, url=url)
    assert asked(conn, "secrets") == {"FUSION_REDIS_URL": guarded.as_nobody(workers.redis_url)}


@pytest.fixture
def core() -> Iterator[int]:
    """A soft limit of core dumps that is not 0."""
    before = resource.getrlimit(resource.RLIMIT_CORE)
    if 0 <= before[1] < 4096:
        pytest.skip("this machine allows no core dumps")
    resource.setrlimit(resource.RLIMIT_CORE, (4096, before[1]))
    yield 4096
    resource.setrlimit(resource.RLIMIT_CORE, before)


@MODES
def test_the_worker_dumps_no_core_and_its_tasks_do_as_before(
    mode: tuple[str, ...], workers: Workers, conn: redis.Redis, core: int
) -> None:
    worker = workers.start("e", *mode, env={**ENV, "FUSION_DEBUGGABLE": "0"})
    assert asked(conn, "core_limit") == core
    (limit,) = re.findall(r"Max core file size\s+(\S+)", Path(f"/proc/{worker.pid}/limits").read_text())
    assert limit == "0"


@pytest.mark.long
def test_one_that_is_to_be_looked_into_may_dump_core(workers: Workers, conn: redis.Redis, core: int) -> None:
    worker = workers.start("e", env={**ENV, "FUSION_DEBUGGABLE": "1"})
    (limit,) = re.findall(r"Max core file size\s+(\S+)", Path(f"/proc/{worker.pid}/limits").read_text())
    assert limit == str(core)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_only_root_looks_into_such_a_process_and_it_still_sees_itself() -> None:
    """As a user that is not root, from a process it has started: what a task is to a worker."""
    program = f"""
import ctypes, os, resource, subprocess, sys
from fusion.kernel.linux import Children, close_to_others, rss
if os.getuid() == 0:
    os.setgid({NOBODY})
    os.setuid({NOBODY})
    ctypes.CDLL(None).prctl(4, 1)  # changing the user has closed it already
if sys.argv[1] == "closed":
    close_to_others()
    assert resource.getrlimit(resource.RLIMIT_CORE)[0] == 0
look = "cat /proc/$PPID/environ /proc/$PPID/maps >/dev/null 2>&1 && echo readable || echo closed; tr '\\\\0' ' ' < /proc/$$/environ"
subprocess.run(["/bin/sh", "-c", look], env={{"A": "1"}}, check=True)
assert rss(os.getpid()) > 0
child = subprocess.Popen(["sleep", "30"])
assert child.pid in Children().pids()
assert open(f"/proc/{{child.pid}}/smaps_rollup").read()
child.kill()
"""

    def run(how: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", program, how],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=20,
            env={**os.environ},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    # What it starts is as open as ever: so are the processes of tasks, whose memory is watched.
    assert run("closed")[:2] == ["closed", "A=1"]
    assert run("open")[0] == "readable"
