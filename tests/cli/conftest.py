"""The command line as a person meets it: in this process by click's runner, or as a real process."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner, Result

from fusion.cli.main import cli
from fusion.store.layout.records import Claimed, Commit, TurnRequest
from fusion.store.read.search_inspector import SearchInspector
from fusion.store.write.broker import Broker

ROOT = Path(__file__).resolve().parents[2]
Invoke = Callable[..., Result]


@pytest.fixture(autouse=True)
def patient_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """For searches of this process no time passes: they end a page after 100 ms, which a busy machine needs for two jobs."""
    monkeypatch.setattr(SearchInspector, "clock", staticmethod(lambda: 0.0))


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch) -> Iterator[Invoke]:
    """`invoke("info", "--json", code=0)`: the result, whose exit code was checked, unless `code` is None."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    logger = logging.getLogger("fusion")
    handlers, level = list(logger.handlers), logger.level

    def run(*args: str, code: int | None = 0) -> Result:
        result = CliRunner().invoke(cli, list(args), prog_name="run_worker.py")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert code is None or result.exit_code == code, result.output
        return result

    yield run
    logger.handlers, logger.level = handlers, level


def run_worker(*args: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """The real entry in a process of its own."""
    command = [sys.executable, str(ROOT / "run_worker.py"), *args]
    return subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, timeout=30, check=False
    )


@dataclass
class FakeHands:
    """A registered worker whose every move the test makes. Real scripts on a real Redis; only the horse is missing."""

    broker: Broker
    name: str
    queues: tuple[str, ...]
    token: int = 0

    def register(self, lease: float = 30.0) -> FakeHands:
        fields = {"queues": ",".join(self.queues), "pid": 4711, "hostname": "web1"}
        assert self.broker.register(self.name, "incarnation", lease, 420, fields)
        return self

    def turn(self, *commits: Commit, slots: int = 0) -> list[Claimed]:
        self.token += 1
        exact = [queue for queue in self.queues if "*" not in queue]
        return self.broker.turn(TurnRequest(self.name, "incarnation", self.token, commits, exact, [0] * slots, 30.0, 420)).jobs

    def end(self, kind: str, jobs: list[Claimed], elapsed: float = 0.0) -> None:
        self.turn(*(Commit(kind, job.id, job.execution_id, elapsed, reason="ValueError: boom") for job in jobs))


Hands = Callable[..., FakeHands]
Fail = Callable[..., list[str]]


@pytest.fixture
def hands(conn: redis.Redis) -> Hands:
    """`hands("sms", "email", name="web1.1")`: a worker of these queues, not registered yet."""
    return lambda *queues, name="web1.4711": FakeHands(Broker(conn), name, queues)


@pytest.fixture
def fail(hands: Hands, conn: redis.Redis) -> Fail:
    """`fail("sms", 3)`: ids of jobs that came from `sms` and have failed."""
    from fusion import Queue

    def make(queue: str, count: int, **options: object) -> list[str]:
        # Ids in order: what fails in the same millisecond comes back in the order of ids.
        ids = [f"{queue}-{n:03}" for n in range(count)]
        for job_id in ids:
            Queue(queue, conn).enqueue("tasks.sms.sendSMS", job_id=job_id, **options)
        worker = hands(queue, name=f"failing.{queue}").register()
        worker.end("failed", worker.turn(slots=count))
        worker.broker.deregister(worker.name, "incarnation")
        return ids

    return make
