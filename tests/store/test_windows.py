"""Windows, where a web application may enqueue, and run an in-process manager: all else is for Linux and macOS."""

from __future__ import annotations

import subprocess
import sys

import pytest
import redis

from tests.kit.process import ROOT
from tests.kit.servers import LateAnswers
from tests.kit.witnesses import status_of

APPLICATION = """
import asyncio, threading
import fusion
from fusion import AsyncQueue, Queue, job
from fusion.exceptions import NoRedisError
from fusion.inprocess import JobQueueManager, ManagerSettings, MemoryPlan
from fusion.settings import Settings
from fusion.store.client import connections

for name in fusion.__all__:
    getattr(fusion, name)

@job("s", timeout=5)
def add(a, b): ...

print(Queue("s").enqueue("tests.jobs.basic.add", 2, 3).id)
print(Queue("s").enqueue_in("1h", "tests.jobs.basic.add", 2, 3).id)

async def in_a_loop():
    return (await AsyncQueue("s").enqueue("tests.jobs.basic.add", 2, 3)).id

print(asyncio.run(in_a_loop()))
print(Queue("s").get_job_ids())

connections._answers = lambda *about: False  # whatever runs on this machine
try:
    connections.resolve_redis(Settings())
except NoRedisError as error:
    print(str(error)[:22])

plan, done = MemoryPlan(), threading.Event()
plan.add("job", done.set)
with JobQueueManager(plan, 1, settings=ManagerSettings(master_grace_period_seconds=0)):
    print(done.wait(10))
"""


def test_an_application_enqueues_and_runs_an_in_process_manager(conn: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    tcp = LateAnswers(conn.connection_pool.connection_kwargs["path"], 0)
    monkeypatch.setenv("FUSION_REDIS_URL", tcp.url)
    command = [sys.executable, "-m", "tests.kit.without_posix", APPLICATION]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    tcp.close()
    assert (found.stderr, found.returncode) == ("", 0)
    now, later, of_a_loop, ids, refused, managed = found.stdout.splitlines()
    assert [status_of(conn, job_id) for job_id in (now, later, of_a_loop)] == ["queued", "scheduled", "queued"]
    assert (ids, refused, managed) == (str([now, of_a_loop]), "no Redis was named and", "True")
