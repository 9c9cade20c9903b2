"""Spans where a process is shared: jobs of one call, and a task module that has a provider of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from fusion import Queue, Retry
from tests.jobs import gathering
from tests.kit.length import gate_case, long_case
from tests.kit.waiting import unhurried
from tests.kit.workers import Workers
from tests.telemetry.collector import Collector
from tests.telemetry.test_sentry import items, sentry_env
from tests.telemetry.test_tracing import application as application
from tests.telemetry.test_tracing import env_of, runs

#: With whether the task module starts a thread. The first job that needs such a module imports it, after the middleware was set up; jobs do
#: not share a process with it.
OWN = [
    ("process", False),
    gate_case("process", True),
    gate_case("asyncio", False),
    *(long_case(*case) for case in (("pool", False), ("pool", True), ("thread", False))),
]
THREAD = {"OWN_THREAD": "1"}


@pytest.mark.usefixtures("application")
def test_jobs_of_one_call_have_a_span_each(workers: Workers, conn: redis.Redis, collector: Collector) -> None:
    queue = Queue("g", conn)
    jobs = [queue.enqueue_call(gathering.send, (value,), retry=Retry(max=0)) for value in (1, "no", 3)]
    workers.burst("g", env=env_of("process", collector, FUSION_TASKS="tests.jobs.gathering"), timeout=unhurried(60))
    assert jobs[0].result[1] == 3, "they shared a call"
    found = {span.attributes["messaging.message.id"]: span for span in runs(collector)}
    assert set(found) == {job.id for job in jobs} and len(runs(collector)) == 3
    assert len({span.trace for span in found.values()}) == 3 and all(span.parent for span in found.values())
    assert [found[job.id].attributes.get("error.type") for job in jobs] == [None, "ValueError", None]


@pytest.mark.parametrize(("executor", "late"), OWN)
@pytest.mark.usefixtures("application")
def test_spans_of_a_provider_of_ones_own_are_children_of_the_run_and_go_their_own_way(
    executor: str, late: bool, workers: Workers, conn: redis.Redis, collector: Collector, tmp_path: Path
) -> None:
    task, file = "tests.jobs.own_provider", tmp_path / "spans"
    Queue("q", conn).enqueue(f"{task}.looks_up")
    env = env_of(executor, collector, FUSION_TASKS=task, OWN_SPANS=str(file), **(THREAD if late else {}))
    workers.burst("q", "--executor", executor, env=env, timeout=unhurried(60))
    found = collector.spans()
    assert [(span.name, span.kind) for span in found] == [("process q", 5)], found
    (run,) = found
    assert file.read_text() == f"lookup {run.trace} {run.id}\n"


@pytest.mark.parametrize(("executor", "late"), OWN)
def test_a_client_of_ones_own_sends_the_error_before_its_process_ends(
    executor: str, late: bool, workers: Workers, conn: redis.Redis, collector: Collector
) -> None:
    task, own = "tests.jobs.own_client", Collector()
    own.after = 0.7  # its exit handler sends it, while the worker ends
    Queue("q", conn).enqueue(f"{task}.fails", retry=Retry(max=0))
    dsn = own.url.replace("http://", "http://key@") + "/1"
    env = sentry_env(executor, collector, FUSION_TASKS=task, OWN_DSN=dsn, **(THREAD if late else {}))
    worker = workers.burst("q", "--executor", executor, env=env, timeout=unhurried(60))
    own.close()
    assert [event["transaction"] for event in items(own, "event")] == [f"{task}.fails"], worker.output
    (event,) = items(own, "event")
    assert event["tags"]["fusion.queue"] == "q"
    assert collector.bodies == []
