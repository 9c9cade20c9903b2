"""`run_worker.py relay` as a process: configuration, outages of Redis, the end."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import psutil
import pytest
import redis

from fusion.store.read.event_inspector import EventInspector
from fusion.store.write.broker import Broker
from tests.kit.hands import put
from tests.kit.private_redis import PrivateRedis
from tests.kit.relays import DRIVER, Relays
from tests.kit.waiting import eventually
from tests.kit.workers import Workers
from tests.relay.harness import documents_in, emit, ids_in, is_delivered, sink_of


def test_all_sinks_of_the_settings_get_every_event(
    relays: Relays, workers: Workers, broker: Broker, inspector: EventInspector, tmp_path: Path
) -> None:
    relay = relays.start(env={"FUSION_EVENTS_FILE": str(tmp_path / "e.jsonl"), "FUSION_EVENTS_LOG": "1"})
    put(broker, "default", "j1", data=b'["tests.jobs.basic.add", null, [20, 22], {}]')
    workers.burst()
    eventually(lambda: is_delivered(inspector) and is_delivered(inspector, "log"))
    documents = [json.loads(line) for line in (tmp_path / "e.jsonl").read_text().splitlines()]
    assert [found["event"] for found in documents] == ["queued", "processing", "completed"]
    assert [found["func_name"] for found in documents] == ["tests.jobs.basic.add"] * 3
    assert documents[2]["elapsed"] >= 0
    assert "42" not in documents[2]["result"]
    assert "j1 tests.jobs.basic.add: completed in " in relay.output


@pytest.mark.long
def test_arguments_and_results_appear_in_no_event_log_or_title(
    relays: Relays, workers: Workers, broker: Broker, conn: redis.Redis, inspector: EventInspector, tmp_path: Path
) -> None:
    """A canary in arguments, result and an error's text is in no event, no log and no process title."""
    secret = "S3CR3T-4711-canary"
    settings = {"FUSION_EVENTS_FILE": str(tmp_path / "e.jsonl"), "FUSION_EVENTS_LOG": "1"}
    relay = relays.start(env=settings)
    put(broker, "default", "fails", data=f'["tests.jobs.basic.boom", null, ["bad token {secret}"], {{}}]'.encode())
    put(broker, "default", "works", data=f'["tests.jobs.basic.echo", null, [["{secret}"]], {{}}]'.encode())
    put(broker, "default", "held", data=f'["tests.jobs.basic.none", null, ["{secret}"], {{}}]'.encode())
    workers.burst("--disable-job-desc-logging", code=3)
    eventually(lambda: is_delivered(inspector) and is_delivered(inspector, "log"))
    titles = [part for process in psutil.process_iter(["cmdline"]) for part in process.info["cmdline"] or ()]
    everywhere = [(tmp_path / "e.jsonl").read_text(), relay.output, str(conn.xrange("rq:events")), *titles]
    assert not [text for text in everywhere if secret in text]
    documents = {(found["job_id"], found["event"]): found for found in documents_in(tmp_path / "e.jsonl")}
    assert str(documents["fails", "failed"]["result"]).startswith("builtins.")
    assert " at tests.jobs.basic:boom:" in str(documents["fails", "failed"]["result"])
    assert documents["held", "held"]["reason"] == "fusion.exceptions.TaskNotFound"
    assert documents["works", "completed"]["result"]
    assert secret.encode() in conn.hget("rq:job:works", "result"), "the job itself has it"


def test_without_a_sink_it_says_how_to_name_one_and_lives_for_callbacks(relays: Relays, conn: redis.Redis) -> None:
    relay = relays.start()
    assert "to no sink (FUSION_EVENTS_FILE, " in relay.output
    eventually(lambda: "delivers callbacks" in relay.output)
    assert conn.hget("rq:events:meta", "cap") is None, "nobody needs more events kept"
    relay.signal(signal.SIGTERM)
    assert relay.wait() == 0


@pytest.mark.long
@pytest.mark.parametrize("payload", ["full", "off"])
def test_a_setting_decides_how_much_events_show(
    relays: Relays, broker: Broker, inspector: EventInspector, tmp_path: Path, payload: str
) -> None:
    relays.start("--events-file", str(tmp_path / "e.jsonl"), env={"FUSION_EVENTS_PAYLOAD": payload})
    put(broker, "q", "j", data=b'["tasks.sms.sendSMS", null, ["4711"], {}]')
    eventually(lambda: is_delivered(inspector))
    (document,) = [json.loads(line) for line in (tmp_path / "e.jsonl").read_text().splitlines()]
    assert document["payload"] == {"full": '{"args":["4711"],"kwargs":{}}', "off": "[redacted]"}[payload]


@pytest.mark.long
def test_a_name_that_is_taken_gets_a_number(relays: Relays, inspector: EventInspector, tmp_path: Path) -> None:
    for _ in range(2):
        relays.start("--events-file", str(tmp_path / "e.jsonl"), "--name", "box", "--lease", "15")
    assert [relay.name for relay in inspector.relays()] == ["box", "box.1"]


