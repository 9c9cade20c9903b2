"""Lower priorities under an endless stream of higher ones: with `set_max_wait` they start, and those hardly wait longer for it."""

from __future__ import annotations

import statistics
import time

import pytest
import redis

from fusion import Queue
from tests.jobs import bounded
from tests.kit.workers import Workers

HIGH, LOW = 2, 0
#: HIGH jobs that wait at any moment: more than a worker claims at once, ahead too.
BACKLOG = 48


def _lags(conn: redis.Redis, priority: int) -> list[float]:
    """Milliseconds that each started job had waited, by the events of its arrival and its claim."""
    arrived, lags = dict[bytes, int](), list[float]()
    for stamp, event in conn.xrange("rq:events"):
        at, job_id = int(stamp.split(b"-")[0]), event[b"job_id"]
        if event[b"event"] == b"queued" and event.get(b"priority") == b"%d" % priority:
            arrived[job_id] = at
        elif event[b"event"] == b"processing" and job_id in arrived:
            lags.append(at - arrived[job_id])
    return lags


def _under_load(queue: Queue, conn: redis.Redis, seconds: float) -> tuple[list[float], int]:
    """What HIGH jobs waited, and how many LOW ones started."""
    conn.delete("rq:events")
    end, low = time.monotonic() + seconds, 20
    while time.monotonic() < end:
        missing = BACKLOG - conn.zcount("rq:queue:q", HIGH, "+inf")
        if missing > 0:
            queue.enqueue_many([queue.prepare_data(bounded.nap, [0.01], priority=HIGH) for _ in range(missing)])
        if low:
            queue.enqueue_many([queue.prepare_data(bounded.nap, [0.005], priority=LOW) for _ in range(low)])
            low = 0
        time.sleep(0.002)  # the feeder's rhythm
    lags, started = _lags(conn, HIGH), len(_lags(conn, LOW))
    queue.empty()
    return lags, started


@pytest.mark.long
def test_low_jobs_start_and_high_ones_hardly_wait_for_them(workers: Workers, conn: redis.Redis) -> None:
    queue = Queue("q")
    workers.start("q", "--slots", "4", "--horses", "4", "--disable-job-desc-logging", env={"FUSION_TASKS": "tests.jobs.bounded"})
    _under_load(queue, conn, 1)
    without, started = _under_load(queue, conn, 4)
    assert started == 0, "they starve"
    queue.set_max_wait("0.2s")
    guarded, started = _under_load(queue, conn, 4)
    p99 = [statistics.quantiles(lags, n=100)[98] for lags in (without, guarded)]
    print(
        f"HIGH start p99 {p99[0]:.0f} ms without max_wait ({len(without)} jobs), {p99[1]:.0f} ms with it ({len(guarded)}); {started} LOW"
    )
    assert started == 20
    assert p99[1] < p99[0] * 1.1 + 10  # alone on a machine 1 to 5 ms more of 50
