"""`stats` and its calls by HTTP: counters, history, percentiles."""

from __future__ import annotations

import json
import re

import pytest
import redis

from fusion import Queue
from fusion.cli.stats_render import sparkline
from fusion.store.write.broker import Broker
from tests.cli.conftest import Invoke
from tests.cli.terminal import terminal
from tests.kit.hands import Hand, put


@pytest.fixture
def seen(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "sms", "a", "b", "c", priority=2)
    hand = Hand(broker, "sms")
    hand.tell(hand.take())
    rows = [(0, "2:completed", 1), (0, "2:w3", 1), (1, "2:r9", 1)]
    broker.note_history("host.1", 1, {("queue", "sms"): rows, ("function", "t.f"): rows})


@pytest.mark.usefixtures("seen")
def test_a_queue(invoke: Invoke) -> None:
    text = invoke("stats", "sms").output
    assert "2 wait, 0 run" in text
    assert "3 enqueued, 1 completed" in text
    assert "HIGH" in text
    document = json.loads(invoke("stats", "sms", "--json", "--since", "2d").output)
    assert (document["total_enqueued"], document["total_completed"], document["queue_length"]) == (3, 1, 2)
    assert sum(step["completed"] for step in document["history"]) == 1
    assert 0.05 < document["seconds"]["high"]["wait"]["p50"] <= 0.1


def test_a_hundred_priorities_are_three_rows(invoke: Invoke, broker: Broker, conn: redis.Redis) -> None:
    """Those of Django's tasks."""
    priorities = range(102)
    for priority in priorities:
        put(broker, "mail", f"p{priority}", priority=priority)
    rows = [(0, f"{priority}:{what}", 1) for priority in priorities for what in ("completed", "w3", "r9")]
    broker.note_history("host.1", 1, {("queue", "mail"): rows[:150]})
    broker.note_history("host.1", 2, {("queue", "mail"): rows[150:]})
    lines = invoke("stats", "mail").stdout.splitlines()
    assert [line.split()[0] for line in lines[-3:]] == ["HIGH", "MODERATE", "LOW"] and "wait p50" in lines[-4]
    document = json.loads(invoke("stats", "mail", "--json").stdout)
    assert document["totals_by_priority"] == {"low": {"enqueued": 1}, "moderate": {"enqueued": 1}, "high": {"enqueued": 100}}
    assert [*document["seconds"]] == ["high", "moderate", "low"] and sum(step["completed"] for step in document["history"]) == 102


@pytest.mark.usefixtures("seen")
def test_all_queues_and_a_function(invoke: Invoke) -> None:
    assert invoke("stats").output.splitlines()[1].split() == ["sms", "2", "0", "3", "1", "0"]
    assert "completed" in invoke("stats", "--function", "t.f").output


def test_the_most_of_a_run_of_a_function(invoke: Invoke, broker: Broker) -> None:
    counted = [(0, "1:completed", 1), (0, "1:r9", 1)]
    known = [*counted, (0, "slowest", 7400), (60, "peak", 420 * 2**20)]
    broker.note_history("host.1", 1, {("function", "t.g"): known, ("function", "t.h"): [(0, "1:retried", 1)]})
    lines = invoke("stats", "--function", "t.g", "--utc").output.splitlines()
    slowest, peak = lines[-2:]
    assert re.fullmatch(r"  slowest run 7\.4 s, in the hour from \d{4}-\d\d-\d\d \d\d:00:00Z", slowest)
    assert re.fullmatch(r"  peak memory 420 MB, in the hour from \d{4}-\d\d-\d\d \d\d:00:00Z", peak)
    for since in ("1h", "7d"):
        document = json.loads(invoke("stats", "--function", "t.g", "--json", "--since", since).output)
        assert (document["slowest_run"], document["peak_memory"]) == (7.4, 420 * 2**20)
        assert document["slowest_run_at"][11:] == "T00:00Z" or document["slowest_run_at"].endswith(":00:00.000000Z")
    assert "slowest" not in invoke("stats", "--function", "t.h").output
    nothing = json.loads(invoke("stats", "--function", "t.h", "--json").output)
    assert [nothing[name] for name in ("slowest_run", "slowest_run_at", "peak_memory", "peak_memory_at")] == [None] * 4


def test_a_key(invoke: Invoke, conn: redis.Redis) -> None:
    for _ in range(3):
        Queue("sms", conn).enqueue("t.f", concurrency_key="user:1", max_concurrent=2)
    document = json.loads(invoke("stats", "--key", "user:1", "--json").output)
    assert [document[f"{name}_count"] for name in ("active", "held", "blocked")] == [0, 2, 1]
    assert (document["max_concurrent"], document["total_enqueued"]) == (2, 3)
    assert "now   1 blocked, 2 queued, 0 run (at most 2)" in invoke("stats", "--key", "user:1").output


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("nowhere",), "no job was ever enqueued"),
        (("--function", "no.such"), "nothing was seen"),
        (("--key", "no.such"), "no job has the concurrency key 'no.such'"),
        (("sms", "--key", "k"), "exclude each other"),
        (("sms", "--since", "soon"), "--since"),
        (("sms", "--since", "1s"), "from 1m to 30d"),
        (("sms", "--json", "--watch"), "exclude each other"),
    ],
)
@pytest.mark.usefixtures("seen")
def test_stats_refuses_wrong_arguments(invoke: Invoke, args: tuple[str, ...], said: str) -> None:
    found = invoke("stats", *args, code=2)
    assert said in found.output + found.stderr


def test_a_sparkline_shows_the_highest_whole_and_nothing_as_nothing() -> None:
    assert sparkline([0, 1, 8, 4]) == " ▁█▄"
    assert sparkline([0, 0]) == "  "
    assert len(sparkline([1] * 1440)) == 60


@pytest.mark.long
@pytest.mark.usefixtures("seen")
def test_watched_on_a_terminal(conn: redis.Redis) -> None:
    with terminal("stats", "sms", "--watch") as tty:
        tty.read_until("2 wait")
        Queue("sms", conn).enqueue("tests.jobs.basic.noop")
        tty.read_until("3 wait")
        assert tty.interrupt() == 0
    assert "Traceback" not in tty.drawn
