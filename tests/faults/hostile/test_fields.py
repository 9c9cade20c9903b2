"""Whatever stands in a field of a job, an entry or an event: it is that job's trouble alone. The worker lives, and the next job runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner

from fusion import Queue
from fusion.cli.main import cli
from fusion.cron.scheduler import Scheduler
from fusion.exceptions import FusionError
from fusion.job import Job
from tests.faults.hostile.values import REST, REST_TRAPS, TRAPS, plant, spoil_the_rest, spread
from tests.faults.rig.conservation import check_conservation
from tests.kit.relays import Relays
from tests.kit.schedulers import Schedulers
from tests.kit.waiting import eventually
from tests.kit.witnesses import field, status_of
from tests.kit.workers import Workers
from tests.relay.harness import documents_in
from tests.scheduler.harness import waiting
from tests.web.harness import ServerProcess, Tokens

ENV = {"FUSION_HOLD_TIMEOUT": "0", "FUSION_IDLE_WAIT": "0.2"}
#: What a person types to look around.
LOOKS = (
    "info", "info -W", "info -R", "info --raw", "info --json", "failures", "failures --json", "scheduled", "scheduled --json", "cron list",
    "cron list --json", "cron next x1", "cron history x1", "events stats", "events tail", "events tail --json", "callbacks list",
    "callbacks list --json", "health", "schema",
)  # fmt: skip


def look(line: str) -> str:
    """What a command says, whatever its verdict; never a traceback, and nothing that moves the cursor."""
    ended = CliRunner().invoke(cli, line.split(), prog_name="run_worker.py", color=True)
    assert isinstance(ended.exception, (SystemExit, type(None))), (line, ended.exception)
    assert "Traceback" not in ended.output, (line, ended.output)
    wrong = [c for c in re.sub(r"\x1b\[\d{1,2}m", "", ended.output) if not (c.isprintable() or c in "\n\t")]
    assert not wrong, (line, wrong, ended.output)
    return ended.output


def read_all(job: Job) -> None:
    """Everything a program may ask of a job: a value, or an error of Fusion's."""
    for name in ("func_name", "args", "kwargs", "result", "meta", "retry", "attempt_history", "exc_info", "reason", "priority",
                 "timeout", "created_at", "enqueued_at", "started_at", "ended_at", "description", "origin"):  # fmt: skip
        try:
            getattr(job, name)
        except FusionError:
            continue


#: What is looked at when a run fails, and not when it ends well.
ON_FAILURE = {
    "retry",
    "retryCount",
    "attempts",
    "failure_ttl",
    "on_failure",
    "failed_task_handler",
    "hooks",
    "history",
    "log_tag",
}


def run_to_the_end(workers: Workers, conn: redis.Redis, pairs: list[tuple[str, str]]) -> None:
    """One worker takes them all. Each probe has run, each hostile job is in one state, and its record says the same."""
    worker = workers.burst("sms", env=ENV, timeout=120)
    unanswered = [probe for _, probe in pairs if (status_of(conn, probe), field(conn, probe, "result")) != ("finished", "23")]
    assert not unanswered, worker.output
    assert "Traceback" not in worker.output
    assert not [line for line in worker.output.splitlines() if not line.isprintable()]
    states = check_conservation(conn, [hostile for hostile, _ in pairs])
    assert set(states.values()) <= {"finished", "failed", "scheduled", "canceled"}, states


@pytest.mark.timeout(180)
def test_a_worker_outlives_every_value_of_every_field(workers: Workers, conn: redis.Redis) -> None:
    run_to_the_end(workers, conn, list(plant(conn, "sms", TRAPS, "tests.jobs.basic.noop")))


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.parametrize("task", ["noop", "boom"])
def test_and_every_value_of_every_rare_field(workers: Workers, conn: redis.Redis, task: str) -> None:
    assert len(REST) > 50 and {"spared", "ties", "locks", "parents"} <= {*REST}
    run_to_the_end(workers, conn, list(plant(conn, "sms", REST_TRAPS, f"tests.jobs.basic.{task}")))


@pytest.mark.timeout(180)
def test_and_what_stands_there_when_a_job_fails(workers: Workers, conn: redis.Redis) -> None:
    traps = [trap for trap in TRAPS if trap[0] in ON_FAILURE]
    run_to_the_end(workers, conn, list(plant(conn, "sms", traps, "tests.jobs.basic.boom")))


@pytest.mark.timeout(120)
def test_every_read_of_garbage_gets_an_answer(conn: redis.Redis, service: ServerProcess, tokens: Tokens) -> None:
    found = spread(conn)
    spoil_the_rest(conn)
    for job in Job.fetch_many(found, conn):
        assert job is not None
        read_all(job)
    for line in LOOKS:
        look(line)
    paths = [f"/api/v1/jobs/{job_id}?include=result" for job_id in found]
    for path in ("/api/v1/queues", "/api/v1/queues/sms/stats", "/readyz", *paths):
        answer = service.ask("GET", path, token=tokens.by_scope["operate"])
        assert answer.status == 200, (path, answer.body)
        assert isinstance(json.loads(answer.body.decode(), parse_constant=pytest.fail), dict)
    assert "Traceback" not in service.output


@pytest.mark.timeout(120)
def test_a_relay_brings_the_events_that_are_some(relays: Relays, conn: redis.Redis, tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    spoil_the_rest(conn)
    spread(conn)
    relay = relays.start(env={"FUSION_EVENTS_FILE": str(file)})
    Queue("sms", conn).enqueue("tests.jobs.basic.noop", job_id="probe")

    def told() -> list[object]:
        return [document for document in documents_in(file) if document["job_id"] == "probe"]

    try:
        eventually(told, 60, why="the probe's event is delivered")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{relay.output}") from None
    assert relay.process.poll() is None
    assert "Traceback" not in relay.output
    for line in file.read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)


@pytest.mark.timeout(120)
def test_a_scheduler_goes_on_with_the_entries_and_jobs_that_are_some(
    schedulers: Schedulers, cron: Scheduler, conn: redis.Redis
) -> None:
    cron.every(3600, "tests.jobs.basic.noop", id="pattern", queue="sms")
    stored = conn.hgetall("rq:cron:entry:pattern")
    traps = {value for _, value in TRAPS if len(value) < 1000 or value[:1] in b"[{9"}
    for n, (name, value) in enumerate(
        (name, value) for name in ("plan", "spec", "rev", "next", "paused", "manual") for value in traps
    ):
        conn.hset(f"rq:cron:entry:e{n}", mapping={**stored, name.encode(): value})
        conn.zadd("rq:cron:due", {f"e{n}": 0})
    spread(conn)
    scheduler = schedulers.start()
    cron.every(1, "tests.jobs.basic.noop", id="probe", queue="probes")
    try:
        eventually(lambda: waiting(conn, "probes") >= 2, 60, why="a good entry's ticks come")
        eventually(lambda: not conn.zcount("rq:scheduler:scheduled_jobs", "-inf", 1e9), 60, why="what was due has gone its way")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{scheduler.output}") from None
    assert scheduler.process.poll() is None
    assert "Traceback" not in scheduler.output
    assert not [line for line in scheduler.output.splitlines() if not line.isprintable()]
