"""P12: jobs do not feel what ails a sink."""

from __future__ import annotations

import os
from pathlib import Path
from statistics import median

import psutil
import pytest
import redis

from fusion.store.read.event_inspector import EventInspector
from fusion.store.write.broker import Broker
from tests.kit.hands import events_of, new
from tests.kit.promises import claim
from tests.kit.relays import DRIVER, Relays
from tests.kit.waiting import eventually
from tests.kit.workers import Workers
from tests.relay.harness import emit, sink_of

#: FUSION_TEST_ROUNDS: for a figure that means something.
ROUNDS = int(os.environ.get("FUSION_TEST_ROUNDS", "2"))
JOBS = 300 if ROUNDS == 2 else 2000
JOB = b'["tests.jobs.basic.noop", null, [], {}]'


def _rate(workers: Workers, conn: redis.Redis, round_: str) -> float:
    """Jobs a second from the first hand-out to the last outcome, by the server's clock."""
    broker = Broker(conn)
    for first in range(0, JOBS, 500):
        broker.enqueue(
            "default", [new(f"{round_}-{n}", data=JOB) for n in range(first, min(first + 500, JOBS))], f"{round_}{first}"
        )
    workers.burst("--no-relay", "--disable-job-desc-logging", "-q")
    steps = [entry for entry in events_of(conn) if entry["job_id"].startswith(f"{round_}-")]
    assert [entry["event"] for entry in steps].count("completed") == JOBS
    times = [
        int(entry_id.partition(b"-")[0])
        for entry_id, fields in conn.xrange("rq:events")
        if fields[b"job_id"].startswith(f"{round_}-".encode()) and fields[b"event"] in (b"processing", b"completed")
    ]
    return JOBS / ((max(times) - min(times)) / 1000)


@claim("P12")
@pytest.mark.long
def test_a_sink_that_hangs_or_is_down_costs_jobs_nothing(
    relays: Relays, workers: Workers, conn: redis.Redis, inspector: EventInspector, tmp_path: Path
) -> None:
    """Measured by turns. Of the rates it asserts far less than they show, so that a busy machine fails no one; what the relay itself uses is
    the same on any machine."""
    (tmp_path / "down.down").touch()
    emit(Broker(conn), 1000, "warm")
    rates: dict[str, list[float]] = {"none": [], "ill": []}
    spent = redis_spent = 0.0
    for n in range(ROUNDS):
        for kind in ("none", "ill") if n % 2 else ("ill", "none"):
            if kind == "none":
                rates[kind].append(_rate(workers, conn, f"{kind}{n}"))
                continue
            relay = relays.start("hang", f"down={tmp_path / 'down'}", program=DRIVER, env={"FUSION_LEASE": "15"})
            eventually(lambda: (sink := sink_of(inspector, "hang")) and sink.behind >= 500)
            before, redis_before = _spent(relay.pid), _redis_spent(conn)
            rates[kind].append(_rate(workers, conn, f"{kind}{n}"))
            spent, redis_spent = spent + _spent(relay.pid) - before, redis_spent + _redis_spent(conn) - redis_before
            relay.stop()
    tries = (tmp_path / "down.tries").stat().st_size
    ratio = median(rates["ill"]) / median(rates["none"])
    shown = {kind: [round(rate) for rate in found] for kind, found in rates.items()}
    print(f"\njobs/s by turns: {shown}; with sinks that hang and are down {100 * ratio:.1f} % of without")
    print(f"processor time meanwhile: relay {spent:.2f} s, Redis {redis_spent:.2f} s")
    assert ROUNDS <= tries <= 20 * ROUNDS, "pauses double from an eighth of a second on: eight tries in half a minute"
    assert ratio > 0.2
    assert spent < 3 * redis_spent


def _spent(pid: int) -> float:
    """Seconds of processor time."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def _redis_spent(conn: redis.Redis) -> float:
    found = conn.info("cpu")
    return float(found["used_cpu_sys"] + found["used_cpu_user"])
