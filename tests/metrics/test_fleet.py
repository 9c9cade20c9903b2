"""Metrics of the fleet: the truth as it was sampled, one read for all who ask, bounded in names and in the time of the server."""

from __future__ import annotations

import secrets
from typing import Any, cast

import pytest
import redis

from fusion import Queue
from fusion.kernel.scope import Scope
from fusion.metrics.catalogue import FLEET, METRICS, MOST_NAMES, OTHER
from fusion.store.read.worker_inspector import WorkerInfo
from fusion.store.write.broker import Broker
from fusion.web.metrics import FleetPage
from fusion.web.rq_metrics import RqNames
from tests.jobs import basic
from tests.kit.hands import Hand, put, wire
from tests.kit.private_redis import PrivateRedis
from tests.metrics.pages import Samples, names, one, samples, values
from tests.store.test_sample import age


def sample(broker: Broker) -> None:
    while broker.sample(0):
        pass


def shown(conn: redis.Redis, scope: Scope | None = None, **more: Any) -> Samples:
    page = FleetPage(conn, **more)
    return samples(page.write(scope) if scope else page.write())


def busy(broker: Broker, conn: redis.Redis) -> None:
    """Three that wait, one that runs, one that finished, one that failed; a paused queue, a scheduled job."""
    hand = Hand(broker, "sms", "mail*")
    put(broker, "sms", "done", "bad", "runs", priority=2)
    assert hand.tell(hand.take(), "finished") == "ok"
    assert hand.tell(hand.take(), "failed", reason="so") == "ok"
    hand.take()
    put(broker, "sms", "a", "b", priority=2)
    put(broker, "mail-eu", "low", priority=0)
    age(conn, "a", 65)
    broker.pause("mail-eu")
    Queue("sms", conn).enqueue_in(3600, basic.noop)
    sample(broker)


def test_each_figure_is_the_truth(broker: Broker, conn: redis.Redis) -> None:
    busy(broker, conn)
    found = shown(conn)
    waiting = {(queue, priority): one(found, "fusion_queue_waiting", queue=queue, priority=priority)
               for queue in ("sms", "mail-eu") for priority in ("low", "moderate", "high")}  # fmt: skip
    assert {key: value for key, value in waiting.items() if value} == {("sms", "high"): 2, ("mail-eu", "low"): 1}
    assert one(found, "fusion_queue_oldest_age_seconds", queue="sms", priority="high") == pytest.approx(65, abs=3)
    assert one(found, "fusion_queue_oldest_age_seconds", queue="sms", priority="low") == 0
    counts = {status: one(found, "fusion_jobs", queue="sms", status=status) for status in values(found, "status")}
    assert counts == {"started": 1, "blocked": 0, "deferred": 0, "finished": 1, "canceled": 0, "stopped": 0}
    assert one(found, "fusion_queue_paused", queue="mail-eu") == 1
    assert one(found, "fusion_queue_paused", queue="sms") == 0
    assert one(found, "fusion_queue_workers", queue="sms") == one(found, "fusion_queue_workers", queue="mail-eu") == 1
    assert (one(found, "fusion_failed_jobs"), one(found, "fusion_scheduled_jobs")) == (1, 1)
    assert one(found, "fusion_sample_age_seconds") < 5
    assert one(found, "fusion_redis_up") == 1
    assert one(found, "fusion_redis_memory_bytes") > 100_000
    assert one(found, "fusion_workers", state="dead") == 0


def test_every_metric_of_the_fleet_is_there_and_no_other(broker: Broker, conn: redis.Redis, events: Any) -> None:
    busy(broker, conn)
    events.relay_beat("relay.1", secrets.token_hex(8), 30, 420, ["file"], 1000, {"sinks": "file"})
    conn.xgroup_create("rq:events", "file", "0", mkstream=True)
    flow = [int(word) for word in conn.get("rq:flow:sms").split()]
    conn.set("rq:flow:sms", " ".join(map(str, [flow[0] - 60_000, *flow[1:]])))
    assert names(shown(conn)) == {metric.name for metric in METRICS if metric.source == FLEET}


