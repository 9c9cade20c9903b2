"""What workers saw of jobs: summed in memory, written with the sign of life, once, bounded."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from fusion.execution.completion import Decision
from fusion.kernel.timeutil import to_iso
from fusion.runtime.history import History
from fusion.runtime.outbox import PendingOutcome
from fusion.runtime.redis_link import RedisAway, RedisLink
from fusion.store.layout.history import BOUNDS, MOST_NAMES, OTHER, bucket, percentile
from fusion.store.layout.records import Claimed
from fusion.store.read.inspector import Inspector
from fusion.store.read.totals import summary
from fusion.store.write.broker import Broker
from tests.kit.workers import Workers

LOG = logging.getLogger("test")


def history(broker: Any) -> History:
    return History(broker, RedisLink(LOG), SimpleNamespace(name="host.1"), 10.0, LOG)  # type: ignore[arg-type]


def ran(
    queue: str = "q",
    func: str = "tasks.f",
    *,
    kind: str = "finished",
    wait: float = 0.0,
    run: float = 0.0,
    peak: int = 0,
    **fields: str,
) -> PendingOutcome:
    came = to_iso(datetime.now(timezone.utc) - timedelta(seconds=wait + run))
    row = {
        b"func": func.encode(),
        b"enqueued_at": came.encode(),
        **{name.encode(): value.encode() for name, value in fields.items()},
    }
    return PendingOutcome(Claimed(queue, "a", "x:1:1", row), Decision(kind), time.monotonic(), run, peak)


def tell(conn: redis.Redis, *results: PendingOutcome) -> History:
    made = history(Broker(conn))
    for result in results:
        made.note(result)
    made.tick(time.monotonic())
    return made


def counted(conn: redis.Redis, scope: str, name: str, since: float = 3600) -> dict[str, int]:
    steps = Inspector(conn).history(scope, name, since)
    return {what: sum(step.counts[what] for step in steps) for what in ("completed", "failed", "retried")}


def test_counts_and_times_of_a_queue_and_of_a_function(conn: redis.Redis) -> None:
    slow = [ran(wait=40, run=3, priority="2") for _ in range(10)]
    tell(conn, *slow, ran(kind="failed"), ran(kind="retry"), ran(kind="release"), ran("other", "tasks.g"))
    for since in (3600, 7 * 86400):
        assert counted(conn, "queue", "q", since) == {"completed": 10, "failed": 1, "retried": 1}
        assert counted(conn, "function", "tasks.f", since) == {"completed": 10, "failed": 1, "retried": 1}
        assert counted(conn, "function", "tasks.g", since)["completed"] == 1
        found = summary(Inspector(conn).history("queue", "q", since))[2]
        assert found["wait"]["p50"] == pytest.approx(45, abs=15)
        assert found["run"]["p99"] == pytest.approx(3.5, abs=1.5)


def test_the_most_of_a_run_is_told_of_functions_rounded_up_over_queues_and_classes(conn: redis.Redis) -> None:
    slow = [ran(run=0.9, peak=50), ran(run=1.2341, peak=70, priority="2"), ran("other", run=1.1, kind="failed", peak=60)]
    tell(conn, *slow, ran(kind="release", run=9, peak=99), ran("q", "tasks.g", run=0.00001))
    (hour,) = Inspector(conn).histories("function", ["tasks.f"], 1)["tasks.f"]
    assert (hour.slowest, hour.peak) == (1.235, 70)
    (hour,) = Inspector(conn).histories("function", ["tasks.g"], 1)["tasks.g"]
    assert (hour.slowest, hour.peak) == (0.001, None), "nobody knew its memory"
    assert not [field for key in conn.keys("rq:history:*:queue:*") for field in conn.hkeys(key) if field.count(b":") != 2]


@pytest.mark.parametrize("seconds", [0.0, 0.0099999, 0.01, 0.0100001, 0.02, 0.499999, 60.0, 21600.0, 90000.0])
def test_a_measured_run_is_in_the_range_in_which_it_is_counted(conn: redis.Redis, seconds: float) -> None:
    """Else it would be taken for one that another worker has not measured."""
    tell(conn, ran(run=seconds))
    (hour,) = Inspector(conn).histories("function", ["tasks.f"], 1)["tasks.f"]
    assert hour.slowest_run == pytest.approx(seconds, abs=0.001) if seconds else hour.slowest_run == 0.01


def test_a_slower_run_that_nobody_measured_counts_by_the_end_of_its_range(conn: redis.Redis) -> None:
    """Of a worker of an older version, beside one of this."""
    tell(conn, ran(run=0.3))
    rows = [(0, "1:completed", 1), (0, "1:r6", 1)]
    Broker(conn).note_history("host.2", 1, {("function", "tasks.f"): rows, ("function", "tasks.old"): rows})
    found = Inspector(conn).histories("function", ["tasks.f", "tasks.old", "tasks.none"], 1)
    assert [hours[0].slowest_run for hours in found.values()] == [1.0, 1.0, None]
    tell(conn, ran(run=0.9))
    assert Inspector(conn).histories("function", ["tasks.f"], 1)["tasks.f"][0].slowest_run == 0.9


def test_a_wait_is_that_of_the_first_attempt(conn: redis.Redis) -> None:
    tell(conn, ran(wait=300, attempts="1"))
    assert "wait" not in summary(Inspector(conn).history("queue", "q", 3600))[1]


def test_priorities_of_any_number_are_three_classes(conn: redis.Redis) -> None:
    """Of workers, and of what earlier ones wrote; whose rates are read by priority."""
    tell(conn, *(ran(wait=3, run=3, priority=str(number)) for number in range(102)), ran(priority="much"))
    fields = {field.split(b":")[1] for key in conn.keys("rq:history:*:q:*") for field in conn.hkeys(key)}
    assert fields == {b"0", b"1", b"2"}
    Broker(conn).note_history(
        "host.2", 1, {("queue", "q"): [(0, f"{of}:{what}", 1) for of in (57, 101) for what in ("failed", "r3", "w3")]}
    )
    found = summary(Inspector(conn).history("queue", "q", 3600))
    assert [*found] == [2, 1, 0] and counted(conn, "queue", "q") == {"completed": 103, "failed": 2, "retried": 0}
    conn.hset("rq:totals:q", mapping={"enqueued:57": 1, "enqueued:101": 1})
    assert Inspector(conn).recent(["q"])[0] == {"completed": 103, "failed": 2}


def test_no_history_is_written_without_runs(conn: redis.Redis) -> None:
    made = tell(conn)
    assert made.next_at == float("inf")
    assert conn.keys("rq:history*") == []


def test_history_is_written_in_time(conn: redis.Redis) -> None:
    made = history(Broker(conn))
    made.note(ran())
    assert 0 < made.next_at - time.monotonic() <= 10
    made.tick(time.monotonic())
    assert made.next_at == float("inf")


def test_a_call_that_is_sent_again_counts_once(broker: Broker, conn: redis.Redis) -> None:
    broker.register("host.1", "i", 30, 420, {})
    rows = {("queue", "q"): [(0, "1:completed", 5)]}
    for number in (1, 1, 2, 1):
        broker.note_history("host.1", number, rows)
    assert counted(conn, "queue", "q")["completed"] == 10


class _Away:
    """A broker whose Redis is away at first: what it is sent."""

    def __init__(self) -> None:
        self.away, self.told = True, list[Any]()

    def note_history(self, worker: str, number: int, rows: Any) -> None:
        self.told.append((number, rows))
        if self.away:
            raise redis.ConnectionError("away")


def test_history_is_kept_during_an_outage_and_sent_under_its_number() -> None:
    broker = _Away()
    made = history(broker)
    made.note(ran())
    for _ in range(2):
        with pytest.raises(RedisAway):
            made.tick(0)
    made.note(ran())
    broker.away = False
    made.tick(0)
    assert [number for number, _ in broker.told] == [1, 1, 1, 2]


def test_an_error_reply_drops_it(conn: redis.Redis) -> None:
    conn.set("rq:history:queues", "another's")
    made = tell(conn, ran())
    assert made.next_at == float("inf")


def test_more_names_than_there_may_be_are_one_together(conn: redis.Redis) -> None:
    tell(conn, *(ran(f"q{i}", f"tasks.f{i}") for i in range(MOST_NAMES + 30)))
    names = Inspector(conn).history_names("queue")
    assert len(names) == MOST_NAMES
    total = sum(counted(conn, "queue", name)["completed"] for name in [*names, OTHER])
    assert total == MOST_NAMES + 30
    assert counted(conn, "queue", OTHER)["completed"] >= 30
    now = conn.time()[0] * 1000
    conn.zadd("rq:history:queues", {names[0]: now - 31 * 86400_000})
    tell(conn, ran("new"))
    assert "new" in Inspector(conn).history_names("queue"), "one that nobody used for a month made room"


def _keyless(conn: redis.Redis) -> dict[str, int]:
    return {one.function: one.count for one in Inspector(conn).keyless()}


def test_jobs_without_the_key_they_should_have_are_counted_by_function(conn: redis.Redis) -> None:
    broker = Broker(conn)
    broker.register("host.1", "i", 30, 420, {})
    made = history(broker)
    for function in ("tasks.f", "tasks.g", "tasks.f", "no name \x1b[2J"):
        made.note_keyless(function)
    made.note(ran())
    assert 0 < made.next_at - time.monotonic() <= 10
    made.tick(time.monotonic())
    assert _keyless(conn) == {"tasks.f": 2, "tasks.g": 1, OTHER: 1}
    assert counted(conn, "queue", "q")["completed"] == 1
    rows = {("keyless", "tasks.f"): [(0, "", 5)], ("queue", "q"): [(0, "1:completed", 1), (0, "1:failed", 1)]}
    for _ in range(2):
        broker.note_history("host.1", 7, rows)  # type: ignore[arg-type]
    assert _keyless(conn)["tasks.f"] == 7, "a call that is sent again counts once"
    assert counted(conn, "queue", "q") == {"completed": 2, "failed": 1, "retried": 0}


def test_a_bounded_number_of_keyless_functions_is_kept_for_a_day(conn: redis.Redis) -> None:
    made = history(Broker(conn))
    for number in range(MOST_NAMES + 30):
        made.note_keyless(f"tasks.f{number}")
    made.tick(time.monotonic())
    assert conn.hlen("rq:history:keyless") == MOST_NAMES + 1
    assert _keyless(conn)[OTHER] == 30
    assert conn.pttl("rq:history:keyless") == pytest.approx(86400_000, abs=5000)
    before = conn.time()[0] * 1000 - 86400_000 - 1000
    conn.hset("rq:history:keyless", "tasks.f0", f"3 {before}")
    made.note_keyless("tasks.f1")
    made.tick(time.monotonic())
    assert "tasks.f0" not in _keyless(conn)
    assert _keyless(conn)["tasks.f1"] == 2


def test_everything_has_an_end(conn: redis.Redis) -> None:
    tell(conn, ran())
    ends = {key.split(b":")[2]: conn.ttl(key) for key in conn.keys("rq:history:*:*:*:*")}
    assert ends == {b"minute": pytest.approx(25 * 3600, abs=5), b"hour": pytest.approx(31 * 86400, abs=5)}


def test_a_pickle_and_what_is_no_name_have_no_name_of_their_own(conn: redis.Redis) -> None:
    tell(conn, ran(func="no name \x1b[2J"), ran(func=""))
    assert Inspector(conn).history_names("function") == [OTHER] or counted(conn, "function", OTHER)["completed"] == 2


@pytest.mark.parametrize("seconds", [0.0, 0.01, 0.015, 1.0, 59.0, 21600.0, 1e9])
def test_a_time_is_in_its_bucket(seconds: float) -> None:
    number = bucket(seconds)
    assert seconds <= BOUNDS[number] or number == len(BOUNDS) - 1
    assert number == 0 or seconds > BOUNDS[number - 1]


def _counts(times: Sequence[float]) -> list[int]:
    found = [0] * len(BOUNDS)
    for one in times:
        found[bucket(one)] += 1
    return found


def test_percentiles_are_exact_to_the_bucket() -> None:
    times = sorted(0.001 * 1.09**i for i in range(150))
    for share in (0.5, 0.95, 0.99, 1.0):
        exact = times[round(share * len(times)) - 1]
        found = percentile(_counts(times), share)
        assert found is not None
        assert abs(bucket(found) - bucket(exact)) <= 1
    assert percentile([0] * 20, 0.5) is None


def test_a_worker_writes_it_when_it_ends(workers: Workers, conn: redis.Redis) -> None:
    from fusion import Queue

    for _ in range(3):
        Queue("q", conn).enqueue("tests.jobs.basic.noop")
    workers.burst("q")
    assert counted(conn, "queue", "q")["completed"] == 3
    assert counted(conn, "function", "tests.jobs.basic.noop")["completed"] == 3
    times = summary(Inspector(conn).history("queue", "q", 3600))[1]
    assert all(times[what]["p50"] is not None for what in ("wait", "run"))
