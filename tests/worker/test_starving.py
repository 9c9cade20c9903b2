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
#: LOW jobs that wait meanwhile.
WAITING = 20
#: Times that both are measured, by turns. Of each the least is compared: LOW jobs that take from HIGH ones do so every time, while what else
#: the machine does comes and goes.
TRIALS = 8


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


def _p99(lags: list[float]) -> float:
    return statistics.quantiles(lags, n=100)[98]


def _under_load(queue: Queue, conn: redis.Redis, seconds: float) -> tuple[list[float], int]:
    """What HIGH jobs waited, and how many LOW ones started; -1 where a busy machine let HIGH ones run out."""
    conn.delete("rq:events")
    end, began, ran_out = time.monotonic() + seconds, False, False
    while time.monotonic() < end:
        for priority, (lowest, highest), count, naps in (
            (HIGH, (HIGH, "+inf"), BACKLOG, 0.01),
            (LOW, (LOW, f"({HIGH}"), WAITING, 0.005),
        ):
            missing = count - conn.zcount("rq:queue:q", lowest, highest)
            ran_out = ran_out or (began and priority == HIGH and missing == count)
            if missing > 0:
                queue.enqueue_many([queue.prepare_data(bounded.nap, [naps], priority=priority) for _ in range(missing)])
        began = True
        time.sleep(0.002)  # the feeder's rhythm
    lags, started = _lags(conn, HIGH), len(_lags(conn, LOW))
    queue.empty()
    return lags, -1 if ran_out else started


def _hardly_more(guarded: list[float], without: list[float]) -> bool:
    """By the least of each; or by the pairs, where the machine does so much else that the least is chance."""
    pairs = [one / other for one, other in zip(guarded, without, strict=True)]
    return min(guarded) < min(without) * 1.1 + 10 or statistics.median(pairs) < 1.1


@pytest.mark.long
def test_low_jobs_start_and_high_ones_hardly_wait_for_them(workers: Workers, conn: redis.Redis) -> None:
    queue = Queue("q")
    workers.start("q", "--slots", "4", "--horses", "4", "--disable-job-desc-logging", env={"FUSION_TASKS": "tests.jobs.bounded"})
    _under_load(queue, conn, 1)
    without, guarded = list[float](), list[float]()
    for _ in range(TRIALS):
        queue.set_max_wait(None)
        lags, started = _under_load(queue, conn, 2)
        assert started <= 0, "they starve"
        without.append(_p99(lags))
        queue.set_max_wait("0.2s")
        lags, started = _under_load(queue, conn, 3)
        assert started >= 20 or started < 0
        guarded.append(_p99(lags))
        print(f"HIGH start p99 {without[-1]:.0f} ms without max_wait, {guarded[-1]:.0f} ms with it ({len(lags)} jobs)")
        if len(guarded) >= 3 and _hardly_more(guarded, without):
            break
    assert _hardly_more(guarded, without), (guarded, without)  # alone on a machine 1 to 5 ms more of 50
