"""The real last version of the first layout beside this one: what either writes the other runs, and the step is made while jobs are about."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import redis

from fusion import FailedQueue, Job, Queue, Retry
from fusion.exceptions import DataTooOld, NoSuchJobError
from fusion.store.write.schema_broker import SchemaBroker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import fields_of
from tests.kit.waiting import eventually
from tests.kit.witnesses import status_of
from tests.kit.workers import Workers
from tests.store.limits_hands import faults
from tests.upgrade.newer import Version, first
from tests.upgrade.test_mixed import LEASE, all_finished, produce
from tests.upgrade.test_schema import schema_of
from tests.upgrade.test_turned_away import SAID, says

pytestmark = [pytest.mark.long, pytest.mark.timeout(180)]
LONG = "a text that repeats itself, " * 40
ECHO, BOOM, GATED = (f"tests.jobs.basic.{name}" for name in ("echo", "boom", "until_gone"))


@pytest.fixture(scope="session")
def old(tmp_path_factory: pytest.TempPathFactory) -> Version:
    found = first(tmp_path_factory.mktemp("first"))
    if found is None:
        pytest.skip("neither FUSION_TEST_OLDER nor the history of this checkout has it")
    return found


@pytest.fixture(autouse=True)
def of_first(conn: redis.Redis, old: Version, tmp_path: Path) -> None:
    """It has been here first."""
    produce(conn, old, tmp_path / "ran", "first", 1)


def test_it_is_of_the_first_layout(old: Version, conn: redis.Redis) -> None:
    assert "This program: schema 1 " in old.run("schema").stdout
    assert not conn.exists("rq:schema")


def test_new_producer_old_worker(conn: redis.Redis, workers: Workers, old: Version) -> None:
    workers.start("q", *LEASE, program=old.program("worker"))
    queue = Queue("q", conn)
    echo = queue.enqueue(ECHO, LONG, meta={"note": LONG}, priority="high")
    later = queue.enqueue_in(0.3, ECHO, "later")
    many = queue.enqueue_many([Queue.prepare_data(ECHO, (i,)) for i in range(50)])
    all_finished(conn, ["first0", echo.id, later.id, *(job.id for job in many)])
    found = Job.fetch(echo.id, conn)
    assert (found.result, found.meta) == (LONG, {"note": LONG})
    assert not any("func" in fields_of(conn, job_id) for job_id in (echo.id, later.id, many[7].id))


def test_old_producer_new_worker(conn: redis.Redis, workers: Workers, old: Version, tmp_path: Path) -> None:
    ids = produce(conn, old, tmp_path / "ran", "old", 10)
    workers.start("q", *LEASE)
    all_finished(conn, ["first0", *ids])
    assert schema_of(conn)["version"] == "1"
    assert produce(conn, old, tmp_path / "ran", "again", 2)


def test_the_step_in_the_middle_of_a_backlog(conn: redis.Redis, workers: Workers, old: Version, tmp_path: Path) -> None:
    """Jobs of before wait, wait for their time, run and have failed; those of after are stored otherwise, and all of them end."""
    gate, ran = tmp_path / "gate", tmp_path / "ran"
    gate.touch()
    queue = Queue("q", conn)
    leaving = workers.start("q", *LEASE, "--slots", "2", program=old.program("worker"))
    failed = queue.enqueue(BOOM, LONG, retry=Retry(0))
    eventually(lambda: status_of(conn, failed.id) == "failed", 30)
    all_finished(conn, ["first0"], grouped=False)
    workers.start("q", *LEASE, "--slots", "2")
    leaving.signal(signal.SIGTERM)
    assert leaving.wait(30) == 0, leaving.output

    running = queue.enqueue(GATED, str(gate), job_id="running")
    eventually(lambda: status_of(conn, running.id) == "started", 30)
    later = queue.enqueue_in(3600, ECHO, LONG)
    paused = Queue("paused", conn)
    waiting = paused.enqueue(ECHO, LONG)

    assert SchemaBroker(conn).schema_raise("me") == []
    assert (schema_of(conn)["version"], schema_of(conn)["min_writer"]) == ("2", "2")
    queue.enqueue(ECHO, "this one tells the program")
    after = [queue.enqueue(ECHO, LONG), queue.enqueue(ECHO, 1, priority="high"), paused.enqueue(ECHO, 2)]
    assert ["func" in fields_of(conn, job.id) for job in after] == [True, True, True]
    assert ["func" in fields_of(conn, job.id) for job in (running, later, waiting)] == [False] * 3

    late = workers.start("q", *LEASE, ready=False, program=old.program("worker"))
    says(late, SAID)
    assert "SchemaMismatch" in old.produce("q", ran, ["refused"]).stderr
    with pytest.raises(NoSuchJobError):
        Job.fetch("refused", conn)

    gate.unlink()
    workers.start("paused", *LEASE)
    Job.fetch(later.id, conn).reschedule(0)
    FailedQueue(conn).requeue(failed.id)
    eventually(lambda: status_of(conn, failed.id) == "failed" and Job.fetch(failed.id, conn).attempts == 2, 30)
    all_finished(conn, [running.id, later.id, waiting.id, *(job.id for job in after)])
    assert Job.fetch(later.id, conn).result == Job.fetch(after[0].id, conn).result == LONG
    assert conn.hget(f"rq:job:{after[0].id}", "result")[:1] == b"x"
    assert conn.hget(f"rq:job:{later.id}", "result")[:1] == b'"', "a job keeps the layout in which it was written"
    assert set(check_conservation(conn, [failed.id]).values()) == {"failed"}


def test_jobs_with_keys_are_refused_while_an_older_worker_may_be_there(conn: redis.Redis, workers: Workers, old: Version) -> None:
    """It would start them beside each other: they come once nobody who knows no keys can."""
    older = workers.start("q", *LEASE, program=old.program("worker"))
    workers.start("q", *LEASE)
    queue = Queue("q", conn)
    for options in ({"concurrency_key": "k", "max_concurrent": 1}, {"rate": "10/s"}, {"fair_key": "tenant"}):
        with pytest.raises(DataTooOld, match="schema --raise"):
            queue.enqueue(ECHO, 1, job_id="refused", **options)
    assert not conn.exists("rq:job:refused") and not conn.keys("rq:limit*")
    assert SchemaBroker(conn).schema_raise("me"), "names who is in the way"
    assert schema_of(conn)["version"] == "1"
    all_finished(conn, ["first0", queue.enqueue(ECHO, 1).id])

    older.signal(signal.SIGTERM)
    assert older.wait(30) == 0, older.output
    assert SchemaBroker(conn).schema_raise("me") == []
    all_finished(conn, [queue.enqueue(ECHO, 1, concurrency_key="k", max_concurrent=1).id])


def test_an_old_worker_is_kept_out_once_jobs_have_fair_keys(
    conn: redis.Redis, workers: Workers, old: Version, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    queue = Queue("q", conn)
    newer = workers.start("q", *LEASE, "--slots", "4")
    all_finished(conn, ["first0"])
    assert SchemaBroker(conn).schema_raise("me") == []
    ids = [queue.enqueue(GATED, str(gate), concurrency_key="k", max_concurrent=1).id for _ in range(4)]
    eventually(lambda: status_of(conn, ids[0]) == "started", 30)
    late = workers.start("q", *LEASE, ready=False, program=old.program("worker"))
    says(late, SAID)
    assert "SchemaMismatch" in old.produce("q", tmp_path / "ran", ["refused"]).stderr
    assert [status_of(conn, one) for one in ids] == ["started", "blocked", "blocked", "blocked"]
    assert (faults(conn), conn.exists("rq:job:refused")) == ([], 0)

    newer.kill()
    workers.start("q", *LEASE)
    gate.unlink()
    all_finished(conn, ids)
    started = [fields[b"job_id"].decode() for _, fields in conn.xrange("rq:events") if fields[b"event"] == b"processing"]
    assert list(dict.fromkeys(one for one in started if one in ids)) == ids
    assert conn.keys("rq:limits:held:*") + conn.keys("rq:limits:waiting:*") == []
