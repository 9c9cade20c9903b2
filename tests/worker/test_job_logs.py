"""Jobs log as their worker does: DICT_CONFIG of its `-c` module, and lines of JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import redis

from fusion import Queue
from tests.kit.length import long_case
from tests.kit.witnesses import field, status_of
from tests.kit.workers import Workers

EXECUTORS = ["process", long_case("pool"), long_case("thread"), long_case("asyncio")]
CONFIG = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"short": {"format": "SHORT %(levelname)s %(name)s %(message)s"}},
    "handlers": {"out": {"class": "logging.StreamHandler", "formatter": "short", "stream": "ext://sys.stderr"}},
    "root": {"level": "INFO", "handlers": ["out"]},
}


def _config(tmp_path: Path, text: str) -> dict[str, str]:
    (tmp_path / "shopconfig.py").write_text(text)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    return {"FUSION_TASKS": "tests.jobs.logging_on", "PYTHONPATH": path}


def _lines(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_lines_of_jobs_go_where_the_settings_say(executor: str, workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    job = Queue("q", conn).enqueue("tests.jobs.logging_on.logs", "it")
    worker = workers.burst("q", "-c", "shopconfig", "--executor", executor, env=_config(tmp_path, f"DICT_CONFIG = {CONFIG!r}"))
    assert worker.count("SHORT INFO shop.orders info of it\n") == 1, worker.output
    assert worker.count("SHORT ERROR shop.other error of it\n") == 1
    assert job.result == ["StreamHandler"]


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("config", [f"DICT_CONFIG = {CONFIG!r}", long_case("LEASE = 60")], ids=["config", "none"])
def test_with_lines_of_json_those_of_jobs_are_json_too(
    executor: str, config: str, workers: Workers, conn: redis.Redis, tmp_path: Path
) -> None:
    job = Queue("q", conn).enqueue("tests.jobs.logging_on.logs", "it")
    worker = workers.burst("q", "-c", "shopconfig", "--log-json", "--executor", executor, env=_config(tmp_path, config))
    own = [line for line in _lines(worker.output) if line.get("job_id") == job.id and line["logger"] != "fusion.worker"]
    wanted = ["info of it"] * ("DICT_CONFIG" in config) + ["warning of it", "error of it"]
    assert [line["message"] for line in own][: len(wanted)] == wanted
    assert {line["queue"] for line in own} == {"q"}
    assert "ValueError: no" in own[len(wanted) - 1]["exception"]
    assert "warned of it" in own[-1]["message"] and own[-1]["logger"] == "py.warnings"


@pytest.mark.long
@pytest.mark.parametrize("mode", [(), ("--horses", "1"), ("--log-json",)], ids=["process", "pool", "json"])
def test_a_handler_with_a_thread_is_made_by_each_process(
    mode: tuple[str, ...], workers: Workers, conn: redis.Redis, tmp_path: Path
) -> None:
    config = {**CONFIG, "handlers": {"out": {"class": "tests.jobs.logging_on.Threaded", "formatter": "short"}}}
    jobs = [Queue("q", conn).enqueue("tests.jobs.logging_on.logs", f"job {n}") for n in range(3)]
    worker = workers.burst("q", "-c", "shopconfig", *mode, env=_config(tmp_path, f"DICT_CONFIG = {config!r}"))
    assert [status_of(conn, job.id) for job in jobs] == ["finished"] * 3, field(conn, jobs[0].id, "exc_info")
    assert [worker.count(f"info of job {n}") for n in range(3)] == [1] * 3
    assert worker.count("DICT_CONFIG starts a thread, which can't be shared by forked processes") == 1
    if mode == ("--log-json",):
        assert _lines(worker.output)


@pytest.mark.long
def test_objects_in_it_do_not_reach_jobs_and_the_log_says_so(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    config = (
        "import sys\nDICT_CONFIG = {'version': 1, 'handlers': {'out': {'class': 'logging.StreamHandler', 'stream': sys.stderr}}}"
    )
    job = Queue("q", conn).enqueue("tests.jobs.logging_on.logs", "it")
    worker = workers.burst("q", "-c", "shopconfig", env=_config(tmp_path, config))
    assert status_of(conn, job.id) == "finished"
    assert worker.count("jobs log without dict_config (from module shopconfig (DICT_CONFIG))") == 1
    assert worker.count("'ext://sys.stderr'") == 1
