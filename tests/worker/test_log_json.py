"""What a worker says, one structured line per event: `--log-json`. The plain lines come from the same calls."""

from __future__ import annotations

import json
import logging
import signal
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import redis

from fusion import Queue, Retry
from fusion.cli.logs import JSONFormatter, set_up_logging
from fusion.settings import Settings
from tests.jobs import basic
from tests.kit.waiting import eventually
from tests.kit.workers import WorkerProcess, Workers

NASTY = 'first\n{"level": "INFO", "message": "forged"}\r\x1b[2J\x7f\u2028 "quoted" \x85 end'


def events(worker: WorkerProcess) -> list[dict[str, Any]]:
    """Every line is one JSON object."""
    return [json.loads(line) for line in worker.output.splitlines()]


def test_one_object_per_line_with_the_job_in_it(workers: Workers, conn: redis.Redis) -> None:
    queue = Queue("sms")
    good = queue.enqueue(basic.noop, description=NASTY)
    bad = queue.enqueue(basic.boom, NASTY, retry=Retry(max=1, interval=0))
    worker = workers.burst("sms", "--log-json")
    found = events(worker)
    name = found[-1]["worker"]
    assert name.endswith(f".{worker.pid}")
    for event in found:
        assert list(event)[:4] == ["time", "level", "logger", "message"]
        assert datetime.fromisoformat(event["time"]).utcoffset() is not None and event["time"].endswith("Z")
        assert (event["logger"], event["worker"]) == ("fusion.worker", name)
    assert not any(character in worker.output for character in "\x1b\x7f\r\u2028\x85")

    ours = [event for event in found if event.get("job_id") == good.id]
    description = 'first\\x0a{"level": "INFO", "message": "forged"}\\x0d\\x1b[2J\\x7f\\x2028 "quoted" \\x85 end'
    assert [event["message"] for event in ours] == [f"sms: {description} ({good.id})", f"sms: Job OK ({good.id})"]
    assert {key: ours[0][key] for key in ("level", "queue", "description", "attempt")} == {
        "level": "INFO",
        "queue": "sms",
        "description": description,
        "attempt": 1,
    }
    ours = [event for event in found if event.get("job_id") == bad.id]
    assert [(event["level"], event["attempt"]) for event in ours] == [
        ("INFO", 1),
        ("WARNING", 1),  # it is retried: that heals itself
        ("INFO", 2),
        ("ERROR", 2),
    ]
    assert ours[-1]["message"].startswith(f"sms: job {bad.id} failed: ValueError at tests.jobs.basic:boom:")


@pytest.mark.long
def test_plain_lines_are_as_before(workers: Workers, conn: redis.Redis) -> None:
    job = Queue("sms").enqueue(basic.noop, description="say\nhello")
    worker = workers.burst("sms", "--log-format", "%(levelname)s %(worker)s %(message)s")
    name = f".{worker.pid}"
    assert [line.split(" ", 2)[2] for line in worker.output.splitlines() if job.id in line] == [
        f"sms: say\\x0ahello ({job.id})",
        f"sms: Job OK ({job.id})",
    ]
    assert all(name in line.split(" ")[1] for line in worker.output.splitlines())


@pytest.mark.long
def test_descriptions_can_be_left_out(workers: Workers, conn: redis.Redis) -> None:
    Queue("sms").enqueue(basic.boom, description="secret", retry=Retry(max=0))
    worker = workers.burst("sms", "--disable-job-desc-logging", env={"FUSION_LOG_JSON": "1"})
    assert "secret" not in worker.output
    assert [event["level"] for event in events(worker) if "job_id" in event] == ["ERROR"]


@pytest.mark.long
def test_a_traceback_of_many_lines_is_one_line(workers: Workers, conn: redis.Redis) -> None:
    worker = workers.start("sms", "--log-json", env={"FUSION_TASKS": "tests.jobs.no_such_module"}, ready=False)
    failed = eventually(lambda: [e for e in events(worker) if "can't be imported" in e["message"]])
    assert failed[0]["level"] == "ERROR"
    assert "\nModuleNotFoundError" in failed[0]["message"]


def test_the_life_of_a_worker(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    gate, started = tmp_path / "gate", tmp_path / "started"
    gate.touch()
    worker = workers.start("sms", "--log-json")
    Queue("sms").enqueue(basic.until_gone, str(gate), str(started))
    eventually(started.exists)
    worker.signal(signal.SIGTERM)
    eventually(lambda: "warm shutdown" in worker.output)
    gate.unlink()
    assert worker.wait() == 0
    assert {event["level"] for event in events(worker)} == {"INFO"}


# -- the formatter, and who wins


@pytest.fixture
def record() -> logging.LogRecord:
    return logging.makeLogRecord(
        {"name": "fusion.worker", "levelname": "ERROR", "msg": "it %s", "args": ("broke",), "created": 0.5}
    )


def test_an_exception_is_a_field(record: logging.LogRecord) -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record.exc_info = sys.exc_info()
    line = JSONFormatter().format(record)
    document = json.loads(line)
    assert "\n" not in line
    assert document["exception"].startswith("Traceback (most recent call last):\n")
    assert document["exception"].endswith("ValueError: two\nlines")
    assert (document["message"], document["time"]) == ("it broke", "1970-01-01T00:00:00.500000Z")


def test_what_json_does_not_know_is_shown_as_text(record: logging.LogRecord) -> None:
    record.queue = Path("/x")
    record.attempt = 0
    document = json.loads(JSONFormatter().format(record))
    assert (document["queue"], document["attempt"]) == ("/x", 0)
    assert "worker" not in document


def test_the_flag_wins_over_a_dict_config(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("fusion")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    config = {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"plain": {"format": "plain %(message)s"}},
        "handlers": {"out": {"class": "logging.StreamHandler", "formatter": "plain"}},
        "loggers": {"fusion": {"handlers": ["out"], "level": "INFO"}},
    }
    try:
        set_up_logging(Settings(dict_config=config, log_json=True), None, "%(message)s", "%H")
        logger.warning("hello")
    finally:
        logging.captureWarnings(False)
        logging.getLogger("py.warnings").handlers = []
    assert json.loads(capsys.readouterr().err)["message"] == "hello"
