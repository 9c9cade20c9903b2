"""The checkers of promises raise the error that no gate forgives."""

from __future__ import annotations

import pytest
import redis

from fusion import Queue
from tests.faults.rig.conservation import check_conservation
from tests.kit.promises import PromiseBroken, promise


def test_a_lost_job_is_a_broken_promise(conn: redis.Redis) -> None:
    job = Queue("q", conn).enqueue("tests.jobs.basic.noop")
    check_conservation(conn, [job.id])
    conn.zrem("rq:queue:q", job.id)
    with pytest.raises(PromiseBroken, match="hash says queued, sets say None"):
        check_conservation(conn, [job.id])


def test_an_assertion_names_its_promises_and_other_errors_pass() -> None:
    with pytest.raises(PromiseBroken, match=r"^P1, P5: it ran twice"), promise("P1", "P5"):
        raise AssertionError("it ran twice")
    with pytest.raises(OSError, match="no network"), promise("P1"):
        raise OSError("no network")