@pytest.mark.long
def test_what_all_have_is_trimmed(
    relays: Relays, broker: Broker, conn: redis.Redis, inspector: EventInspector, tmp_path: Path
) -> None:
    """The first look comes at once, the next ones with the timer."""
    path = str(tmp_path / "e.jsonl")
    relays.start("--events-file", path, env={"FUSION_EVENTS_CAP": "200"})
    emit(broker, 2000)
    eventually(lambda: is_delivered(inspector))
    eventually(lambda: conn.xlen("rq:events") <= 300, 20, why="trimmed")
    assert conn.xlen("rq:events") >= 200
    assert len(ids_in(tmp_path / "e.jsonl")) == 2000


@pytest.mark.long
def test_events_over_the_backlog_are_counted_as_dropped(
    relays: Relays, broker: Broker, inspector: EventInspector, tmp_path: Path
) -> None:
    """P12: a sink that is down for longer than the stream can hold."""
    (tmp_path / "down.down").touch()
    relay = relays.start(f"down={tmp_path / 'down'}", program=DRIVER, env={"FUSION_EVENTS_BACKLOG": "1000"})
    emit(broker, 100)
    eventually(lambda: "503 of the test" in relay.output)
    emit(broker, 5000, "k")
    before = sink_of(inspector, "down")
    assert before is not None
    assert before.dropped > 3000
    (tmp_path / "down.down").unlink()
    eventually(lambda: is_delivered(inspector, "down"), 30)
    after = sink_of(inspector, "down")
    assert after is not None
    assert after.delivered == len(set(ids_in(tmp_path / "down")))
    assert after.delivered + after.dropped == 5100
    assert after.dropped == before.dropped


# -- Redis away


def test_an_outage_of_redis_is_waited_for(private_redis: PrivateRedis, private_relays: Relays, tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    broker, inspector = Broker(private_redis.conn), EventInspector(private_redis.conn)
    relay = private_relays.start("--events-file", str(path))
    emit(broker, 500)
    eventually(lambda: is_delivered(inspector))
    private_redis.kill()
    # One line for the sinks, one for the courier beside them: each has its own line to Redis.
    relay.says("Redis is away", 2)
    private_redis.revive()
    relay.says("Redis is back", 2)
    for whose in ("events wait in it", "deliveries under way go on"):
        assert relay.count(f"Redis is away, {whose}") == 1, "once for the outage, not for each sink or attempt"
    emit(broker, 500, "k")
    eventually(lambda: is_delivered(inspector))
    assert len(set(ids_in(path))) == 1000
    relay.signal(15)
    assert relay.wait() == 0


@pytest.mark.long
def test_a_restart_of_redis_in_the_middle_loses_nothing(
    private_redis: PrivateRedis, private_relays: Relays, tmp_path: Path
) -> None:
    path = tmp_path / "slow"
    broker, inspector = Broker(private_redis.conn), EventInspector(private_redis.conn)
    private_relays.start(f"slow={path}", program=DRIVER)
    emit(broker, 5_000)
    eventually(lambda: path.exists() and path.stat().st_size > 0)
    private_redis.kill()
    private_redis.revive()
    eventually(lambda: is_delivered(inspector, "slow"), 20)
    assert len(set(ids_in(path))) == 5_000
    sink = sink_of(inspector, "slow")
    assert sink is not None
    assert (sink.delivered, sink.dropped) == (5_000, 0)


@pytest.mark.long
def test_it_ends_while_redis_hangs(private_redis: PrivateRedis, private_relays: Relays, tmp_path: Path) -> None:
    relay = private_relays.start("--events-file", str(tmp_path / "e"), env={"FUSION_SOCKET_TIMEOUT": "0.3"})
    private_redis.pause()
    eventually(lambda: "Redis is away" in relay.output, 15)
    relay.signal(15)
    assert relay.wait() == 0


@pytest.mark.long
def test_a_flushed_redis_is_a_new_beginning(
    relays: Relays, broker: Broker, conn: redis.Redis, inspector: EventInspector, tmp_path: Path
) -> None:
    relays.start("--events-file", str(tmp_path / "e"))
    emit(broker, 10)
    eventually(lambda: is_delivered(inspector))
    conn.flushall()
    emit(broker, 20, "k")
    eventually(lambda: is_delivered(inspector))
    sink = sink_of(inspector)
    assert sink is not None
    assert (sink.delivered, sink.dropped) == (20, 0)
    assert len(set(ids_in(tmp_path / "e"))) == 30
    eventually(lambda: conn.hexists("rq:events:meta", "cap"), why="it says so again")


def test_a_relay_answers_its_readiness_probe(relays: Relays, tmp_path: Path) -> None:
    from urllib.request import urlopen

    relay = relays.start("--events-file", str(tmp_path / "e"), "--probe-port", "0")
    address = relay.output.split("probes: ")[1].split("/livez")[0]
    assert urlopen(f"{address}/readyz", timeout=5).status == 200
    assert urlopen(f"{address}/livez", timeout=5).status == 200
