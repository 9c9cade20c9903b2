"""What people see of the key that says which layout the data have, and of who is too old for it."""

from __future__ import annotations

import json

import pytest
import redis

from fusion import __version__
from fusion.store.layout import schema
from fusion.store.layout.schema import Schema
from fusion.store.write.broker import Broker
from fusion.store.write.event_broker import EventBroker
from fusion.store.write.schema_broker import SchemaBroker
from tests.cli.conftest import Invoke
from tests.kit.hands import everything, new, put
from tests.kit.waiting import eventually
from tests.upgrade.test_schema import ENTRANCES, NEXT, NOOP, THIS, need
from tests.web.conftest import Start
from tests.web.harness import Tokens


def test_the_command_tells_and_moves(conn: redis.Redis, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    said = invoke("schema").output
    assert "nobody has written the key yet; where there are no data, the first to write begins with its own" in said
    assert f"This program: schema {schema.VERSION} (Fusion {__version__})" in said
    assert not conn.exists("rq:schema")
    ENTRANCES["worker"](conn)
    assert "Nothing to raise" in invoke("schema", "--raise").output
    assert "written by host.1 (Fusion" in invoke("schema").output
    found = json.loads(invoke("schema", "--json").output)
    assert found["data"]["version"] == THIS
    assert found["data"]["written"] is True
    assert found["program"] == {"fusion": __version__, "version": THIS}
    assert found["older"] == []

    monkeypatch.setattr("fusion.store.write.schema_broker.THIS", Schema(NEXT, NEXT, NEXT))
    monkeypatch.setattr(SchemaBroker.schema_raise, "__defaults__", (Schema(NEXT, NEXT, NEXT),))
    refused = invoke("schema", "--raise", code=3)
    assert f"worker host.1 knows schema {THIS} only" in refused.stderr
    assert "Not raised: upgrade or stop these first" in refused.stderr
    Broker(conn).deregister("host.1", "i")
    done = invoke("schema", "--raise", code=3)  # by a program that has thereby become too old itself: only a test can do that
    assert f"Raised from schema {THIS}" in done.stdout
    assert f"Too old: the data in Redis are of schema {NEXT}" in done.stderr


def test_commands_that_change_something_say_so_in_one_line(conn: redis.Redis, broker: Broker, invoke: Invoke) -> None:
    put(broker, "q", "a")
    broker.enqueue("q", [new("later", delay=60.0)], "n")
    EventBroker(conn).events_read("file", "host.3", 1, own=False, dead=False)
    need(conn, writer=NEXT)
    before = everything(conn, clocks=True)
    for line in (
        "enqueue tests.jobs.basic.noop",
        "suspend",
        "resume",
        "pause q",
        "unpause q",
        "empty q -y",
        "cancel a",
        "reschedule later 5m",
        "requeue a",
        "events forget file -y",
        "schema --raise",
    ):
        result = invoke(*line.split(), code=1)
        told = result.stderr.strip().splitlines()
        assert len(told) == 1, (line, result.output)
        assert f"need a process that knows schema {NEXT}" in told[0], line
        assert "upgrade it" in told[0]
    assert everything(conn, clocks=True) == before
    for line in ("info", "failures", "scheduled", "events stats", "cron list"):
        invoke(*line.split())


def test_health_says_why_a_worker_is_missing(conn: redis.Redis, invoke: Invoke) -> None:
    need(conn, reader=NEXT)
    result = invoke("health", code=3)
    assert "no worker of this host" in result.output
    assert f"need a process that knows schema {NEXT}" in result.output


def test_a_server_is_unready_and_answers_503(conn: redis.Redis, redis_url: str, start_server: Start, tokens: Tokens) -> None:
    server = start_server(redis_url, "--tokens", str(tokens.path))
    assert server.ask("GET", "/readyz").status == 200
    need(conn, writer=NEXT)
    before = everything(conn, clocks=True)
    answer = server.ask("POST", "/api/v1/jobs", {"queue": "sms", "func": NOOP}, token=tokens.by_scope["operate"])
    assert (answer.status, answer.code) == (503, "outdated")
    assert "upgrade it" in answer.json["error"]["message"]
    assert server.ask("GET", "/readyz").status == 503
    assert server.ask("GET", "/healthz").status == 200
    assert everything(conn, clocks=True) == before
    need(conn, writer=1)
    eventually(lambda: server.ask("GET", "/readyz").status == 200)
    answer = server.ask("POST", "/api/v1/jobs", {"queue": "sms", "func": NOOP}, token=tokens.by_scope["operate"])
    assert answer.status == 201
