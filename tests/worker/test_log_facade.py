"""`Log`: what tasks and other programs add to the event stream."""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import redis

from fusion import Connection, Queue
from fusion.execution.frames import FrameReader
from fusion.forkserver.horse import Channel
from fusion.settings import use_settings
from tests.jobs import basic, saying
from tests.kit.monitor import Monitor
from tests.kit.private_redis import PrivateRedis
from tests.kit.waiting import eventually
from tests.kit.witnesses import field, status_of
from tests.kit.workers import CROWDED, SharedWorkers, Workers, alone_in_its_process
from wrappers.log import Log

TASKS = {"FUSION_TASKS": "tests.jobs"}


def said(conn: redis.Redis, job_id: str = "") -> list[dict[str, str]]:
    """The lines in the stream, of one job or of all."""
    entries = [{k.decode(): v.decode() for k, v in fields.items()} for _, fields in conn.xrange("rq:events")]
    return [entry for entry in entries if entry.get("source") == "log" and job_id in ("", entry["job_id"])]


@pytest.fixture(autouse=True)
def _ready_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """An outage in one test is none of the next one's."""
    monkeypatch.setattr("fusion.log._again_at", 0.0)


# -- in a job of a worker that these tests share


@pytest.fixture
def worker(shared_workers: SharedWorkers) -> None:
    shared_workers.start("sms", env=TASKS)


#: Function, its result, and its lines. None: without its socket it can't tell its result either.
_ODD: list[tuple[Any, object, list[str]]] = [
    (saying.steps, None, ["one", "two", "three", "four why=five", ""]),
    (saying.in_a_child, 7, ["from the task"]),
    (saying.without_a_socket, None, []),
    (
        saying.nonsense,
        "went on",
        [
            '[unreadable] field=[Unprintable] message="a name of the method\'s own" self=1',
            "None",
            'deep data={"password":"***","list":["*",{"token":"***"}]}',
        ],
    ),
]


@pytest.mark.usefixtures("worker")
def test_a_task_never_hears_of_it(conn: redis.Redis) -> None:
    jobs = {func: Queue("sms").enqueue(func) for func, _, _ in _ODD}
    for func, result, messages in _ODD:
        job = jobs[func]
        eventually(lambda job=job: status_of(conn, job.id) in ("finished", "failed", "scheduled"), 20, why=f"{func} has ended")
        eventually(lambda job=job, all=messages: len(said(conn, job.id)) >= len(all), why="all its lines have come")
        assert [line["message"] for line in said(conn, job.id)] == messages
        if func is saying.without_a_socket:
            assert "without a result" in field(conn, job.id, "reason"), "what it raised would stand here"
        else:
            assert (job.result, job.get_status()) == (result, "finished")
    steps = [line["event"] for line in said(conn, jobs[saying.steps].id)]
    assert steps == ["queued", "processing", "completed", "failed", "retry"], "the names of the event log"


