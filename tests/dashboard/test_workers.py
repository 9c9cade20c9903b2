"""Workers, and one of them: what they show, and the commands to them."""

from __future__ import annotations

import re
from collections.abc import Callable

import redis

from fusion.store.access import inspector_of
from fusion.store.write.broker import Broker
from fusion.views.worker import state_of
from tests.dashboard.browser import Browser, audited, path_of
from tests.kit.hands import Hand, put
from tests.web.strangers import Caller

HOSTILE = "<script>alert(1)<script>\u202e"


def test_nobody_yet(client: Browser) -> None:
    assert "No worker is registered" in client.get("/workers").text


def test_a_worker_is_shown_with_what_it_runs(client: Browser, broker: Broker, conn: redis.Redis) -> None:
    hand = Hand(broker, "sms", name="web1.4711")
    put(broker, "sms", "slow")
    hand.take()
    conn.hset(
        "rq:worker:web1.4711", mapping={"hostname": "web1", "pid": 4711, "state": "busy", "memory": 43_000_000, "version": "2.1"}
    )
    page = client.get("/workers")
    assert re.search(r"web1\.4711 busy web1 pid 4711 sms [\w. ]+ slow 0 0 43\.0 MB", page.text)
    assert 'href="/jobs/slow"' in page.html and "2.1" in page.text
    one = client.get("/workers/web1.4711")
    assert "Runs 1 job" in one.text and "43.0 MB, without that of its jobs" in one.text
    assert client.get("/workers/nobody").status == 404


#: What is in a worker's hash, and the state that it is shown with everywhere.
SHOWN = [
    ({"beat_ms": 1, "state": "busy", "unloaded": "shop: E", "quiet": 1}, "dead"),
    ({"unloaded": "shop: E", "quiet": 1}, "can't load tasks"),
    ({"quiet": 1, "throttled": "RAM 92.1 %"}, "quiet"),
    ({"throttled": "RAM 92.1 %", "state": "idle"}, "throttled"),
    ({"throttled": "RAM 92.1 %", "state": "busy"}, "busy"),
    ({"state": "suspended"}, "suspended"),
]


def test_every_place_shows_one_state(client: Browser, broker: Broker, conn: redis.Redis) -> None:
    for number, (fields, _) in enumerate(SHOWN):
        Hand(broker, "a", name=f"w.{number}")
        conn.hset(f"rq:worker:w.{number}", mapping=dict(fields))
    states = [state for _, state in SHOWN]
    assert [one["state"] for one in Caller(conn).ask("GET", "/api/v1/workers").json["workers"]] == states
    assert [state_of(worker) for worker in inspector_of(conn).workers()] == states
    page = client.get("/workers").text
    assert all(f"w.{number} {state}" in page for number, state in enumerate(states)), page
    assert "can't load tasks shop: E" in page and "can't load tasks shop: E" in client.get("/workers/w.1").text


def test_a_dead_one_and_a_quiet_one_say_so(client: Browser, broker: Broker, conn: redis.Redis) -> None:
    Hand(broker, "a", name="dead.1")
    Hand(broker, "a", name="quiet.1")
    conn.hset("rq:worker:dead.1", "beat_ms", 1)
    conn.hset("rq:worker:quiet.1", "quiet", 1)
    page = client.get("/workers")
    assert "dead.1 dead" in page.text and "quiet.1 quiet" in page.text
    assert [label for _, _, label in page.forms() if label in ("Quiet", "Unquiet", "Stop")] == ["Unquiet", "Stop"]


def test_a_command_reaches_its_worker_and_the_audit(client: Browser, broker: Broker, conn: redis.Redis) -> None:
    Hand(broker, "a", name="web1.1")
    listener = conn.pubsub()
    listener.subscribe("rq:pubsub:web1.1")
    for label, said, word in (
        ("Quiet", "was ordered to take no more jobs", b"quiet"),
        ("Stop", "was ordered to end after its running jobs", b"shutdown"),
    ):
        assert f"Worker web1.1 {said}" in client.press(client.get("/workers/web1.1"), label).text
        told = [listener.get_message(timeout=5) for _ in range(2 if word == b"quiet" else 1)][-1]
        assert told is not None and word in told["data"]
    assert audited(conn, "quiet") == audited(conn, "worker_stop") == ["token:adminer"]


def test_a_worker_that_does_not_listen_is_reported(client: Browser, broker: Broker) -> None:
    Hand(broker, "a", name="web1.1")
    assert "can't receive commands just now" in client.press(client.get("/workers"), "Quiet").text


def test_a_reader_cannot_command_workers(reader: Browser, broker: Broker) -> None:
    Hand(broker, "a", name="web1.1")
    assert not {"Quiet", "Stop"} & {label for _, _, label in reader.get("/workers").forms()}
    assert [reader.send(f"/workers/web1.1/{verb}").status for verb in ("quiet", "unquiet", "stop")] == [403] * 3


def test_hostile_names_are_escaped(client: Browser, broker: Broker, conn: redis.Redis) -> None:
    Hand(broker, "a", name="web1.1")
    conn.hset("rq:worker:web1.1", mapping=dict.fromkeys(("hostname", "state", "queues", "throttled", "version"), HOSTILE))
    conn.sadd("rq:workers", f"rq:worker:{HOSTILE}")
    conn.hset(f"rq:worker:{HOSTILE}", mapping={"incarnation": "x", "beat_ms": 1})
    for path in ("/workers", "/workers/web1.1", f"/workers/{path_of(HOSTILE)}"):
        page = client.get(path)
        assert page.status == 200 and "<script>alert" not in page.html and "\u202e" not in page.html and "alert(1)" in page.text


def test_a_token_for_some_queues_sees_only_their_workers(restricted: Callable[..., Browser], broker: Broker) -> None:
    Hand(broker, "sms", name="ours.1")
    Hand(broker, "zebra", name="zebra.1")
    browser = restricted("sms")
    page = browser.get("/workers")
    assert "ours.1" in page.text and "zebra" not in page.html
    assert browser.get("/workers/zebra.1").status == 404
    assert "no worker of this name" in browser.post("/workers/zebra.1/stop").text