def test_rates_are_per_second(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a")
    sample(broker)
    words = conn.get("rq:flow:q").split()
    now = int(words[4])
    conn.set("rq:flow:q", b" ".join([b"%d 0 0 0 %d 120 60 30" % (now - 60_000, now), *words[8:]]))
    found = shown(conn)
    rates = [one(found, f"fusion_queue_{what}_per_second", queue="q") for what in ("enqueued", "ended", "failed")]
    assert rates == [2, 1, 0.5]


def test_lateness_is_that_of_the_first_that_is_due(broker: Broker, conn: redis.Redis) -> None:
    now = conn.time()[0]
    conn.zadd("rq:scheduler:scheduled_jobs", {"a": now - 30, "b": now + 30})
    conn.zadd("rq:cron:due", {"paused": float("inf"), "nightly": now - 90})
    found = shown(conn)
    assert one(found, "fusion_scheduler_lateness_seconds") == pytest.approx(30, abs=2)
    assert one(found, "fusion_cron_lateness_seconds") == pytest.approx(90, abs=2)


def test_a_restricted_token_sees_its_own_queues_only(broker: Broker, conn: redis.Redis) -> None:
    busy(broker, conn)
    found = shown(conn, Scope(("mail*",)))
    assert values(found, "queue") == {"mail-eu"}
    assert one(found, "fusion_queue_waiting", queue="mail-eu", priority="low") == 1
    of_all = {metric.name for metric in METRICS if metric.source == FLEET and "queue" not in metric.labels}
    assert names(found) & of_all == {"fusion_sample_age_seconds", "fusion_redis_up"}
    assert not any(name.startswith("rq_") for name in names(shown(conn, Scope(("mail*",)), compat_rq=True)))


def test_who_asks_within_five_seconds_shares_one_read(broker: Broker, conn: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    busy(broker, conn)
    page = FleetPage(conn)
    first = samples(page.write())
    put(broker, "sms", "later")
    sample(broker)
    with wire(conn) as sent:
        again, restricted = samples(page.write()), samples(page.write(Scope(("sms",))))
    assert not sent
    assert one(again, "fusion_queue_waiting", queue="sms", priority="moderate") == 0
    assert "mail-eu" not in values(restricted, "queue")
    assert one(again, "fusion_sample_age_seconds") > one(first, "fusion_sample_age_seconds"), "it goes on"
    page._until = 0.0
    assert one(samples(page.write()), "fusion_queue_waiting", queue="sms", priority="moderate") == 1


def test_beyond_500_queues_the_rest_is_other_in_sum_and_at_most(broker: Broker, conn: redis.Redis) -> None:
    for number in range(MOST_NAMES + 3):
        put(broker, f"q{number:04}", f"j{number}")
    age(conn, f"j{MOST_NAMES + 1}", 500)
    sample(broker)
    found = shown(conn)
    assert len(values(found, "queue")) == MOST_NAMES + 1
    assert one(found, "fusion_queue_waiting", queue=OTHER, priority="moderate") == 3
    assert one(found, "fusion_queue_oldest_age_seconds", queue=OTHER, priority="moderate") == pytest.approx(500, abs=5)
    assert one(found, "fusion_queue_waiting", queue="q0499", priority="moderate") == 1


def test_the_age_tells_that_nobody_samples_any_more(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a")
    sample(broker)
    conn.hset("rq:sample", "began", (conn.time()[0] - 400) * 1000)
    conn.delete("rq:flow:q")
    found = shown(conn)
    assert one(found, "fusion_sample_age_seconds") == pytest.approx(400, abs=3)
    assert "queue" not in {label for _, labels in found for label, _ in labels}


def test_broken_and_foreign_keys_hide_nothing_else(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "good", "a")
    put(broker, "bad", "b")
    conn.set("rq:finished:good", "no zset")
    conn.delete("rq:queue:bad")
    conn.set("rq:queue:bad", "no zset")
    sample(broker)
    conn.set("rq:flow:strange", "1 2 3")
    conn.sadd("rq:queues", "rq:queue:strange")
    conn.sadd("rq:workers", "rq:worker:strange")
    conn.set("rq:worker:strange", "no hash")
    found = shown(conn)
    assert values(found, "queue") == {"good"}
    assert one(found, "fusion_jobs", queue="good", status="finished") == 0


def test_without_redis_the_page_says_so_and_nothing_else(private_redis: PrivateRedis) -> None:
    client = redis.Redis.from_url(private_redis.url)
    page = FleetPage(client, compat_rq=True)
    assert one(samples(page.write()), "fusion_redis_up") == 1
    private_redis.kill()
    page._until = 0.0
    assert samples(page.write()) == {("fusion_redis_up", ()): 0}


def test_a_read_of_a_thousand_queues_takes_redis_little_time(broker: Broker, conn: redis.Redis) -> None:
    for number in range(1000):
        queue, ids = f"queue-{number:04}", [f"job-{number}-{of}" for of in range(3)]
        for of in range(3):
            put(broker, queue, ids[of], priority=of)
    for number in range(20):
        Hand(broker, "queue-*", f"sms{number}", name=f"host.{number}")
    sample(broker)
    least, slowest = 1e9, 1e9
    for _ in range(3):
        conn.config_resetstat()
        found = shown(conn)
        stats = cast(dict[str, dict[str, float]], conn.info("commandstats"))
        spent = {name: row for name, row in stats.items() if name != "cmdstat_config|resetstat"}
        least = min(least, sum(row["usec"] for row in spent.values()) / 1000)
        slowest = min(slowest, max(row["usec_per_call"] for row in spent.values()) / 1000)
    assert one(found, "fusion_queue_waiting", queue="queue-0499", priority="high") == 1
    print(f"a scrape: {least:.2f} ms of Redis; slowest call {slowest:.2f} ms")
    assert least <= 6
    assert slowest <= 2


# -- the names of rq-exporter


def test_names_and_labels_of_rq_exporter(broker: Broker, conn: redis.Redis) -> None:
    """As rq-exporter 3.1.0 has them in its collector."""
    busy(broker, conn)
    found = shown(conn, compat_rq=True)
    labels = {name: {label for label, _ in pairs} for name, pairs in found if name.startswith("rq_")}
    assert labels == {
        "rq_workers": {"name", "state", "queues"},
        "rq_workers_success_total": {"name", "queues"},
        "rq_workers_failed_total": {"name", "queues"},
        "rq_workers_working_time_total": {"name", "queues"},
        "rq_jobs": {"queue", "status"},
        "rq_request_processing_seconds_count": set(),
        "rq_request_processing_seconds_sum": set(),
    }
    assert one(found, "rq_workers", name="host.1", state="busy", queues="sms,mail*") == 1
    assert one(found, "rq_workers_success_total", name="host.1", queues="sms,mail*") == 1
    assert one(found, "rq_workers_failed_total", name="host.1", queues="sms,mail*") == 1
    jobs = {status: one(found, "rq_jobs", queue="sms", status=status) for status in ("queued", "started", "finished", "deferred")}
    assert jobs == {"queued": 2, "started": 1, "finished": 1, "deferred": 0}
    assert one(found, "rq_jobs", queue="failed", status="failed") == 1
    assert one(found, "rq_jobs", queue="scheduled", status="scheduled") == 1
    assert not any(name.startswith("rq_") for name in names(shown(conn)))


def worker(name: str, count: int) -> WorkerInfo:
    return WorkerInfo(name, "idle", ("q",), "", "", 1, None, None, True, count, 0, 0.0)


def test_no_counter_of_rq_exporter_goes_down_as_workers_come_and_go(broker: Broker, conn: redis.Redis) -> None:
    from dataclasses import replace

    from fusion.metrics.page import written
    from fusion.store.access import sample_inspector_of

    fleet, rq = sample_inspector_of(conn).fleet(), RqNames()
    first = [worker(f"w{number}", 10) for number in range(MOST_NAMES + 10)]
    later = [worker(f"w{number}", 12) for number in range(200, MOST_NAMES + 5)]
    last = [*later, *(worker(f"x{number}", 1) for number in range(300))]
    before: Samples = {}
    for workers in (first, later, last, later, last):
        now = samples(written(rq.families(replace(fleet, workers=tuple(workers)))))
        for key, value in now.items():
            assert key[0].startswith(("rq_workers_success_total",)) is False or value >= before.get(key, 0), key
        assert len(values(now, "name")) <= MOST_NAMES + 1
        before |= {key: value for key, value in now.items() if value or key not in before}
    assert one(before, "rq_workers_success_total", name=OTHER, queues="") >= 5 * 10 + 5 * 12
