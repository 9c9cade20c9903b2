"""One JSON dialect: a queue has the same fields with the same values wherever it is shown, and a dead worker is dead everywhere."""

from __future__ import annotations

import json
from typing import Any

import redis
from click.testing import CliRunner

from fusion import Queue
from fusion.cli.main import cli
from fusion.views.queue import QueueView
from tests.dashboard.browser import Browser
from tests.dashboard.conftest import app as app
from tests.dashboard.conftest import client as client
from tests.dashboard.conftest import tokens as tokens
from tests.web.strangers import Caller, settle

#: Fields that change from one look to the next.
MOVING = {"last_updated", "oldest_age"}
#: For each queue and key, over HTTP, on the command line and in Python.
STATISTICS = {
    *("queue_length", "active_count", "max_concurrent", "oldest_enqueued_at"),
    *("total_enqueued", "total_completed", "total_failed", "last_updated"),
}


def said(*args: str) -> Any:
    return json.loads(CliRunner().invoke(cli, [*args, "--json"], prog_name="run_worker.py").stdout)


def test_a_queue_is_the_same_everywhere(conn: redis.Redis, redis_url: str) -> None:
    settle(conn, "sms", "ours")
    caller = Caller(conn)
    sizes = {
        "info": said("info")["queues"][0],
        "top": said("top")["queues"][0],
        "queue show": said("queue", "show", "sms")["queues"][0],
        "stats": said("stats")["queues"][0],
        "stats sms": said("stats", "sms"),
        "GET /queues": caller.ask("GET", "/api/v1/queues").json["queues"][0],
        "GET /queues/sms": caller.ask("GET", "/api/v1/queues/sms").json,
        "GET /queues/sms/stats": caller.ask("GET", "/api/v1/queues/sms/stats").json,
    }
    shared = {one.name for one in QueueView.FIELDS}
    plain = {name: value for name, value in sizes["queue show"].items() if name not in MOVING}
    assert plain["name"] == "sms" and plain["queue_length"] > 0 and plain["active_count"] > 0
    for where, one in sizes.items():
        assert one.keys() >= shared, where
        assert {name: one[name] for name in plain} == plain, where
        if "stats" in where or where == "top":
            assert one.keys() >= STATISTICS, where
    assert all(hasattr(Queue("sms", conn).stats(), name) for name in STATISTICS)


def test_a_dead_worker_is_dead_everywhere(conn: redis.Redis, redis_url: str, client: Browser) -> None:
    settle(conn, "sms", "ours")
    conn.hset("rq:worker:ours-worker.1", "beat_ms", 1)
    states = {
        "info": said("info")["workers"][0]["state"],
        "top": said("top")["workers"][0]["state"],
        "GET /workers": Caller(conn).ask("GET", "/api/v1/workers").json["workers"][0]["state"],
        "info -W": CliRunner().invoke(cli, ["info", "-W"], prog_name="run_worker.py").stdout.splitlines()[1].split()[1],
        "info --raw": "dead" if "dead" in CliRunner().invoke(cli, ["info", "--raw"], prog_name="run_worker.py").stdout else "?",
        "page": "dead" if "dead" in client.get("/workers/ours-worker.1").text else "?",
    }
    assert set(states.values()) == {"dead"}, states
