"""Real processes that are too old for the data: they say so once, do nothing, and go on by themselves when that is over."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import redis

from fusion import Queue
from fusion.store.read.inspector import Inspector
from tests.kit.waiting import eventually
from tests.kit.witnesses import status_of
from tests.kit.workers import WorkerProcess, Workers
from tests.upgrade.test_schema import NEXT, THIS, need, schema_of
from tests.worker.test_probes import get, url_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(180)]
NOOP = "tests.jobs.basic.noop"
SAID = "too old for what is in Redis"
AGAIN = "the data are this process's again"
SCHEDULER, RELAY, START = (("run_worker.py", name) for name in ("scheduler", "relay", "start"))


def says(process: WorkerProcess, text: str) -> None:
    def said() -> bool:
        assert process.process.poll() is None, process.output
        return text in process.output

    try:
        eventually(said, 30, why=f"it says {text!r}")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{process.output}") from None


def unready(process: WorkerProcess) -> str:
    """What /readyz says, which is 503; it lives."""
    url = url_of(process)
    assert get(f"{url}/livez").status == 200
    answer = get(f"{url}/readyz")
    assert answer.status == 503
    return answer.text


def test_a_worker_waits_claims_nothing_and_goes_on_by_itself(workers: Workers, conn: redis.Redis) -> None:
    Queue("sms", conn).enqueue(NOOP, job_id="a")
    need(conn, reader=NEXT)
    worker = workers.start("sms", "--probe-port", "0", ready=False)
    says(worker, SAID)
    says(worker, "ready for jobs")
    assert f"need a process that knows schema {NEXT}" in unready(worker)
    assert Inspector(conn).workers() == []
    asked = conn.info("commandstats")["cmdstat_evalsha"]["calls"]
    eventually(lambda: conn.info("commandstats")["cmdstat_evalsha"]["calls"] > asked + 1, 30, why="it goes on asking")
    assert AGAIN not in worker.output, "whatever else Redis answers"
    assert status_of(conn, "a") == "queued"
    need(conn, reader=1)
    eventually(lambda: status_of(conn, "a") == "finished", 30)
    says(worker, AGAIN)
    assert worker.output.count(SAID) == 1
    assert get(f"{url_of(worker)}/readyz").status == 200
    assert [one.alive for one in Inspector(conn).workers()] == [True]


def test_one_that_waits_ends_as_any_other(workers: Workers, conn: redis.Redis) -> None:
    need(conn, reader=NEXT)
    worker = workers.start("sms", ready=False)
    says(worker, "ready for jobs")
    worker.signal(signal.SIGTERM)
    assert worker.wait(20) == 0, worker.output
    assert "could not report to Redis" not in worker.output


def test_a_burst_does_not_wait(workers: Workers, conn: redis.Redis) -> None:
    need(conn, reader=NEXT)
    worker = workers.start("sms", "--burst", ready=False)
    assert worker.wait(30) == 1
    assert worker.output.splitlines()[-1].startswith(f"Error: the data in Redis are of schema {NEXT}")


def test_a_worker_whose_data_became_too_new_takes_no_more_and_loses_nothing(
    workers: Workers, conn: redis.Redis, tmp_path: Path
) -> None:
    """Nobody may move the key while it is registered; whoever does it by hand is understood all the same."""
    gate = tmp_path / "gate"
    gate.touch()
    queue = Queue("sms", conn)
    queue.enqueue("tests.jobs.basic.until_gone", str(gate), job_id="running")
    worker = workers.start("sms", "--lease", "3", "--probe-port", "0")
    eventually(lambda: status_of(conn, "running") == "started")
    need(conn, reader=NEXT)
    says(worker, SAID)
    queue.enqueue(NOOP, job_id="later")
    gate.unlink()
    asked = conn.info("commandstats")["cmdstat_evalsha"]["calls"]
    eventually(lambda: conn.info("commandstats")["cmdstat_evalsha"]["calls"] > asked, 30, why="it goes on asking")
    assert status_of(conn, "running") == "started", "its outcome is kept"
    assert status_of(conn, "later") == "queued"
    assert "need a process" in unready(worker)
    need(conn, reader=1)
    eventually(lambda: status_of(conn, "later") == status_of(conn, "running") == "finished", 30)
    assert worker.output.count(SAID) == 1


def test_after_flushall_a_worker_writes_the_key_again(workers: Workers, conn: redis.Redis) -> None:
    workers.start("sms", "--lease", "3")
    first = schema_of(conn)
    assert first["version"] == str(THIS)
    conn.flushall()
    Queue("sms", conn).enqueue(NOOP, job_id="a")
    eventually(lambda: status_of(conn, "a") == "finished", 30)
    assert schema_of(conn)["version"] == str(THIS)
    assert schema_of(conn)["at"] > first["at"]


def test_a_scheduler_and_a_relay_wait_as_well(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    queue = Queue("sms", conn)
    queue.enqueue_in(0.001, NOOP, job_id="due")
    need(conn, reader=NEXT)
    events = tmp_path / "events.jsonl"
    scheduler = workers.start("--probe-port", "0", ready=False, program=SCHEDULER, env={"FUSION_TASKS": "*"})
    relay = workers.start("--events-file", str(events), "--probe-port", "0", ready=False, program=RELAY)
    for process in (scheduler, relay):
        says(process, SAID)
        assert f"need a process that knows schema {NEXT}" in unready(process)
    assert not conn.exists("rq:schedulers", "rq:relays", "rq:sink:file")
    assert status_of(conn, "due") == "scheduled"
    assert not events.exists() or not events.read_text()
    need(conn, reader=1)
    eventually(lambda: status_of(conn, "due") == "queued", 30)
    eventually(lambda: events.exists() and '"due"' in events.read_text(), 30)
    for process in (scheduler, relay):
        says(process, AGAIN)
        url = url_of(process)
        eventually(lambda url=url: get(f"{url}/readyz").status == 200, 30)  # type: ignore[misc]
    assert relay.output.count(SAID) <= 2, "the relay, and its courier of callbacks"


def test_a_supervisor_is_unready_as_long_as_its_processes_wait(workers: Workers, conn: redis.Redis) -> None:
    need(conn, reader=NEXT)
    top = workers.start("sms", "-n", "1", "--probe-port", "0", ready=False, program=START)
    says(top, SAID)
    url = url_of(top)
    assert "worker 1 is not ready" in get(f"{url}/readyz").text
    need(conn, reader=1)
    eventually(lambda: get(f"{url}/readyz").status == 200, 30)