@pytest.mark.long
@pytest.mark.usefixtures("worker")
def test_meta_saved_before_a_line_is_not_lost(conn: redis.Redis, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    job = Queue("sms").enqueue(saying.then_waits, str(gate))
    eventually(lambda: said(conn, job.id))
    assert json.loads(field(conn, job.id, "meta")) == {"stage": "under way"}
    gate.unlink()
    assert job.wait(10) == "finished"


@pytest.mark.long
@pytest.mark.usefixtures("worker")
def test_a_timeout_strikes_a_task_that_does_nothing_else(conn: redis.Redis) -> None:
    job = Queue("sms").enqueue(saying.for_ever, job_timeout=0.5, retry=None)
    eventually(lambda: field(conn, job.id, "error_class"))
    assert field(conn, job.id, "error_class") == "fusion.exceptions.JobTimeoutException"
    assert "Task exceeded maximum timeout" in field(conn, job.id, "reason"), "the soft one, not the kill"


# -- in a job


def test_a_line_is_an_event_of_its_job(workers: Workers, conn: redis.Redis) -> None:
    begin = time.time() * 1000
    job = Queue("sms").enqueue(saying.say, "answer from twilio", segments=2, token="abc", log_tag="SMS_OTP")
    worker = workers.burst("sms", env=TASKS)
    own = {"logging", "socket"} if CROWDED == "asyncio" else set()  # of the event loop
    assert set(job.result) <= own, "no client of Redis in the job's process"
    (line,) = said(conn)
    assert {name: line[name] for name in ("event", "job_id", "queue", "log_tag", "message")} == {
        "event": "log",
        "job_id": job.id,
        "queue": "sms",
        "log_tag": "SMS_OTP",
        "message": "answer from twilio segments=2 token=***",
    }
    assert line["worker"].endswith(f".{worker.pid}")
    assert begin - 1000 < int(line["at_ms"]) < time.time() * 1000 + 1000
    assert "dropped" not in line
    assert [int(fields[b"n"]) for _, fields in conn.xrange("rq:events")] == [1, 2, 3, 4], "numbered with the other events"


@pytest.mark.long
def test_a_flood_is_cut_off_and_counted(workers: Workers, conn: redis.Redis) -> None:
    job = Queue("sms").enqueue(saying.many, 5000)
    workers.burst("sms", env=TASKS)
    assert job.result < 5
    lines = said(conn)
    assert 100 <= len(lines) < 100 + 50 * (job.result + 1) + 1
    told = sum(int(line.get("dropped", 0)) for line in lines)
    own = len(lines) - (lines[-1]["message"] == "lines of this job were dropped")
    assert own + told == 5000


@pytest.mark.long
def test_lines_of_many_jobs_go_together(workers: Workers, conn: redis.Redis, redis_url: str) -> None:
    worker = workers.start("sms", "--slots", "4", env=TASKS)
    Queue("sms").enqueue(saying.say, "first").wait(10)
    eventually(lambda: len(said(conn)) == 1, why="all connections are made, all scripts are loaded")
    monitor = Monitor(redis_url, conn)
    monitor.commands()
    begin = time.monotonic()
    Queue("sms").enqueue_many([Queue.prepare_data(saying.say, ("line",)) for _ in range(300)])
    eventually(lambda: conn.zcard("rq:finished:sms") == 301, timeout=40, interval=0.1, why=worker.output)
    took = time.monotonic() - begin
    eventually(lambda: len(said(conn)) == 301, timeout=20, interval=0.1)
    sent = Counter(monitor.commands())
    monitor.close()
    assert sent["EVALSHA"] <= 301 + (took + 4) * 10 + 10, sent  # ten calls a second for lines, whatever they are
    assert len({line["job_id"] for line in said(conn)}) == 301


@alone_in_its_process("its frame does not say of which run it is, so it is nobody's")
def test_a_process_that_forges_frames_gains_nothing(workers: Workers, conn: redis.Redis) -> None:
    forged = {
        "kind": "log",
        "event": "deleted",
        "message": "two\nlines \x1b[2J" + "x" * 5000,
        "dropped": "-5",
        "job_id": "another",
        "queue": "another",
    }
    job = Queue("sms").enqueue(basic.write_frame, json.dumps(forged))
    workers.burst("sms")
    (line,) = said(conn)
    assert (line["event"], line["job_id"], line["queue"]) == ("log", job.id, "sms")
    assert line["message"].startswith("two lines \\x1b[2Jxxx")
    assert len(line["message"]) == 1024
    assert "dropped" not in line
    assert job.get_status() == "finished"


# -- Redis in trouble


@pytest.mark.long
def test_lines_wait_for_redis_and_come_once(private_workers: Workers, private_redis: PrivateRedis, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    conn = private_redis.conn
    worker = private_workers.start("sms", env={**TASKS, "FUSION_SOCKET_TIMEOUT": "0.2"})
    job = Queue("sms", conn).enqueue(saying.waits_then, str(gate))
    eventually(lambda: field(conn, job.id, "status") == "started")
    private_redis.pause()
    gate.unlink()
    eventually(lambda: worker.output.count("Redis is away") == 1, timeout=20)
    private_redis.resume()
    eventually(lambda: said(conn))
    assert job.wait(20) == "finished"
    worker.stop()
    assert [line["message"] for line in said(conn)] == ["said at last"]


@pytest.mark.long
def test_a_full_server_refuses_lines_and_takes_outcomes(
    private_workers: Workers, private_redis: PrivateRedis, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    conn = private_redis.conn
    worker = private_workers.start("sms", env=TASKS)
    first = Queue("sms", conn).enqueue(basic.until_gone, str(gate))
    second = Queue("sms", conn).enqueue(saying.say, "hello")
    eventually(lambda: field(conn, first.id, "status") == "started")
    conn.config_set("maxmemory", 1)
    gate.unlink()
    eventually(lambda: field(conn, second.id, "status") == "finished", why=worker.output)
    eventually(lambda: "lines of tasks were dropped" in worker.output)
    assert "Redis is away" not in worker.output
    assert said(conn) == []
    conn.config_set("maxmemory", 0)


# -- the job's socket


def frames_in(end: socket.socket) -> list[dict[bytes, bytes]]:
    end.setblocking(False)
    reader = FrameReader(1 << 20)
    found = []
    while True:
        try:
            data = end.recv(1 << 16)
        except BlockingIOError:
            return found
        reader.feed(data)
        while (frame := reader.next()) is not None:
            found.append(frame)


def test_a_full_socket_holds_nobody_up_and_loses_no_whole_frame() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = Channel(theirs.fileno())
        taken = refused = 0
        begin = time.monotonic()
        while refused < 50:
            if channel.offer({b"kind": b"log", b"n": b"%d" % taken, b"pad": b"x" * 5000}):
                taken += 1
            else:
                refused += 1
        assert time.monotonic() - begin < 5
        assert os.get_blocking(theirs.fileno())
        first = frames_in(ours)
        assert channel.offer({b"kind": b"log", b"n": b"%d" % taken})
        channel.send({b"kind": b"finished"})
        found = first + frames_in(ours)
    assert [frame.get(b"n") for frame in found[:-1]] == [b"%d" % n for n in range(taken + 1)]
    assert found[-1] == {b"kind": b"finished"}


def test_an_outcome_takes_along_what_did_not_fit() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = Channel(theirs.fileno())
        taken = 0
        while channel.offer({b"kind": b"log", b"pad": b"x" * 5000}):
            taken += 1
        found = frames_in(ours)
        channel.send({b"kind": b"finished"})
        found += frames_in(ours)
    assert len(found) == taken + 1
    assert found[-1] == {b"kind": b"finished"}


# -- outside a job


def test_a_program_writes_by_its_own_connection(conn: redis.Redis) -> None:
    with Connection(conn):
        Log.log("export done", rows=10, file="/tmp/a.csv")
        Log.execution_failed("nightly import", job_id="import-1", queue="batch", log_tag="IMPORT_NIGHTLY")
    first, second = said(conn)
    assert (first["event"], first["message"], first["job_id"]) == ("log", "export done rows=10 file=/tmp/a.csv", "")
    assert first["worker"] == f"{socket.gethostname()}.{os.getpid()}"
    assert {name: second[name] for name in ("event", "job_id", "queue", "log_tag", "message")} == {
        "event": "failed",
        "job_id": "import-1",
        "queue": "batch",
        "log_tag": "IMPORT_NIGHTLY",
        "message": "nightly import",
    }


def test_without_a_redis_a_program_goes_on_and_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setenv("FUSION_REDIS_URL", f"unix://:swordfish@{tmp_path}/none.sock")
    use_settings(None)
    with caplog.at_level(logging.WARNING, "fusion.log"):
        for _ in range(100):
            Log.log("hello")
    (record,) = caplog.records
    assert "a line of Log was dropped" in record.getMessage()
    assert "swordfish" not in record.getMessage()
