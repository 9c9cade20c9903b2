"""Jobs, a real relay and an Elasticsearch that is down, hangs, refuses and comes back: each event is stored once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import elasticsearch  # noqa: F401 - takes long, and a module that a test imports may be forgotten after it
import pytest
import redis

from fusion import Job, Queue, Retry
from fusion.store.read.event_inspector import EventInspector
from tests.kit.length import gate_case, soak_case
from tests.kit.process import ROOT
from tests.kit.promises import claim
from tests.kit.relays import Relays
from tests.kit.waiting import eventually
from tests.kit.workers import Workers
from tests.relay.harness import is_delivered, sink_of
from tests.sinks.contract import ContractServer

INDEX = "active-fusion-logs"
SINK = "elasticsearch"


@pytest.fixture
def server() -> Iterator[ContractServer]:
    found = ContractServer()
    yield found
    found.stop()
    assert found.violations == []


def _relay(relays: Relays, server: ContractServer, **env: str) -> None:
    relays.start(env={"FUSION_ELASTICSEARCH_URL": server.url, "FUSION_ELASTICSEARCH_TIMEOUT": "1", **env}, ready=False)


def _by_status(server: ContractServer) -> Counter[str]:
    return Counter(document["status"] for document in server.documents(INDEX).values())


def test_every_event_of_a_job_reaches_elasticsearch(
    relays: Relays, workers: Workers, server: ContractServer, conn: redis.Redis, inspector: EventInspector, tmp_path: Path
) -> None:
    """The events: queued, processing, retry, processing, completed; and one that fails."""
    _relay(relays, server)
    again = Queue("sms", conn).enqueue(
        "tests.jobs.basic.flaky", str(tmp_path / "runs"), 1, retry=Retry(max=1, interval=0.01), log_tag="SMS_OTP"
    )
    bad = Queue("sms", conn).enqueue("tests.jobs.basic.boom", "it has 123456 in it", log_tag="SMS_OTP")
    workers.start("sms")
    assert [job.wait(20) for job in (again, bad)] == ["finished", "failed"]
    eventually(lambda: is_delivered(inspector, SINK), 20, why="all is delivered")
    lives: dict[str, list[dict[str, Any]]] = {again.id: [], bad.id: []}
    for document in sorted(server.documents(INDEX).values(), key=lambda found: found["log_time"]):
        lives[document["job_id"]].append(document)
    assert [d["status"] for d in lives[again.id]] == ["queued", "processing", "retry", "queued", "processing", "completed"]
    assert [d["status"] for d in lives[bad.id]] == ["queued", "processing", "failed"]
    wanted = {"job_id", "task", "task_type", "status", "host", "log_time", "message", "payload", "job_result", "type"}
    for document in (*lives[again.id], *lives[bad.id]):
        assert set(document) == wanted
        assert (document["task"], document["task_type"], document["type"]) == ("SMS", "OTP", "logs")
    last = lives[bad.id][-1]
    assert "ValueError" in last["job_result"] and "123456" not in str(lives[bad.id])


def _down(server: ContractServer) -> AbstractContextManager[None]:
    @contextmanager
    def outage() -> Iterator[None]:
        server.down()
        try:
            yield
        finally:
            server.up()

    return outage()


FAULTS = {
    "down": _down,
    "hung": lambda server: server.broken(hang=True),
    "429": lambda server: server.broken(status=429, headers={"retry-after": "1"}),
    "503": lambda server: server.broken(status=503),
    "reset after it was done": lambda server: server.broken(reset=True, lost=True),
}


@claim("P12")
@pytest.mark.long
@pytest.mark.parametrize("fault", [gate_case("down"), soak_case("hung"), soak_case("429"), "503", "reset after it was done"])
def test_an_outage_is_felt_by_no_job_and_made_up_for(
    relays: Relays, workers: Workers, server: ContractServer, conn: redis.Redis, inspector: EventInspector, fault: str
) -> None:
    """P12: all jobs finish meanwhile, `events stats` tells how it stands, and afterwards every event is there once."""
    _relay(relays, server)
    Queue("q", conn).enqueue("tests.jobs.basic.noop")
    workers.burst("q")
    eventually(lambda: is_delivered(inspector, SINK), 20, why="the sink works")
    with FAULTS[fault](server):
        jobs = Queue("q", conn).enqueue_many([Queue.prepare_data("tests.jobs.basic.noop") for _ in range(150)])
        workers.burst("q", "--no-relay")
        assert {str(job.get_status()) for job in Job.fetch_many([job.id for job in jobs]) if job} == {"finished"}
        eventually(lambda: (found := sink_of(inspector, SINK)) is not None and found.failures > 0, 20, why="it is seen to fail")
        said = subprocess.run(
            [sys.executable, "run_worker.py", "events", "stats"], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout
        assert SINK in said and "failing" in said
    eventually(lambda: is_delivered(inspector, SINK), 40, why="all is made up for")
    assert _by_status(server) == {"queued": 151, "processing": 151, "completed": 151}


@pytest.mark.long
def test_a_document_that_is_refused_is_parked_and_the_others_go_on(
    relays: Relays, workers: Workers, server: ContractServer, conn: redis.Redis, inspector: EventInspector
) -> None:
    """One document that the index refuses is parked, and holds up no other."""
    poison = Queue("q", conn).enqueue("tests.jobs.basic.noop")
    others = Queue("q", conn).enqueue_many([Queue.prepare_data("tests.jobs.basic.noop") for _ in range(20)])
    refusal = (400, "document_parsing_exception", "failed to parse")
    server.cluster.refuse = lambda doc_id, document: refusal if document.get("job_id") == poison.id else None
    _relay(relays, server)
    workers.burst("q", "--no-relay")
    eventually(lambda: is_delivered(inspector, SINK), 20, why="all but it is delivered")
    found = sink_of(inspector, SINK)
    assert found is not None and found.parked == 3
    assert {document["job_id"] for document in server.documents(INDEX).values()} == {job.id for job in others}
    server.cluster.refuse = lambda doc_id, document: None
    env = {**os.environ, "FUSION_ELASTICSEARCH_URL": server.url}
    said = subprocess.run(
        [sys.executable, "run_worker.py", "events", "replay"], cwd=ROOT, env=env, capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr
    assert _by_status(server) == {"queued": 21, "processing": 21, "completed": 21}
