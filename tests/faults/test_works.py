"""Without any fault: what a mutant must still do, or it would show nothing that its tests fail (see tests/faults/teeth)."""

from __future__ import annotations

from pathlib import Path

import redis

from fusion import Queue
from fusion.retry import Retry
from tests.faults.rig.conservation import check_ended, runs_seen
from tests.jobs import basic
from tests.kit.waiting import eventually
from tests.kit.witnesses import status_of
from tests.kit.workers import Workers


def test_a_worker_does_what_it_is_given(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    queue = Queue("w", conn)
    jobs = [queue.enqueue(basic.witness, str(seen), "ran") for _ in range(5)]
    jobs += [queue.enqueue_in(0.05, basic.witness, str(seen), "ran")]
    fails = queue.enqueue(basic.boom, retry=Retry(max=1, interval=0))
    worker = workers.start("w")
    names = [job.id for job in jobs]
    eventually(lambda: [status_of(conn, name) for name in names] == ["finished"] * 6, 20, why="all have run")
    eventually(lambda: status_of(conn, fails.id) == "failed", 20, why="it was tried twice and has failed")
    check_ended(conn, [*names, fails.id])
    assert runs_seen(seen, word="ran") == dict.fromkeys(names, 1)
    assert worker.process.poll() is None
