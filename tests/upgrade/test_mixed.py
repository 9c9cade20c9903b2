"""Two versions on one Redis, as during every deploy: what either writes the other runs, whoever dies meanwhile, and there is a way back."""

from __future__ import annotations

import os
import re
import signal
import socket
from pathlib import Path

import pytest
import redis

from fusion import Queue
from fusion.exceptions import SchemaMismatch
from fusion.store.layout import schema
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.waiting import eventually
from tests.kit.witnesses import lines, status_of
from tests.kit.workers import WorkerProcess, Workers
from tests.upgrade.newer import FIELD, ROOT, THIS, Version, newer
from tests.upgrade.test_schema import NEXT, need, schema_of
from tests.upgrade.test_turned_away import AGAIN, SAID, says

pytestmark = pytest.mark.long

LEASE = ("--lease", "3", "--no-relay")


@pytest.fixture(scope="session")
def new(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """One layout ahead of this version."""
    return newer(tmp_path_factory.mktemp("newer"))


@pytest.fixture(autouse=True)
def of_this(conn: redis.Redis) -> None:
    """Where there are no data yet the newer one would begin with its own layout."""
    Broker(conn).register("gone", "i", 1, 1, {})
    Broker(conn).deregister("gone", "i")


def produce(conn: redis.Redis, by: Version, path: Path, prefix: str, count: int) -> list[str]:
    ids = [f"{prefix}{i}" for i in range(count)]
    if by.home == ROOT:  # a process of its own would be no other
        for job_id in ids:
            Queue("q", conn).enqueue("tests.jobs.basic.sleep", 0.05, str(path), job_id, job_id=job_id)
        return ids
    done = by.produce("q", path, ids)
    assert done.returncode == 0, done.stderr
    return ids


def all_finished(conn: redis.Redis, ids: list[str], timeout: float = 60.0, *, grouped: bool = True) -> None:
    eventually(lambda: all(status_of(conn, job_id) == "finished" for job_id in ids), timeout, 0.05, why="every job is finished")
    assert set(check_conservation(conn, ids, grouped=grouped).values()) == {"finished"}


def knows(conn: redis.Redis) -> set[bytes | None]:
    return {conn.hget(key, "schema") for key in conn.smembers("rq:workers")}


def test_the_newer_one_is_another(new: Version) -> None:
    assert "99.0" in new.run("--version").stdout


def test_old_producer_new_worker(conn: redis.Redis, workers: Workers, new: Version, tmp_path: Path) -> None:
    ids = produce(conn, THIS, tmp_path / "ran", "old", 10)
    workers.start("q", *LEASE, program=new.program("worker"))
    assert knows(conn) == {str(NEXT).encode()}
    all_finished(conn, ids)
    assert schema_of(conn)["version"] == str(schema.VERSION), "only a person moves it"


def test_new_producer_old_worker(conn: redis.Redis, workers: Workers, new: Version, tmp_path: Path) -> None:
    ids = produce(conn, new, tmp_path / "ran", "new", 10)
    workers.start("q", *LEASE, program=THIS.program("worker"))
    all_finished(conn, ids)
    assert {conn.hget(f"rq:job:{job_id}", FIELD) for job_id in ids} == {b"x"}, "what it does not know it keeps"


@pytest.mark.timeout(180)
def test_both_at_once_under_kills_and_back_again(conn: redis.Redis, workers: Workers, new: Version, tmp_path: Path) -> None:
    both_at_once(conn, workers, THIS, new, tmp_path / "ran")


def both_at_once(conn: redis.Redis, workers: Workers, older: Version, later: Version, ran: Path) -> None:
    """Both versions' workers are killed in turn, then the later one is withdrawn: nothing is lost, what it left over the older one ends."""

    def start(version: Version) -> WorkerProcess:
        return workers.start("q", *LEASE, "--slots", "2", ready=False, program=version.program("worker"))

    fleet = {version: start(version) for version in (older, later)}
    ids: list[str] = []
    for kill, version in enumerate((later, older)):
        victim = fleet[version].wait_ready(60)
        ids += produce(conn, later if kill % 2 else older, ran, f"job{kill}-", 25)
        key, last = f"rq:worker:{_name(victim)}:jobs", ids[-1]
        eventually(
            lambda key=key, last=last: conn.hlen(key) or status_of(conn, last) == "finished", 30
        )  # mostly while it runs some
        os.killpg(victim.pid, signal.SIGKILL)
        victim.process.wait(10)
        fleet[version] = start(version)
    withdrawn = fleet[later].wait_ready(60)
    ids += produce(conn, later, ran, "last", 25)
    withdrawn.signal(signal.SIGTERM)
    assert withdrawn.wait(30) == 0, withdrawn.output
    assert not conn.exists(f"rq:worker:{_name(withdrawn)}")
    all_finished(conn, ids)
    ended = {line.split()[1] for line in lines(ran) if line.startswith("end-")}
    assert ended == set(ids), "and each of them ran to its end"


def _name(worker: WorkerProcess) -> str:
    return f"{socket.gethostname()}.{worker.pid}"


@pytest.mark.timeout(180)
def test_the_last_step_waits_for_the_old_ones_and_shuts_them_out(
    conn: redis.Redis, workers: Workers, new: Version, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    old = workers.start("q", *LEASE, program=THIS.program("worker"))
    fresh = workers.start("q", *LEASE, program=new.program("worker"))
    refused = new.run("schema", "--raise")
    assert refused.returncode == 3
    assert re.search(rf"worker \S+ knows schema {schema.VERSION} only", refused.stderr)
    assert schema_of(conn)["version"] == str(schema.VERSION)

    old.signal(signal.SIGTERM)
    assert old.wait(30) == 0
    done = new.run("schema", "--raise")
    assert done.returncode == 0, done.stderr
    assert f"Raised from schema {schema.VERSION}" in done.stdout
    assert (schema_of(conn)["version"], schema_of(conn)["min_reader"]) == (str(NEXT), str(NEXT))

    late = workers.start("q", *LEASE, ready=False, program=THIS.program("worker"))
    says(late, SAID)
    with pytest.raises(SchemaMismatch, match="upgrade it"):
        produce(conn, THIS, ran, "refused", 1)
    assert not conn.exists("rq:job:refused0")
    all_finished(conn, produce(conn, new, ran, "new", 5))

    fresh.signal(signal.SIGTERM)  # as if the data of before were restored
    assert fresh.wait(30) == 0
    need(conn, version=schema.VERSION)
    says(late, AGAIN)
    all_finished(conn, produce(conn, THIS, ran, "back", 5))
