"""What a worker does with records for a collector: bounds, repeats, and an end that waits for nobody."""

from __future__ import annotations

import json
import logging
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from threading import Event

import pytest
import redis

from fusion import Queue, Retry
from fusion.contrib.opentelemetry.sending import Sender
from fusion.exceptions import ConfigurationError
from fusion.execution.telemetry import JobTelemetry, records_of
from fusion.kernel import defaults
from fusion.worker import telemetry
from fusion.worker.telemetry import DeadRun, Outlet
from tests.kit.waiting import eventually, unhurried
from tests.kit.witnesses import status_of
from tests.kit.workers import Workers
from tests.telemetry.collector import Collector
from tests.telemetry.test_tracing import env_of

log = logging.getLogger("tests")
SPAN = b'{"scope":{"name":"s"},"spans":[]}'


@pytest.fixture
def black_hole() -> Iterator[str]:
    """A collector that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as hole:
        yield f"http://127.0.0.1:{hole.getsockname()[1]}"


@pytest.fixture
def sender(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> Sender:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b, other=c")
    monkeypatch.setattr(telemetry, "_GATHER", 0.01)
    monkeypatch.setattr(telemetry, "_AGAIN", 0.01)
    return Sender(links=False)


class Slow:
    """A sender that waits for `go`."""

    shown = "slow collector"

    def __init__(self) -> None:
        self.go, self.began = Event(), Event()
        self.sent: list[bytes] = []

    def send(self, records: Sequence[bytes]) -> int:
        self.began.set()
        self.go.wait()
        self.sent += records
        return 0

    def dead(self, run: DeadRun) -> list[bytes]:
        return []


# -- the job's side


class Frames:
    """What a job sends; `open`: whether the worker is ready."""

    def __init__(self) -> None:
        self.sent: list[dict[bytes, bytes]] = []
        self.open = True

    def send(self, frame: dict[bytes, bytes]) -> None:
        self.sent.append(frame)

    def offer(self, frame: dict[bytes, bytes]) -> bool:
        if self.open:
            self.sent.append(frame)
        return self.open

    def records(self) -> list[bytes]:
        return [record for frame in self.sent for record in records_of(frame)]

    def dropped(self) -> int:
        return sum(int(frame[b"dropped"]) for frame in self.sent)


def test_a_run_sends_at_most_its_bound_and_its_own_record_always() -> None:
    frames = Frames()
    job = JobTelemetry(frames.send, frames.offer)
    for at in range(400):
        job.add("otlp", b"%05d" % at + b"x" * 995)
    job.add("otlp", b"y" * 100_000)
    job.add("otlp", b"own", own=True)
    job.end()
    job.add("otlp", b"late")
    kept = defaults.TELEMETRY_JOB // 1000
    assert [record[:5] for record in frames.records()] == [*(b"%05d" % at for at in range(kept)), b"own"]
    assert frames.dropped() == 400 - kept + 1
    assert all(sum(map(len, records_of(frame))) <= 48 * 1024 for frame in frames.sent)
    assert [frame.get(b"last") for frame in frames.sent] == [None] * (len(frames.sent) - 1) + [b"1"]


def test_what_the_worker_is_not_ready_for_waits_and_a_short_run_sends_one_frame() -> None:
    frames = Frames()
    frames.open = False
    job = JobTelemetry(frames.send, frames.offer)
    for at in range(40):
        job.add("otlp", b"%05d" % at + b"x" * 995)
    assert frames.sent == []
    job.end()
    assert len(frames.records()) == 40
    short = Frames()
    job = JobTelemetry(short.send, short.offer)
    job.add("otlp", b"one")
    job.add("otlp", b"two")
    assert short.sent == []
    job.end()
    assert [records_of(frame) for frame in short.sent] == [[b"one", b"two"]]


def test_a_flush_sends_what_waits_if_the_worker_is_ready_and_nothing_after_the_end() -> None:
    frames = Frames()
    job = JobTelemetry(frames.send, frames.offer)
    job.flush()
    job.add("otlp", b"one")
    frames.open = False
    job.flush()
    assert frames.sent == []
    frames.open = True
    job.flush()
    assert [records_of(frame) for frame in frames.sent] == [[b"one"]]
    job.flush()
    job.end()
    job.flush()
    assert frames.records() == [b"one"]


def test_a_run_that_recorded_nothing_sends_nothing() -> None:
    frames = Frames()
    JobTelemetry(frames.send, frames.offer).end()
    assert frames.sent == []


# -- the worker's side


def test_spans_are_sent_together_with_the_headers_of_the_variables(sender: Sender, collector: Collector) -> None:
    outlet = Outlet(sender, log)
    outlet.put([SPAN] * 3 + [b"not json", b"[]"])
    eventually(lambda: outlet.sent == 3, unhurried(10))
    assert (outlet.dropped, outlet.waiting) == (2, 0)
    (body,) = collector.bodies
    (of,) = json.loads(body)["resourceSpans"]
    assert of["scopeSpans"] == [json.loads(SPAN)] * 3
    headers = collector.headers[0]
    assert (headers["X-Key"], headers["Other"], headers["Content-Type"]) == ("a b", "c", "application/json")
    outlet.close(time.monotonic() + 5)


@pytest.mark.parametrize("code", [429, 502, 503, 504])
def test_a_collector_that_cannot_now_gets_them_again(code: int, sender: Sender, collector: Collector) -> None:
    collector.answers = [code, code]
    outlet = Outlet(sender, log)
    outlet.put([SPAN])
    eventually(lambda: outlet.sent == 1, unhurried(10))
    assert (outlet.dropped, len(collector.bodies)) == (0, 1)
    outlet.close(time.monotonic() + 5)


@pytest.mark.parametrize("answers", [[400], [401], [301], [503] * 5])
def test_what_it_refuses_for_good_or_too_often_is_lost_counted_and_logged_once(
    answers: list[int], sender: Sender, collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.answers = list(answers)
    outlet = Outlet(sender, log)
    outlet.put([SPAN, SPAN])
    eventually(lambda: outlet.dropped == 2, unhurried(10))
    outlet.put([SPAN])
    eventually(lambda: outlet.sent == 1, unhurried(10))
    (line,) = [record.getMessage() for record in caplog.records if "takes no records" in record.getMessage()]
    assert line == f"the OTLP collector at {collector.url}/v1/traces takes no records: it answered {answers[0]}"
    outlet.close(time.monotonic() + 5)


def test_more_than_2048_and_more_than_16_mib_are_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    slow = Slow()
    outlet = Outlet(slow, log)
    outlet.put([b"first"])
    assert slow.began.wait(unhurried(10))
    outlet.put([b"x"] * 3000)
    assert (outlet.waiting, outlet.dropped) == (2048, 952)
    began = time.monotonic()
    outlet.close(began + 0.1)
    assert time.monotonic() - began < unhurried(2)
    assert "2048 records for the slow collector were not sent: it does not answer" in caplog.text
    slow.go.set()
    large = Slow()
    outlet = Outlet(large, log)
    outlet.put([b"first"])
    assert large.began.wait(unhurried(10))
    outlet.put([b"x" * 1024 * 1024] * 20)
    assert (outlet.waiting, outlet.dropped) == (16, 4)
    large.go.set()
    outlet.close(time.monotonic() + unhurried(10))
    assert len(large.sent) == 17


def test_a_fault_of_a_library_does_not_end_the_thread(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "_GATHER", 0.01)

    class Faulty(Slow):
        def dead(self, run: DeadRun) -> list[bytes]:
            raise AttributeError("of a library")

    faulty = Faulty()
    faulty.go.set()
    outlet = Outlet(faulty, log)
    outlet.put([DeadRun({}, "a", "b", "q", "t", 1.0, "E", ""), b"one"])
    eventually(lambda: faulty.sent == [b"one"], unhurried(10))
    eventually(lambda: (outlet.dropped, outlet.sent) == (1, 1), unhurried(10))
    outlet.close(time.monotonic() + 5)


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc'; a worker sends spans by http/json"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"},
            "OTEL_EXPORTER_OTLP_ENDPOINT is 'collector:4318/v1/traces'; give a URL",
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c", "OTEL_EXPORTER_OTLP_CERTIFICATE": "/nowhere.pem"},
            "OTEL_EXPORTER_OTLP_CERTIFICATE is '/nowhere.pem', which can't be read",
        ),
    ],
)
def test_a_variable_that_cannot_be_used_is_told_at_the_start(
    variables: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=re.escape(told)):
        Sender(links=False)


# -- whole workers


def test_a_black_hole_delays_no_job_and_no_end_and_its_drops_are_in_metrics(
    workers: Workers, conn: redis.Redis, black_hole: str, collector: Collector
) -> None:
    queue = Queue("q", conn)
    env = env_of("process", collector, OTEL_EXPORTER_OTLP_ENDPOINT=black_hole)
    worker = workers.start("q", "--executor", "process", "--probe-port", "0", env=env)
    port = re.search(r"127\.0\.0\.1:(\d+)", worker.output)
    assert port, worker.output

    def figure(name: str) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}/metrics", timeout=unhurried(10)) as answer:
            found = re.search(rf'^{name}{{collector="otlp"}} (\S+)$', answer.read().decode(), re.MULTILINE)
        assert found
        return float(found[1])

    job = queue.enqueue("tests.jobs.traced.many", 400, retry=Retry(max=0))
    eventually(lambda: status_of(conn, job.id) == "finished", unhurried(20))
    eventually(lambda: figure("fusion_telemetry_dropped_total") > 100, unhurried(10), why="over 256 KiB of one job")
    assert figure("fusion_telemetry_sent_total") == 0
    began = time.monotonic()
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert time.monotonic() - began < unhurried(5)
    assert "takes no records" not in worker.output


def test_who_does_not_trace_loads_nothing_of_it() -> None:
    code = (
        "import sys, fusion.worker.worker, fusion.worker.parts, fusion.execution.perform, fusion.forkserver.server, fusion.enqueue.hooked\n"
        "print([name for name in sys.modules if name.startswith('fusion.') and 'telemetry' in name])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=50).stdout == "[]\n"
