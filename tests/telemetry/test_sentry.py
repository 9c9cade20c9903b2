"""What Sentry learns of enqueues and runs, under all executors, at an ingest of the test's own."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import sentry_sdk

from fusion import Job, Queue, Retry
from fusion.contrib.sentry import Sentry
from fusion.contrib.sentry.facts import check_in, entry_of, fingerprint_of, masked_event
from fusion.contrib.sentry.reports import sample_rate
from fusion.contrib.sentry.sending import Sender
from fusion.cron.scheduler import Scheduler
from fusion.exceptions import ConfigurationError
from fusion.middleware import register, unregister
from fusion.worker.telemetry import DeadRun
from tests.jobs.traced import CODE, OTHER
from tests.kit.length import gate_case, long_case
from tests.kit.waiting import eventually, unhurried
from tests.kit.witnesses import status_of
from tests.kit.workers import EXECUTORS, WorkerProcess, Workers
from tests.telemetry.collector import Collector
from tests.telemetry.test_tracing import env_of

TASK = "tests.jobs.traced"
EACH = ["process", gate_case("asyncio"), *(long_case(name) for name in EXECUTORS if name not in ("process", "asyncio"))]


@pytest.fixture
def queue(conn: redis.Redis) -> Queue:
    return Queue("q", conn)


@pytest.fixture
def application() -> Iterator[list[dict[str, Any]]]:
    """An application with a client of its own, whose transactions are kept."""
    sent: list[dict[str, Any]] = []
    sentry_sdk.init(
        dsn="http://key@127.0.0.1:1/1",
        traces_sample_rate=1.0,
        before_send_transaction=lambda event, hint: sent.append(event),  # type: ignore[arg-type, func-returns-value]
        default_integrations=False,
        auto_enabling_integrations=False,
    )
    middleware = register(Sentry)
    yield sent
    unregister(middleware)
    sentry_sdk.get_client().close(timeout=0)
    sentry_sdk.get_global_scope().set_client(None)


def put(queue: Queue, task: str, *args: Any, **more: Any) -> Job:
    return queue.enqueue(f"{TASK}.{task}", *args, **{"retry": Retry(max=0), **more})


def run(workers: Workers, executor: str, collector: Collector, *args: str, **env: str) -> WorkerProcess:
    return workers.burst("q", "--executor", executor, *args, env=sentry_env(executor, collector, **env), timeout=unhurried(60))


def sentry_env(executor: str, collector: Collector, **env: str) -> dict[str, str]:
    dsn = collector.url.replace("http://", "http://key@") + "/1"
    named = {"FUSION_MIDDLEWARE": "fusion.contrib.sentry.Sentry", "SENTRY_DSN": dsn, "SENTRY_TRACES_SAMPLE_RATE": "1", **env}
    return env_of(executor, collector, **named)


def items(collector: Collector, kind: str) -> list[dict[str, Any]]:
    """The payloads of this kind, in the order in which they came."""
    found = []
    for raw, headers in zip(list(collector.bodies), list(collector.headers), strict=True):
        lines = (gzip.decompress(raw) if headers.get("Content-Encoding") == "gzip" else raw).split(b"\n")
        pairs = zip(lines[1::2], lines[2::2], strict=False)
        found += [json.loads(payload) for header, payload in pairs if json.loads(header)["type"] == kind]
    return found


@pytest.mark.parametrize("executor", EACH)
def test_a_job_that_fails_for_good_is_an_event_with_its_task_queue_attempt_and_masked_arguments(
    executor: str, workers: Workers, conn: redis.Redis, queue: Queue, collector: Collector
) -> None:
    job = put(queue, "fails", "+4915112345678", otp=CODE)
    good = put(queue, "works")
    run(workers, executor, collector)
    assert [status_of(conn, one.id) for one in (job, good)] == ["failed", "finished"]
    (event,) = items(collector, "event")
    assert event["tags"] == {"fusion.task": f"{TASK}.fails", "fusion.queue": "q", "fusion.attempt": "1"}
    known = event["contexts"]["fusion"]
    assert (known["job_id"], known["attempt"], known["queue"]) == (job.id, 1, "q")
    assert "*" in known["arguments"] and CODE not in known["arguments"] and "4915" not in known["arguments"]
    (error,) = event["exception"]["values"]
    assert (error["type"], error["value"]) == ("ConnectionError", "wrong code ******")
    assert error["stacktrace"]["frames"][-1]["function"] == "fails"
    group = conn.hget(f"rq:job:{job.id}", "failure_group")
    assert group and event["fingerprint"] == ["fusion", group.decode()]
    traced = {one["transaction"]: one for one in items(collector, "transaction")}
    assert set(traced) == {f"{TASK}.fails", f"{TASK}.works"}
    assert event["contexts"]["trace"]["trace_id"] == traced[f"{TASK}.fails"]["contexts"]["trace"]["trace_id"]
    of = traced[f"{TASK}.works"]["contexts"]["trace"]
    assert (of["op"], of["origin"], of["status"]) == ("queue.process", "auto.queue.fusion", "ok")
    data = of["data"]
    assert (data["messaging.message.id"], data["messaging.destination.name"]) == (good.id, "q")
    assert data["messaging.message.retry.count"] == 0 and data["messaging.message.receive.latency"] >= 0


@pytest.mark.parametrize("executor", EACH)
def test_no_code_that_a_task_logs_prints_raises_or_returns_is_in_an_envelope(
    executor: str, workers: Workers, queue: Queue, collector: Collector
) -> None:
    for task in ("works", "works_async", "fails", "logs_errors"):
        put(queue, task)
    run(workers, executor, collector)
    assert len(items(collector, "event")) == 2
    for kind in ("event", "transaction"):
        for found in items(collector, kind):
            for name in ("contexts", "event_id", "timestamp", "start_timestamp"):  # of these only ids and times are left out
                one = found.pop(name, None)
                assert name != "contexts" or CODE not in json.dumps(one["fusion"])
            text = re.sub(r'"[0-9a-f]{16,32}"|\d{4}-\d\d-\d\dT[\d:.]+Z|"lineno": \d+|\d+\.\d+', "", json.dumps(found))
            assert CODE not in text and OTHER not in text


@pytest.mark.parametrize("executor", EACH)
def test_runs_that_are_tried_again_and_stopped_ones_are_no_events_and_a_killed_one_is(
    executor: str, workers: Workers, conn: redis.Redis, queue: Queue, collector: Collector, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    again, dead = put(queue, "fails_twice", retry=Retry(max=2, interval=[0.01])), put(queue, "dies", on_lost="fail")
    worker = workers.start("q", "--executor", executor, env=sentry_env(executor, collector))
    eventually(lambda: (status_of(conn, again.id), status_of(conn, dead.id)) == ("finished", "failed"), unhurried(30))
    stopped = put(queue, "hangs", str(started))
    eventually(started.exists, unhurried(20))
    stopped.stop()
    eventually(lambda: status_of(conn, stopped.id) == "stopped", unhurried(20))
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    events = items(collector, "event")
    assert {event["transaction"] for event in events} == {f"{TASK}.dies"}
    assert events[-1]["exception"]["values"][0]["type"] == "WorkHorseTerminated"
    assert events[-1]["contexts"]["fusion"]["job_id"] == dead.id


@pytest.mark.parametrize("executor", ["thread", gate_case("asyncio")])
def test_jobs_that_lose_their_process_together_are_events_if_they_fail_by_it(
    executor: str, workers: Workers, conn: redis.Redis, queue: Queue, collector: Collector, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    beside = put(queue, "hangs", str(started), on_lost="fail")
    worker = workers.start("q", "--executor", executor, env=sentry_env(executor, collector))
    eventually(started.exists, unhurried(20))
    dead = put(queue, "dies", on_lost="fail")
    eventually(lambda: [status_of(conn, one.id) for one in (beside, dead)] == ["failed", "failed"], unhurried(30))
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert {event["contexts"]["fusion"]["job_id"] for event in items(collector, "event")} == {beside.id, dead.id}


@pytest.mark.parametrize("most", [1, 2])
def test_a_job_that_is_lost_is_an_event_once_it_fails_by_it(
    most: int, workers: Workers, conn: redis.Redis, queue: Queue, collector: Collector
) -> None:
    """Redis decides which loss is the last: the worker reads it in the answer."""
    dead = put(queue, "dies")
    worker = workers.start("q", env={**sentry_env("process", collector), "FUSION_MAX_LOST": str(most)})
    eventually(lambda: status_of(conn, dead.id) == "failed", unhurried(30))
    assert conn.hget(f"rq:job:{dead.id}", "lost") == str(most).encode()
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert [event["contexts"]["fusion"]["job_id"] for event in items(collector, "event")] == [dead.id]


@pytest.mark.long
@pytest.mark.gate
def test_of_a_worker_that_is_killed_between_a_last_loss_and_its_answer_nothing_is_sent(
    workers: Workers, conn: redis.Redis, queue: Queue, collector: Collector, tmp_path: Path
) -> None:
    """The job has failed, and no other worker learns why: one event too few, never two."""
    started, here = tmp_path / "started", tmp_path / "dead" / "here"
    dead = put(queue, "hangs", str(started), on_lost="fail")
    env = sentry_env("process", collector)
    worker = workers.start("q", env={**env, "FUSION_FAILPOINTS": f"turn.sent=wait:{here}"})
    eventually(started.exists, unhurried(20))
    here.parent.mkdir()
    os.kill(int(started.read_text()), signal.SIGKILL)

    def failed() -> bool:
        """The worker waits in the turn that says so; it goes on from any other."""
        if not here.exists():
            return False
        try:
            return eventually(lambda: status_of(conn, dead.id) == "failed", 1)
        except AssertionError:
            here.with_name("here.met").unlink()
            here.unlink()
            return False

    eventually(failed, unhurried(30))
    worker.signal(signal.SIGKILL)
    worker.wait()
    workers.burst("q", env=env, timeout=unhurried(60))
    assert (status_of(conn, dead.id), conn.hget(f"rq:job:{dead.id}", "lost")) == ("failed", b"1")
    assert items(collector, "event") == []


@pytest.mark.parametrize("executor", EACH)
def test_the_run_is_in_the_trace_of_its_enqueue(
    executor: str, workers: Workers, queue: Queue, collector: Collector, application: list[dict[str, Any]]
) -> None:
    with sentry_sdk.start_transaction(name="POST /orders", op="http.server"):
        put(queue, "works")
    run(workers, executor, collector)
    (whole,) = application
    (span,) = whole["spans"]
    assert (span["op"], span["data"]["messaging.destination.name"]) == ("queue.publish", "q")
    (of,) = [one["contexts"]["trace"] for one in items(collector, "transaction")]
    assert (of["trace_id"], of["parent_span_id"]) == (span["trace_id"], span["span_id"])


@pytest.mark.parametrize(("task", "end"), [("works", "ok"), ("fails", "error"), ("dies", "error")])
def test_check_ins_of_a_cron_entry(task: str, end: str, workers: Workers, conn: redis.Redis, collector: Collector) -> None:
    scheduler = Scheduler(conn)
    scheduler.cron("0 0 1 1 *", f"{TASK}.{task}", id="Nightly_Report", queue="q", retry=Retry(max=0), on_lost="fail")
    scheduler.run("Nightly_Report")
    run(workers, "process", collector, SENTRY_TRACES_SAMPLE_RATE="")
    first, *_, last = items(collector, "check_in")
    assert (first["status"], last["status"]) == ("in_progress", end)
    assert first["monitor_slug"] == last["monitor_slug"] == "nightly_report"
    assert first["check_in_id"] == last["check_in_id"]
    assert items(collector, "transaction") == []


# -- without a worker


@pytest.mark.parametrize(
    ("job_id", "entry"),
    [
        ("cron-report-20260101T000000Z", "report"),
        ("cron-a-b-manual-7", "a-b"),
        ("cron-report", None),
        ("x-cron-report-20260101T000000Z", None),
        ("abc", None),
    ],
)
def test_the_entry_of_a_job(job_id: str, entry: str | None) -> None:
    assert entry_of(job_id) == entry


def test_a_fingerprint_does_not_depend_on_the_line() -> None:
    assert fingerprint_of("a.E", "m:f:10", "t") == fingerprint_of("a.E", "m:f:11", "t") != fingerprint_of("a.E", "", "t")


def test_an_event_is_masked_wherever_it_holds_texts_of_a_task() -> None:
    event = {
        "message": f"m {CODE}",
        "logentry": {"message": "code %s", "formatted": f"code {CODE}", "params": [CODE]},
        "breadcrumbs": {"values": [{"message": f"b {CODE}", "data": {"deep": [{"x": CODE, "n": int(CODE)}]}}]},
        "exception": {
            "values": [{"value": f"e {CODE}", "stacktrace": {"frames": [{"vars": {"a": CODE}, "context_line": CODE}]}}]
        },
        "spans": [{"description": f"GET {CODE}"}],
        "extra": {"sys.argv": [CODE]},
    }
    assert CODE in json.dumps(event)
    assert CODE not in json.dumps(masked_event(event))


@pytest.mark.parametrize("dsn", ["", "nonsense"])
def test_a_dsn_that_cannot_be_used_is_told_at_the_start(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENTRY_DSN", dsn)
    with pytest.raises(ConfigurationError, match="SENTRY_DSN is"):
        Sender()


@pytest.mark.parametrize("rate", ["much", "2", "-1"])
def test_a_rate_that_is_none_is_told(rate: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENTRY_TRACES_SAMPLE_RATE", rate)
    with pytest.raises(ConfigurationError, match="SENTRY_TRACES_SAMPLE_RATE is"):
        sample_rate()


def test_what_sentry_refuses_and_what_is_no_envelope_is_counted(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENTRY_DSN", collector.url.replace("http://", "http://key@") + "/1")
    sender = Sender()
    dead = DeadRun({}, "a", "b", "q", "t", 1.0, "fusion.exceptions.WorkHorseTerminated", "killed", failed=True)
    (record,) = sender.dead(dead)
    collector.answers = [500]
    assert sender.send([record, b"\x00garbage", record]) == 2
    assert len(items(collector, "event")) == 1
    assert sender.dead(DeadRun({}, "a", "b", "q", "t", 1.0, "fusion.exceptions.JobStopped", "", failed=False)) == []
    assert check_in("A b", "x", "ok", 1.0, {})["monitor_slug"] == "a-b"
