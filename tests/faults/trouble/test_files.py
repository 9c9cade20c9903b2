"""What a crash leaves of the append-only file: a torn end costs what had not been answered, damage in the middle stops the server."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusion import Queue
from fusion.exceptions import ConfigurationError
from fusion.store.client.connections import connect
from fusion.store.redis_server.binary import ServerBinary
from fusion.store.redis_server.instance import EmbeddedRedis
from tests.faults.rig.conservation import memberships
from tests.jobs import basic
from tests.kit.private_redis import PrivateRedis
from tests.kit.waiting import eventually
from tests.kit.witnesses import runs_of
from tests.kit.workers import Workers
from tests.worker.test_redis_trouble import QUICK, Jobs

pytestmark = pytest.mark.timeout(180)


def newest(home: Path) -> Path:
    """The file that is written to."""
    return max(home.rglob("*.incr.aof"), key=lambda path: path.stat().st_mtime)


@pytest.mark.parametrize("cut", [1, 2, 7, 40, 300, 2000] if os.environ.get("FUSION_TEST_CRASH") == "full" else [7])
def test_a_torn_end(private_redis: PrivateRedis, private_workers: Workers, tmp_path: Path, cut: int) -> None:
    """Whatever a script did is there or not, as a whole: every job that is known is in exactly one place, and all are run."""
    jobs = Jobs(private_redis.conn, tmp_path)
    worker = private_workers.start("r", "--slots", "2", "--disable-job-desc-logging", env={**QUICK, "FUSION_LEASE": "1"})
    jobs.gate.unlink()
    jobs.short(60)
    eventually(lambda: len(runs_of(jobs.seen, "short")) >= 15, 20, why="jobs run")
    worker.signal(signal.SIGSTOP)  # so that nothing moves while it is looked at
    private_redis.kill()
    file = newest(Path(private_redis.url.partition("?")[0].removeprefix("unix://")).parent)
    with file.open("r+b") as torn:
        torn.truncate(file.stat().st_size - cut)
    private_redis.revive()
    found = memberships(jobs.conn)
    assert all(len(states) == 1 for states in found.values()), found
    known = {key.decode().removeprefix("rq:job:") for key in jobs.conn.scan_iter("rq:job:*", count=1000)}
    assert known == set(found)
    assert len(known) >= (59 if cut < 300 else 50), "only what was accepted at the very end can be missing"
    worker.signal(signal.SIGCONT)
    eventually(lambda: jobs.conn.zcard("rq:finished:r") == len(known), 40, why="all are run")
    assert worker.process.poll() is None
    job = Queue("r", jobs.conn).enqueue(basic.add, 1, 2)
    assert job.wait(20) == "finished"


@pytest.fixture
def home() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="fus", dir="/tmp"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def test_damage_in_the_middle_is_never_passed_over(home: Path, server_binary: ServerBinary) -> None:
    server = EmbeddedRedis(home, server=server_binary)
    with connect(server.start()) as conn:
        jobs = [Queue("r", conn).enqueue(basic.noop) for _ in range(20)]
    server.stop()
    file = newest(home)
    sound = file.read_bytes()
    middle = len(sound) // 2
    file.write_bytes(sound[:middle] + b"\x00" * 40 + sound[middle + 40 :])
    with pytest.raises(ConfigurationError) as caught:
        server.start()
    assert "make a backup" in str(caught.value)
    assert "check-aof --fix" in str(caught.value), "it says what to do"
    assert server.status().state == "stopped"
    file.write_bytes(sound)  # the backup
    with connect(server.start()) as conn:
        assert set(memberships(conn)) == {job.id for job in jobs}
    server.stop()
