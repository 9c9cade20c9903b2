"""Spans of enqueues and runs: their tree, under all executors, at a real collector."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from fusion import Job, Queue, Retry
from fusion.contrib.opentelemetry import Tracing
from fusion.cron.scheduler import Scheduler
from fusion.middleware import register, unregister
from tests.jobs.traced import CODE, OTHER
from tests.kit.length import gate_case, long_case
from tests.kit.waiting import eventually, unhurried
from tests.kit.witnesses import status_of
from tests.kit.workers import EXECUTORS, WorkerProcess, Workers
from tests.telemetry.collector import Collector, Span

TASK, TRACING = "tests.jobs.traced", "fusion.contrib.opentelemetry.Tracing"
#: One in `make test`, one more in the gate, the others at night.
EACH = ["process", gate_case("asyncio"), *(long_case(name) for name in EXECUTORS if name not in ("process", "asyncio"))]
PRODUCER, CONSUMER = 4, 5
_exported = InMemorySpanExporter()


@pytest.fixture
def application() -> Iterator[InMemorySpanExporter]:
    """An application with a provider of its own, whose enqueues are traced. OpenTelemetry lets a process have one provider, once."""
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(_exported))
        trace.set_tracer_provider(provider)
    tracing = register(Tracing)
    yield _exported
    unregister(tracing)
    _exported.clear()


@pytest.fixture
def queue(conn: redis.Redis) -> Queue:
    return Queue("q", conn)


def put(queue: Queue, task: str, *args: Any, **more: Any) -> Job:
    return queue.enqueue(f"{TASK}.{task}", *args, **{"retry": Retry(max=0), **more})


def env_of(executor: str, collector: Collector, **env: str) -> dict[str, str]:
    places = {"thread": {"FUSION_THREADS": "4"}, "asyncio": {"FUSION_CONCURRENCY": "4"}}.get(executor, {"FUSION_SLOTS": "2"})
    traced = {"FUSION_MIDDLEWARE": TRACING, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_SERVICE_NAME": "shop"}
    return {"FUSION_TASKS": TASK, **places, **traced, **env}


def run(workers: Workers, executor: str, collector: Collector, **env: str) -> WorkerProcess:
    return workers.burst("q", "--executor", executor, env=env_of(executor, collector, **env), timeout=unhurried(60))


def sent(application: InMemorySpanExporter) -> tuple[str, str]:
    """Trace and id of the only span that the application sent."""
    (span,) = application.get_finished_spans()
    own = span.get_span_context()
    assert own is not None
    return f"{own.trace_id:032x}", f"{own.span_id:016x}"


def runs(collector: Collector) -> list[Span]:
    return [span for span in collector.spans() if span.kind == CONSUMER]


@pytest.mark.parametrize("executor", EACH)
@pytest.mark.parametrize("task", ["works", gate_case("works_async")])
def test_the_run_is_a_child_of_the_enqueue_and_the_tasks_own_spans_are_its_children(
    executor: str, task: str, workers: Workers, queue: Queue, collector: Collector, application: InMemorySpanExporter
) -> None:
    job = put(queue, task)
    run(workers, executor, collector)
    trace_id, parent = sent(application)
    by_name = {span.name: span for span in collector.spans()}
    assert set(by_name) == {"process q", "look up"}
    own, inner = by_name["process q"], by_name["look up"]
    assert (own.trace, own.parent, own.kind, own.scope) == (trace_id, parent, CONSUMER, "fusion")
    assert (inner.trace, inner.parent, inner.scope) == (trace_id, own.id, "shop")
    assert own.error == ""
    assert own.attributes == {
        "messaging.system": "fusion",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "q",
        "messaging.message.id": job.id,
        "code.function.name": f"{TASK}.{task}",
        "fusion.job.attempt": "1",
        "fusion.job.priority": "1",
        "shop.order": "A-7",
    }
    assert collector.services() == {"shop"}
    assert collector.paths[0] == "/v1/traces"


def test_the_span_of_an_enqueue(queue: Queue, application: InMemorySpanExporter) -> None:
    job = put(queue, "works")
    (span,) = application.get_finished_spans()
    assert (span.name, span.kind) == ("send q", trace.SpanKind.PRODUCER)
    assert dict(span.attributes or {}) == {
        "messaging.system": "fusion",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "q",
        "messaging.message.id": job.id,
    }
    context = span.get_span_context()
    assert context is not None
    assert job.meta == {"otel": {"traceparent": f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"}}


def test_an_application_without_a_provider_writes_nothing(queue: Queue) -> None:
    tracing = register(Tracing())
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(trace, "get_tracer", trace.NoOpTracerProvider().get_tracer)
            assert put(queue, "works").meta == {}
    finally:
        unregister(tracing)


def test_equal_jobs_stay_unique_whatever_trace_they_are_of(queue: Queue, application: InMemorySpanExporter) -> None:
    first = put(queue, "works", unique=True)
    assert put(queue, "works", unique=True).duplicate_of == first.id
    assert len(application.get_finished_spans()) == 2


@pytest.mark.parametrize("executor", EACH)
def test_retries_are_siblings(
    executor: str, workers: Workers, conn: redis.Redis, queue: Queue, collector: Collector, application: InMemorySpanExporter
) -> None:
    job = put(queue, "fails_twice", retry=Retry(max=2, interval=[0.01]))
    worker = workers.start("q", "--executor", executor, env=env_of(executor, collector))
    eventually(lambda: status_of(conn, job.id) == "finished", unhurried(20))
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    trace_id, parent = sent(application)
    found = sorted(runs(collector), key=lambda span: span.attributes["fusion.job.attempt"])
    assert [(span.trace, span.parent, span.attributes["fusion.job.attempt"]) for span in found] == [
        (trace_id, parent, attempt) for attempt in "123"
    ]
    assert len({span.id for span in found}) == 3
    assert [span.attributes.get("error.type") for span in found] == ["ConnectionError", "ConnectionError", None]
    assert [span.error for span in found] == [
        "ConnectionError: wrong code ******, attempt 0",
        "ConnectionError: wrong code ******, attempt 1",
        "",
    ]


@pytest.mark.parametrize("executor", EACH)
def test_what_a_task_enqueues_is_in_its_trace(
    executor: str, workers: Workers, queue: Queue, collector: Collector, application: InMemorySpanExporter
) -> None:
    put(queue, "enqueues", "q")
    run(workers, executor, collector)
    trace_id, _ = sent(application)
    assert {span.trace for span in collector.spans()} == {trace_id}
    (outer,) = [span for span in runs(collector) if span.attributes["code.function.name"].endswith("enqueues")]
    (inner,) = [span for span in runs(collector) if span.attributes["code.function.name"].endswith("works")]
    (between,) = [span for span in collector.spans() if span.kind == PRODUCER]
    assert (between.parent, inner.parent) == (outer.id, between.id)


@pytest.mark.parametrize("executor", EACH)
def test_a_run_whose_process_is_killed_has_its_span_and_keeps_the_ids_of_its_children(
    executor: str, workers: Workers, conn: redis.Redis, queue: Queue, collector: Collector, application: InMemorySpanExporter
) -> None:
    job = put(queue, "dies", on_lost="fail")
    run(workers, executor, collector)
    assert status_of(conn, job.id) == "failed"
    trace_id, parent = sent(application)
    first = runs(collector)[0]
    assert (first.trace, first.parent) == (trace_id, parent)
    assert first.attributes["error.type"] == "fusion.exceptions.WorkHorseTerminated"
    assert first.attributes["code.function.name"] == f"{TASK}.dies"
    assert "SIGKILL" in first.error
    inner = [span for span in collector.spans() if span.name == "before"]
    assert {(span.trace, span.parent) for span in inner} == {(trace_id, span.id) for span in runs(collector)}


@pytest.mark.parametrize("executor", EACH)
@pytest.mark.parametrize("task", ["hangs", gate_case("dies")])
def test_a_stopped_run(
    executor: str,
    task: str,
    workers: Workers,
    conn: redis.Redis,
    queue: Queue,
    collector: Collector,
    application: InMemorySpanExporter,
    tmp_path: Path,
) -> None:
    """`dies` sleeps where no thread can be stopped: its process is killed after the grace."""
    started = tmp_path / "started"
    job = put(queue, task, str(started))
    worker = workers.start("q", "--executor", executor, env=env_of(executor, collector, FUSION_TIMEOUT_GRACE="1"))
    eventually(started.exists, unhurried(20))
    job.stop()
    eventually(lambda: status_of(conn, job.id) == "stopped", unhurried(20))
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    (span,) = runs(collector)
    assert span.parent == sent(application)[1]
    assert span.attributes["error.type"] == "fusion.exceptions.JobStopped"


@pytest.mark.parametrize("executor", EACH)
def test_jobs_of_one_call_have_traces_of_their_own_with_a_link(
    executor: str, workers: Workers, queue: Queue, collector: Collector, application: InMemorySpanExporter
) -> None:
    jobs = queue.enqueue_many([Queue.prepare_data(f"{TASK}.works") for _ in range(3)])
    run(workers, executor, collector)
    (call,) = application.get_finished_spans()
    assert (call.attributes or {})["messaging.batch.message_count"] == 3
    found = runs(collector)
    assert {span.attributes["messaging.message.id"] for span in found} == {job.id for job in jobs}
    assert [(span.parent, span.links) for span in found] == [("", [sent(application)])] * 3
    assert len({span.trace for span in found} | {sent(application)[0]}) == 4


def test_a_job_of_a_cron_entry_begins_a_trace_and_its_retries_are_in_it(
    workers: Workers, conn: redis.Redis, collector: Collector, application: InMemorySpanExporter
) -> None:
    scheduler = Scheduler(conn)
    scheduler.cron("0 0 1 1 *", f"{TASK}.fails_twice", id="e", queue="q", retry=Retry(max=2, interval=[0.01]))
    with trace.get_tracer("shop").start_as_current_span("POST /run") as outer:
        job = scheduler.run("e")
    worker = workers.start("q", "--executor", "process", env=env_of("process", collector))
    eventually(lambda: status_of(conn, job.id) == "finished", unhurried(20))
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    found = runs(collector)
    assert [(span.parent, span.links) for span in found] == [("", [])] * 3
    (trace_id,) = {span.trace for span in found}
    assert trace_id != f"{outer.get_span_context().trace_id:032x}"


def test_links_by_option(workers: Workers, queue: Queue, collector: Collector, application: InMemorySpanExporter) -> None:
    put(queue, "works")
    run(workers, "process", collector, FUSION_MIDDLEWARE="fusion.contrib.opentelemetry.LinkedTracing")
    (span,) = runs(collector)
    assert (span.parent, span.links) == ("", [sent(application)])


@pytest.mark.parametrize("executor", EACH)
def test_no_code_that_a_task_logs_prints_raises_or_returns_is_in_a_span(
    executor: str, workers: Workers, conn: redis.Redis, queue: Queue, collector: Collector, application: InMemorySpanExporter
) -> None:
    jobs = [put(queue, "works"), put(queue, "works_async"), put(queue, "fails_twice"), put(queue, "dies", on_lost="fail")]
    run(workers, executor, collector)
    assert [status_of(conn, job.id) for job in jobs] == ["finished", "finished", "failed", "failed"]
    assert b"wrong code" in b"".join(collector.bodies), "what is masked was there"
    for span in collector.spans():  # ids are random, and may hold any digits
        text = str((span.name, span.attributes, span.events, span.error))
        assert CODE not in text and OTHER not in text
