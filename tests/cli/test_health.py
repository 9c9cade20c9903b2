"""`health`, `quiet` and `unquiet` on registrations that the test makes."""

from __future__ import annotations

import json
import socket

import redis

from tests.cli.conftest import FakeHands, Hands, Invoke


def here(hands: Hands, conn: redis.Redis, name: str) -> FakeHands:
    worker: FakeHands = hands("sms", name=name).register()
    conn.hset(f"rq:worker:{name}", "hostname", socket.gethostname())
    return worker


def silence(conn: redis.Redis, name: str, seconds: int) -> None:
    conn.hincrby(f"rq:worker:{name}", "beat_ms", -seconds * 1000)


def test_one_worker_of_this_host_is_enough(invoke: Invoke, conn: redis.Redis, hands: Hands) -> None:
    here(hands, conn, "web1.1")
    here(hands, conn, "web1.2")
    silence(conn, "web1.1", 61)
    assert invoke("health").stdout == "web1.2: alive, started\n"
    assert invoke("health", "--worker", "web1.1", code=3).stderr == "web1.1: silent for 61 s, more than 60 s\n"
    silence(conn, "web1.2", 3600)
    assert invoke("health", code=3).stderr.splitlines() == [
        "web1.1: silent for 61 s, more than 60 s",
        "web1.2: silent for 60 min, more than 60 s",
    ]
    assert invoke("health", "--max-age", "62").stdout == "web1.1: alive, started\n"


def test_a_worker_that_cannot_load_its_tasks_is_unhealthy(invoke: Invoke, conn: redis.Redis, hands: Hands) -> None:
    here(hands, conn, "web1.1")
    conn.hset("rq:worker:web1.1", "unloaded", "shop: ModuleNotFoundError: No module named 'x'")
    said = "web1.1: can't load tasks: shop: ModuleNotFoundError: No module named 'x'"
    assert invoke("health", code=3).stderr == f"{said}\n"
    document = json.loads(invoke("health", "--json", code=3).stdout)
    assert document["reasons"] == [said] and document["workers"][0]["state"] == "can't load tasks"
    here(hands, conn, "web1.2")
    assert invoke("health").stdout == "web1.2: alive, started\n", "one is enough"


def test_as_json(invoke: Invoke, conn: redis.Redis, hands: Hands) -> None:
    here(hands, conn, "web1.1")
    document = json.loads(invoke("health", "--json").stdout)
    assert document["workers"][0].pop("heartbeat_age") < 10
    workers = [{"name": "web1.1", "alive": True, "state": "started"}]
    assert document == {"schema": 1, "status": "ok", "reasons": [], "workers": workers, "unsaved": False, "advice": []}
    result = invoke("health", "--json", "--worker", "nobody", code=3)
    reasons = ["no worker nobody is registered"]
    assert json.loads(result.stdout) == {
        "schema": 1,
        "status": "error",
        "reasons": reasons,
        "workers": [],
        "unsaved": False,
        "advice": [],
    }


def test_quiet_needs_a_name_or_all(invoke: Invoke, conn: redis.Redis) -> None:
    for command in ("quiet", "unquiet"):
        for args in ((), ("--all", "web1.1")):
            assert "name workers (`info -W` lists them), or give --all" in invoke(command, *args, code=2).stderr
    assert invoke("quiet", "--all").stdout == "quiet: 0 worker(s) told\n"


def test_quiet_names_workers_that_it_could_not_reach(invoke: Invoke, conn: redis.Redis, hands: Hands) -> None:
    hands("sms", name="web1.1").register()
    result = invoke("quiet", "web1.1", "web9.9", code=1)
    assert result.stdout == "quiet: 0 worker(s) told\n"
    assert result.stderr == "web1.1: it can't receive commands just now, try again\nweb9.9: no such worker; there are web1.1\n"


def test_a_listening_worker_gets_the_command(invoke: Invoke, conn: redis.Redis, hands: Hands) -> None:
    hands("sms", name="web1.1").register()
    with conn.pubsub(ignore_subscribe_messages=True) as channel:
        channel.subscribe("rq:pubsub:web1.1")
        channel.get_message(timeout=5)  # the confirmation
        assert invoke("quiet", "web1.1").stdout == "quiet: 1 worker(s) told\n"
        message = channel.get_message(timeout=5)
        assert message is not None and json.loads(message["data"]) == {"command": "quiet"}


def test_info_shows_quiet_and_throttled_workers(invoke: Invoke, conn: redis.Redis, hands: Hands) -> None:
    for name in ("web1.1", "web1.2", "web1.3"):
        hands("sms", name=name).register().turn()
    conn.hset("rq:worker:web1.1", "quiet", "1")
    conn.hset("rq:worker:web1.2", "throttled", "RAM 92.1 %")
    output = invoke("info").stdout
    rows = {line.split()[0]: line.split()[1] for line in output.splitlines() if line.startswith("web1.")}
    assert rows == {"web1.1": "quiet", "web1.2": "throttled", "web1.3": "idle"}
    assert "Memory is scarce, no job is taken by: web1.2 (RAM 92.1 %)" in output
    document = json.loads(invoke("info", "--json").stdout)
    assert [(w["quiet"], w["throttled"]) for w in document["workers"]] == [(True, None), (False, "RAM 92.1 %"), (False, None)]
